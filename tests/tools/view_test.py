"""tools/view_trajectories.py and tools/show_config.py from the command line."""

import pathlib
import subprocess
import sys

import pytest

from agentrl_jax import config, types
from agentrl_jax.rollout import store

ROOT = pathlib.Path(__file__).parents[2]


def run(tool, *arguments):
  return subprocess.run(
    [sys.executable, str(ROOT / 'tools' / tool), *map(str, arguments)],
    capture_output=True,
    text=True,
    cwd=ROOT,
  )


def make_trajectory(index, reward):
  reply = (types.Message('tool', f'reply {index}'),)
  turn = types.Turn(0, 0, 0, f'act {index}', (), '', None, reply, reward)
  return types.Trajectory(
    task=types.Task('flight', 'train', index, {}),
    sample=0,
    prompt=(types.Message('user', 'Book.'),),
    turns=(turn,),
    contexts=(),
    stop_reason=types.StopReason.DONE,
  )


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  path = tmp_path_factory.mktemp('run')
  store.write(path, 1, [make_trajectory(5, 1.0)])
  batch = [make_trajectory(i, float(i % 2)) for i in range(4)]
  store.write(path, 2, batch, advantages=[[0.5], [-0.25], [0], [0]])
  return path


def test_the_last_step_is_shown_with_advantages(workdir):
  result = run('view_trajectories.py', workdir, '--n=2')
  assert result.returncode == 0, result.stderr
  assert 'act 0  [+0.50]' in result.stdout
  assert 'act 1  [-0.25]' in result.stdout
  assert 'act 2' not in result.stdout
  assert '2 of 4; steps [1, 2]' in result.stdout


def test_failures_only_and_another_step(workdir):
  result = run('view_trajectories.py', workdir, '--failures')
  assert 'act 0' in result.stdout and 'act 1' not in result.stdout
  assert 'act 5' in run('view_trajectories.py', workdir, '--step=1').stdout


def test_what_is_missing_is_said(workdir, tmp_path):
  result = run('view_trajectories.py', workdir, '--step=7')
  assert result.returncode == 1 and 'has steps [1, 2]' in result.stderr
  assert run('view_trajectories.py', tmp_path).returncode == 1


def write_config(path, line):
  path.write_text(
    'from agentrl_jax import config\n'
    'def get_config():\n'
    '  c = config.default()\n'
    f'  {line}\n'
    '  return c\n'
  )
  return path


def test_only_changes_are_shown_with_their_defaults(tmp_path):
  default = config.default().train.iterations
  path = write_config(tmp_path / 'c.py', f'c.train.iterations = {default + 1}')
  result = run('show_config.py', path, '--changed', '--config.seed=7')
  assert result.stdout.splitlines() == [
    'seed = 7  # default 0',
    f'train.iterations = {default + 1}  # default {default}',
  ]


def test_every_field_is_shown(tmp_path):
  path = write_config(tmp_path / 'c.py', 'pass')
  lines = run('show_config.py', path).stdout.splitlines()
  assert len(lines) == len(config.flatten(config.default()))


def test_a_bad_config_is_one_message(tmp_path):
  path = write_config(tmp_path / 'c.py', 'c.train.rows = 0')
  result = run('show_config.py', path)
  assert result.returncode == 1 and 'config.train.rows=0' in result.stderr
  assert 'Traceback' not in result.stderr
