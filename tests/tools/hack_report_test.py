"""The report of a run directory: a line a step and kind, then the shares."""

import importlib.util
import pathlib

from agentrl_jax import config, envs, rewards, types
from agentrl_jax.envs import scripted
from agentrl_jax.rollout import store

ROOT = pathlib.Path(__file__).parents[2]


def load(path):
  spec = importlib.util.spec_from_file_location(path.stem, path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


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
