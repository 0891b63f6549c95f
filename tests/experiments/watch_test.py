"""Three honest runs of the whole command are watched and stay silent."""

import pathlib

import pytest
from loading import load

from agentrl_jax import metrics

HERE = pathlib.Path(__file__).parent


SETS = {
  'train.iterations': 10,
  'rollout.tasks': 4,
  'rollout.max_turns': 8,
  'sft.steps': 150,
  'eval.every': 0,
  'watch.every': 3,
  'watch.patience': 2,
}


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(3))
def test_an_honest_run_is_silent(tmp_path, seed):
  sets = [f'--config.{key}={value}' for key, value in SETS.items()]
  launch = load(HERE / 'launch_test.py').launch
  code, output = launch(tmp_path, *sets, f'--config.seed={seed}')
  assert code == 0, output
  assert 'config.watch' not in output
  rows = metrics.read(tmp_path / 'run')[1:]
  assert len(rows) == 10
  assert all('watch/distinct_sequences' in row for row in rows)
  depends = [row.get('watch/input_dependence') for row in rows]
  assert [value is not None for value in depends] == [
    i % 3 == 0 for i in range(10)
  ]
  assert min(value for value in depends if value is not None) > 0.5
