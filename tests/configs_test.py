"""Every algorithm of configs/ takes an iteration: on made-up episodes, and by
the real sampler with the doctor looking on.
"""

import pathlib

import chex
import numpy as np
import pytest
from loading import load

from agentrl_jax import assembly, metrics
from agentrl_jax import config as config_lib

ROOT = pathlib.Path(__file__).parents[1]
NAMES = (
  'gigpo', 'grpo', 'reinforce', 'rloo', 'hgpo',
  'ppo', 'dr_grpo', 'dapo', 'gspo', 'reinforce_pp', 'remax',
)  # fmt: skip


runs = load(ROOT / 'tests' / 'trainer_fakes.py')
tiny_run = load(ROOT / 'tests' / 'doctor' / 'tiny_run.py')


@pytest.fixture(scope='module', autouse=True)
def panels():
  patch = pytest.MonkeyPatch()
  patch.setattr(assembly, 'tasks', tiny_run.tasks)
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


EVERY = "(('tis', {}), ('icepop', {}), ('geometric', {}), ('veto', {}))"
REAL = {
  'gae': {'advantage.estimator': 'gae', 'advantage.bootstrap': 'limit'},
  'token_gae': {'advantage.estimator': 'token_gae', 'loss.value_clip': '0.2'},
  'reinforce_pp': {
    'advantage.estimator': 'reinforce_pp',
    'advantage.options.gamma': '1.0',
    'advantage.kl_in_reward': '0.1',
    'loss.weighting': 'token',
  },
  'gae whitened': {'advantage.estimator': 'gae', 'advantage.whiten': 'true'},
  'remax': {'advantage.estimator': 'remax'},
  'vineppo': {'advantage.estimator': 'vineppo'},
  'vineppo of some': {
    'advantage.estimator': 'vineppo',
    'advantage.valued_turns': '1',
    'advantage.continuations': '2',
    'advantage.whiten': 'true',
  },
  'refill': {'train.constant_groups': 'refill'},
  **{
    proximal: {'loss.proximal': proximal, 'loss.correction': EVERY}
    for proximal in ('recomputed', 'latest', 'interpolated')
  },
}


@pytest.fixture(scope='module')
def sampler():
  return tiny_run.engine(tiny_run.config())


def real(tmp_path, sampler, **sets):
  """(row, weights) after an iteration of the real trainer."""
  one = tiny_run.trainer(
    tmp_path, sampler, **{'doctor.strict': 'all', 'watch.every': '0'}, **sets
  )
  row = one._iterate(0)
  return row, one.state.params


@pytest.fixture(scope='module')
def plain(tmp_path_factory, sampler):
  return real(tmp_path_factory.mktemp('plain'), sampler)


@pytest.mark.parametrize('name', REAL)
def test_the_doctor_finds_nothing(name, tmp_path, sampler, plain):
  row, weights = real(tmp_path, sampler, **REAL[name])
  assert row['doctor/failed'] == 0 and row['doctor/checks'] > 10
  assert row['updates'] == 1 and row['train/grad_norm'] > 0
  if name == 'reinforce_pp':  # the reference is the policy itself
    assert row['reward/kl'] == pytest.approx(0, abs=1e-4)
  # Three groups of four: a greedy episode each, 4 from each turn, 2 from one.
  num_turns = 12 * row['rollout/turns']
  played = {'remax': 3, 'vineppo': 4 * num_turns, 'vineppo of some': 24}
  assert row.get('counterfactual/episodes') == (
    pytest.approx(played[name]) if name in played else None
  )
  if 'gae' in name:
    assert row['value/loss'] > 0 and (weights['value']['kernel'] != 0).any()
  if name in ('recomputed', 'latest', 'interpolated'):
    # The first update is on policy: corrected or not, it is the same.
    assert row['correction/ess'] == pytest.approx(1, abs=1e-5)
    assert row['correction/masked_share'] == 0
    assert row['correction/mismatch_kl'] == pytest.approx(0, abs=1e-6)
    assert row['loss/policy'] == pytest.approx(
      plain[0]['loss/policy'], abs=1e-6
    )
    chex.assert_trees_all_close(weights, plain[1], atol=1e-4)
