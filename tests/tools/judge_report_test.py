"""A judge of known skill gets the report that it deserves."""

import json
import pathlib
import re

from loading import load

from agentrl_jax import envs, rewards, types
from agentrl_jax.envs import scripted
from agentrl_jax.rollout import store

ROOT = pathlib.Path(__file__).parents[2]


report = load(ROOT / 'tools' / 'judge_report.py')
made = load(ROOT / 'tests' / 'rewards' / 'reward_fakes.py')
TASK = types.Task('canary', 'train', 0, {'kind': 'ok', 'left': 1, 'right': 2})


def write_run(workdir, parts=()):
  members = [
    made.play(
      envs.make('canary'),
      TASK,
      scripted.call('answer', text=text),
      sample=sample,
    )
    for sample, text in enumerate(('3', '4', '5'))
  ]
  composed = rewards.compose([('outcome', 1.0), *parts])
  group = rewards.score(types.Group(TASK, tuple(members)), *composed)
  store.write(workdir, 1, group.trajectories)


def test_a_scripted_judge(tmp_path, capsys, monkeypatch):
  def complete(messages):
    """Likes large numbers: exactly wrong here."""
    found = re.findall(
      r'<attempt id="(\w+)">\n.*?text\\": ?\\"(\d)', messages[-1]['content']
    )
    scores = [{'id': name, 'score': int(text) / 10} for name, text in found]
    return json.dumps({'scores': scores})

  monkeypatch.setattr(store, 'complete', complete, raising=False)
  write_run(tmp_path)
  assert report.main([str(tmp_path)]) == 1
  assert "has 'ruler' and outcome" in capsys.readouterr().err
  judge = '--judge=agentrl_jax.rollout.store:complete'
  assert report.main([str(tmp_path), judge]) == 0
  said = json.loads(capsys.readouterr().out)
  assert (said['episodes'], said['pairs'], said['pair_accuracy']) == (3, 2, 0.0)
  assert said['auc'] == 0.0 and said['mean_success'] == 0.3


def test_a_judge_that_is_down(tmp_path, capsys, monkeypatch):
  def complete(messages):
    raise OSError('down')

  monkeypatch.setattr(store, 'complete', complete, raising=False)
  write_run(tmp_path)
  judge = '--judge=agentrl_jax.rollout.store:complete'
  assert report.main([str(tmp_path), judge, '--retries=0']) == 1
  said = capsys.readouterr().err
  assert 'every question failed: ruler: 1 attempts, the last: OSError' in said


def test_scores_that_were_stored(tmp_path, capsys):
  write_run(tmp_path, [('turns', 1.0)])
  assert report.main([str(tmp_path), '--part=turns']) == 0
  said = json.loads(capsys.readouterr().out)
  assert said['episodes'] == 3 and said['pair_accuracy'] == 0.5
  assert said['rank_correlation'] is None  # all scores are equal


def test_what_cannot_be_asked_is_said(tmp_path, capsys):
  write_run(tmp_path)
  assert report.main([str(tmp_path), '--judge=no_such:judge']) == 1
  assert 'cannot import' in capsys.readouterr().err
  assert report.main([str(tmp_path), '--step=9']) == 1
  assert 'has steps [1]' in capsys.readouterr().err
