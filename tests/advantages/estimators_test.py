"""Locks the tables: one signature, silence on dead batches."""

import advantage_oracles as oracles
import chex
import jax
import numpy as np

from agentrl_jax import advantages
from agentrl_jax.batch import TurnBatch


class TablesTest(chex.TestCase):
  def test_every_estimator_is_finite_masked_and_silent_on_dead_batches(self):
    t = oracles.random_turns(3)
    t['turn_mask'][:, 0] = True
    t['turn_rewards'][:, 0] = np.arange(8) % 3
    t['group_ids'] = np.array([0, 0, 0, 0, 1, 1, 1, -1], np.int32)
    extra = {
      'gae': dict(values=np.zeros((8, 6), np.float32)),
      'vineppo': dict(continuation_returns=np.ones((8, 6, 2), np.float32)),
      'remax': dict(greedy_returns=np.zeros(8, np.float32)),
    }
    dead = dict(t)
    dead['turn_rewards'] = np.zeros_like(t['turn_rewards'])
    dead['turn_penalties'] = np.zeros_like(t['turn_penalties'])
    # One program for all: they share most of their sorting.
    everything = jax.jit(
      lambda t: {
        name: f(t, **extra.get(name, {}))
        for name, f in advantages.ESTIMATORS.items()
      }
    )
    silent = everything(TurnBatch(**dead))
    for name, out in everything(TurnBatch(**t)).items():
      assert out.shape == (8, 6) and out.dtype == np.float32, name
      assert np.all(np.isfinite(out)), name
      assert not np.any(out[~t['turn_mask']]), name
      if name != 'vineppo':
        assert np.any(out), name
        assert not np.any(silent[name]), name

  def test_token_estimators_share_one_signature(self):
    mask = np.array([[True, True, False], [True, False, False]])
    args = (np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32))
    for name, f in advantages.TOKEN_ESTIMATORS.items():
      out = np.asarray(f(*args, np.zeros(2, np.int32), mask))
      assert out.shape == (2, 3), name
      assert np.any(out) and not np.any(out[~mask]), name

  def test_trajectories_without_turns_are_in_no_group(self):
    # The third failed for lack of infrastructure: a mean of 1/2, not 1/3.
    mask = np.array([[True], [True], [False]])
    t = TurnBatch(
      turn_rewards=np.array([[1.0], [0.0], [0.0]], np.float32),
      turn_mask=mask,
      group_ids=np.zeros(3, np.int32),
      anchor_ids=np.where(mask, 0, -1),
      history_ids=np.where(mask, 0, -1)[..., None],
      turn_penalties=np.zeros((3, 1), np.float32),
      action_ids=np.array([[0], [1], [-1]]),
    )
    out = advantages.ESTIMATORS['dr_grpo'](t)
    np.testing.assert_allclose(out[:, 0], [0.5, -0.5, 0])
    out = advantages.ESTIMATORS['rloo'](t)
    np.testing.assert_allclose(out[:, 0], [1, -1, 0])
