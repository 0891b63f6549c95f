"""The report of a run directory: a line a step and kind, then the shares."""

import json
import pathlib

import pytest
from loading import load

from agentrl_jax import config, envs, rewards, types
from agentrl_jax.envs import scripted
from agentrl_jax.rollout import store

ROOT = pathlib.Path(__file__).parents[2]


report = load(ROOT / 'tools' / 'hack_report.py')
made = load(ROOT / 'tests' / 'rewards' / 'reward_fakes.py')
TASK = types.Task('canary', 'train', 0, {'kind': 'ok', 'left': 17, 'right': 25})


def write_run(workdir):
  c = config.default()
  c.rewards = (('outcome', 1.0), ('turns', 0.1))
  (workdir / 'config.json').write_text(config.to_json(c))
  for step, texts in (
    (1, ('42', '43', 'ok', '1')),
    (2, ('ok', 'ok', '1', '2')),
  ):
    members = [
      made.play(
        envs.make('canary'), TASK, scripted.call('answer', text=text), sample=i
      )
      for i, text in enumerate(texts)
    ]
    composed = rewards.compose(c.rewards)
    group = rewards.score(types.Group(TASK, tuple(members)), *composed)
    store.write(workdir, step, group.trajectories)


def test_the_report_by_hand(tmp_path, capsys):
  write_run(tmp_path)
  assert report.main([str(tmp_path)]) == 0
  _, *lines = capsys.readouterr().out.splitlines()
  assert [line.split() for line in lines[::2]] == [
    ['1', 'ok', '4', '0.25', '0.50', '0.25', '1.0'],
    ['2', 'ok', '4', '0.50', '0.50', '0.00', '1.0'],
  ]
  assert lines[1].endswith('groups: outcome 1.00, turns 0.00')
  assert report.main([str(tmp_path), '--step=2']) == 0
  assert len(capsys.readouterr().out.splitlines()) == 3


def test_what_is_not_there_is_said(tmp_path, capsys):
  assert report.main([str(tmp_path)]) == 1
  assert 'holds no train trajectories' in capsys.readouterr().err
  write_run(tmp_path)
  assert report.main([str(tmp_path), '--step=7']) == 1
  assert 'has steps [1, 2]' in capsys.readouterr().err


def write_rows(workdir, gaps, pulls=()):
  c = config.default()
  c.watch.patience, c.watch.audit_gap = 2, 0.1
  workdir.mkdir()
  (workdir / 'config.json').write_text(config.to_json(c))
  rows = [
    {'step': step, 'updates': 0, 'wall_s': 0.0,
     'rollout/success': 0.5, 'audit/gap': gap}
    for step, gap in enumerate(gaps, 1)
  ]  # fmt: skip
  for row, pull in zip(rows, pulls):
    row['audit/pull'] = pull
  lines = ''.join(json.dumps(row) + '\n' for row in rows)
  (workdir / 'metrics.jsonl').write_text(lines)


def test_an_alarm_leads_what_it_warns_of(tmp_path, capsys):
  """The start is 0.1. A gap above 0.2 twice in a row: iterations 5 and 7.

  Half is reached at 8, and never in 12 iterations: leads of 3 and 5.
  """
  start = [0.1, 0.1, 0.1]
  write_rows(tmp_path / 'a', [*start, 0.3, 0.3, 0.4, 0.4, 0.5, 0.6])
  write_rows(tmp_path / 'b', [*start, 0.3, 0.1, *[0.4] * 7])
  write_rows(tmp_path / 'c', [*start, 0.1, 0.2, 0.1])
  runs = [str(tmp_path / name) for name in 'abc']
  assert report.main([*runs, '--alarm=flawed']) == 0
  assert json.loads(capsys.readouterr().out) == {
    'alarm': 'flawed', 'runs': 3, 'rang': 2, 'warned': 2,
    'iteration': 6.0, 'lead': 4.0, 'lead_min': 3,
  }  # fmt: skip


def test_where_updates_lead_rings_before_anybody_is_there(tmp_path, capsys):
  """A pull above 0.2 twice in a row at 2; half of the episodes at 5."""
  gaps, pulls = [0.1, 0.1, 0.1, 0.3, 0.5], [0.3, 0.4, 0.5, 0.9, 1.0]
  write_rows(tmp_path / 'a', gaps, pulls)
  assert report.main([str(tmp_path / 'a'), '--alarm=flawed']) == 0
  told = json.loads(capsys.readouterr().out)
  assert (told['rang'], told['iteration'], told['lead']) == (1, 2.0, 3.0)


def test_a_run_that_nobody_audited_is_refused(tmp_path, capsys):
  write_rows(tmp_path / 'a', [])
  assert report.main([str(tmp_path / 'a'), '--alarm=x']) == 1
  assert 'config.audit_reward' in capsys.readouterr().err
  with pytest.raises(SystemExit):
    report.main([str(tmp_path / 'a'), str(tmp_path / 'a')])
