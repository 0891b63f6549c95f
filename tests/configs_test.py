"""Every algorithm of configs/ takes an iteration, on made-up episodes."""

import importlib.util
import pathlib
import sys

import numpy as np
import pytest

from agentrl_jax import assembly, metrics, types
from agentrl_jax import config as config_lib

ROOT = pathlib.Path(__file__).parents[1]
NAMES = (
  'gigpo', 'grpo', 'reinforce', 'rloo', 'hgpo',
  'ppo', 'dr_grpo', 'dapo', 'gspo', 'reinforce_pp',
)  # fmt: skip


def load(path):
  spec = importlib.util.spec_from_file_location(path.stem, path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[path.stem] = module
  spec.loader.exec_module(module)
  return module


runs = load(ROOT / 'tests' / 'train_test.py')


@pytest.fixture(scope='module', autouse=True)
def panels():
  patch = pytest.MonkeyPatch()
  patch.setattr(
    assembly,
    'tasks',
    lambda config, split: [types.Task('echo', split, i, {}) for i in range(10)],
  )
  yield
  patch.undo()


def learning(name):
  """The fields of a config that say how it learns, as overrides."""
  fields = config_lib.flatten(
    config_lib.load(str(ROOT / 'configs' / f'{name}.py'))
  )
  base = config_lib.flatten(config_lib.default())
  parts = ('advantage.', 'loss.', 'train.constant', 'train.overlong')
  out = {}
  for key, value in fields.items():
    if not key.startswith(parts):
      continue
    if key.endswith('.options'):
      out |= {f'{key}.{k}': str(v) for k, v in value.items()}
    elif value != base[key]:
      out[key] = str(value)
  return out


@pytest.mark.parametrize('name', NAMES)
def test_an_iteration(name, tmp_path):
  one, _ = runs.trainer(tmp_path, **learning(name), **{
    'train.iterations': '1',
    'train.minibatches': '1',
    'eval.every': '0',
    'eval.tasks': '0',
    'eval.test_tasks': '0',
  })  # fmt: skip
  one.run()
  (_, row) = metrics.read(tmp_path)
  assert row['updates'] == 1 and row['train/grad_norm'] > 0
  learnt = ('loss/', 'policy/', 'train/', 'advantage/', 'value/', 'reward/')
  strange = {
    k for k, x in row.items() if k.startswith(learnt) and not np.isfinite(x)
  }
  assert not strange
  assert ('value/loss' in row) == (name == 'ppo')
  assert ('reward/kl' in row) == (name == 'reinforce_pp')
  # A refill plays more than the four tasks of an iteration.
  assert (row['rollout/tasks'] > 4) == (name == 'dapo')
  assert ('value' in one.state.params) == (name == 'ppo')
