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

  def test_penalties_stay_at_their_turn_and_out_of_dead_groups(self):
    # Task 0 varies (1, 0), task 1 does not (0, 0); one penalty in each.
    penalties = np.array([[0.1, 0], [0, 0], [0.1, 0], [0, 0]], np.float32)
    t = TurnBatch(
      turn_rewards=np.array([[0, 1], [0, 0], [0, 0], [0, 0]], np.float32),
      turn_mask=np.ones((4, 2), bool),
      group_ids=np.array([0, 0, 1, 1], np.int32),
      anchor_ids=np.zeros((4, 2), np.int32),
      history_ids=np.zeros((4, 2, 1), np.int32),
      turn_penalties=np.zeros((4, 2), np.float32),
      action_ids=np.zeros((4, 2), np.int32),
    )
    for name in ('rloo', 'dr_grpo', 'opo', 'maxrl', 'pass_at_k'):
      f = advantages.ESTIMATORS[name]
      lost = f(t) - f(t.replace(turn_penalties=penalties))
      want = [[0.1, 0], [0, 0], [0, 0], [0, 0]]
      np.testing.assert_allclose(lost, want, atol=1e-6, err_msg=name)
    for name in ('reinforce', 'rebn'):  # no group, so no dead one
      f = advantages.ESTIMATORS[name]
      lost = f(t) - f(t.replace(turn_penalties=penalties))
      np.testing.assert_allclose(lost, penalties, atol=1e-6, err_msg=name)

  def test_tokens_of_no_group_are_in_no_statistic(self):
    rewards = np.array([[1.0, 0], [0, 0], [50, 90]], np.float32)
    mask = np.ones((3, 2), bool)
    ids = np.array([0, 0, -1], np.int32)
    for name in ('reinforce_pp', 'reinforce_pp_baseline'):
      f = advantages.TOKEN_ESTIMATORS[name]
      out = np.asarray(f(rewards, None, ids, mask))
      alone = f(rewards[:2], None, ids[:2], mask[:2])
      np.testing.assert_allclose(out[:2], alone, rtol=1e-6, err_msg=name)
      assert not np.any(out[2]), name

  def test_bounds_change_nothing_and_an_id_beyond_is_loud(self):
    groups = ('rloo', 'grpo', 'opo', 'maxrl', 'pass_at_k', 'ecpo')
    states = ('gigpo', 'hgpo', 'graphgpo')

    def everything(t, num_groups, num_anchors):
      both = dict(num_groups=num_groups, num_anchors=num_anchors)
      return {
        name: f(t, **(both if name in states else {'num_groups': num_groups}))
        for name, f in advantages.ESTIMATORS.items()
        if name in groups + states
      }

    program = jax.jit(everything, static_argnums=(1, 2))
    for seed in range(200):
      t = TurnBatch(**oracles.random_turns(seed))
      # MaxRL is for returns that are not negative.
      t = t.replace(
        history_ids=t.history_ids[..., :1], turn_rewards=np.abs(t.turn_rewards)
      )
      tight, loose = program(t, None, None), program(t, 64, 1000)
      for name in tight:
        np.testing.assert_array_equal(loose[name], tight[name], err_msg=name)
      last = (t.group_ids == oracles.B - 1)[:, None] & t.turn_mask
      for name, out in program(t, oracles.B - 1, None).items():
        np.testing.assert_array_equal(np.isnan(out), last, err_msg=name)
