"""Locks comparisons within states: GiGPO and its options."""

import functools

import advantage_oracles as oracles
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax import advantages
from agentrl_jax.batch import TurnBatch

CLOSE = dict(rtol=1e-4, atol=2e-5)


def _gigpo(**options):
  def f(t):
    return advantages.ESTIMATORS['gigpo'](TurnBatch(**t), **options)

  return jax.jit(f)


class AnchoredTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_mission_example(self):
    # At one state, returns 1.00, 0.00, 0.65: mean 0.55.
    f = self.variant(advantages.anchor_advantages, static_argnames='scale')
    out = f(
      jnp.array([[1.0], [0.0], [0.65]]),
      jnp.zeros(3, jnp.int32),
      jnp.zeros((3, 1), jnp.int32),
      jnp.ones((3, 1), bool),
      scale='none',
    )
    np.testing.assert_allclose(out[:, 0], [0.45, -0.55, 0.10], atol=1e-6)

  @chex.variants(with_jit=True)
  def test_gigpo_by_hand(self):
    # Task 0: two trajectories from state 0, gamma .5. Episode returns 1, 0:
    # +-.5. Turn returns at state 0: .5*1 = .5 and 0: +-.25. States 1 and 2
    # are visited once: 0. Task 1 has one trajectory: 0, though its state is 0.
    f = self.variant(
      advantages.gigpo, static_argnames=('gamma', 'scale', 'anchor_weight')
    )
    args = (
      jnp.array([[0.0, 1.0], [0.0, 0.0], [0.0, 1.0]]),
      jnp.array([0, 0, 1]),
      jnp.array([[0, 1], [0, 2], [0, 0]]),
      jnp.ones((3, 2), bool),
    )
    out = f(*args, gamma=0.5, scale='none')
    want = np.array([[0.75, 0.5], [-0.75, -0.5], [0, 0]])
    # In task 1 the loop at state 0 has returns .5 and 1: -+.25 of themselves.
    want[2] = [-0.25, 0.25]
    np.testing.assert_allclose(out, want, atol=1e-6)
    out = f(*args, gamma=0.5, scale='none', anchor_weight=2.0)
    np.testing.assert_allclose(out[0], [1.0, 0.5], atol=1e-6)

  def test_own_turns_leave_the_baseline(self):
    # One state; trajectory 0 passes it twice (1, 3), trajectory 1 once (5).
    # 1 - 5, 3 - 5, 5 - mean(1, 3). A lone looping trajectory has no peer.
    args = (
      jnp.array([[1.0, 3.0], [5.0, 0.0]]),
      jnp.zeros(2, jnp.int32),
      jnp.zeros((2, 2), jnp.int32),
      jnp.array([[True, True], [True, False]]),
    )
    f = functools.partial(
      advantages.anchor_advantages,
      scale='none',
      baseline='leave_trajectory_out',
    )
    np.testing.assert_allclose(f(*args), [[-4, -2], [3, 0]], atol=1e-6)
    alone = f(args[0], jnp.array([0, 1]), *args[2:])
    np.testing.assert_array_equal(alone, np.zeros((2, 2)))

  def test_penalty_stays_at_its_turn_and_out_of_dead_groups(self):
    # Returns 1 and 0: mean .5. The invalid turn loses .1 more, its neighbour
    # nothing; where both fail, nobody loses anything.
    mask = jnp.ones((2, 2), bool)
    penalties = jnp.array([[0.1, 0.0], [0.0, 0.0]])
    f = functools.partial(
      advantages.episode_advantages, scale='none', turn_penalties=penalties
    )
    ids = jnp.zeros(2, jnp.int32)
    rewards = jnp.array([[0.0, 1.0], [0.0, 0.0]])
    want = [[0.4, 0.5], [-0.5, -0.5]]
    np.testing.assert_allclose(f(rewards, ids, mask), want, atol=1e-6)
    assert not np.any(f(jnp.zeros((2, 2)), ids, mask))
    # With statistics over turns (authors' code) the penalty is the signal:
    # mean -.025.
    out = f(jnp.zeros((2, 2)), ids, mask, episode_stats='turns')
    want = [[-0.075, 0.025], [0.025, 0.025]]
    np.testing.assert_allclose(out, want, atol=1e-6)

  def test_gigpo_oracle_over_random_cases(self):
    grid = [
      (0.95, 1.0, 'std', 'trajectories', 'group', False),
      (0.9, 0.5, 'none', 'turns', 'leave_trajectory_out', True),
      (1.0, 2.0, 'std', 'turns', 'leave_trajectory_out', False),
      (0.95, 1.0, 'none', 'trajectories', 'group', True),
    ]
    for gamma, weight, scale, stats, baseline, raw in grid:
      f = _gigpo(
        gamma=gamma,
        anchor_weight=weight,
        scale=scale,
        episode_stats=stats,
        baseline=baseline,
        singleton='raw' if raw else 'zero',
      )
      for seed in range(200):
        t = oracles.random_turns(seed)
        want = oracles.gigpo(t, gamma, weight, scale, stats, baseline, raw)
        np.testing.assert_allclose(f(t), want, err_msg=f'{seed=}', **CLOSE)

  def test_bounds_masked_values_and_order_change_nothing(self):
    f, loose = _gigpo(), _gigpo(num_groups=64, num_anchors=1000)
    for seed in range(8):
      t = oracles.random_turns(seed)
      want = f(t)
      np.testing.assert_array_equal(loose(t), want)
      rotten = dict(t)
      for name in ('turn_rewards', 'turn_penalties'):
        rotten[name] = np.where(t['turn_mask'], t[name], np.nan)
      rotten['anchor_ids'] = np.where(t['turn_mask'], t['anchor_ids'], 3)
      np.testing.assert_array_equal(f(rotten), want)
      order = np.random.default_rng(seed).permutation(oracles.B)
      got = f({k: v[order] for k, v in t.items()})
      np.testing.assert_allclose(got, want[order], **CLOSE)

  def test_reduces_to_grpo_and_to_anchor_advantages(self):
    f, g = _gigpo(anchor_weight=0.0), _gigpo(episode_weight=0.0)
    grpo = jax.jit(advantages.grpo)
    anchored = jax.jit(advantages.anchor_advantages)
    for seed in range(8):
      t = oracles.random_turns(seed)
      t['turn_penalties'] = np.zeros_like(t['turn_penalties'])
      mask = t['turn_mask']
      total = oracles.outcomes(t).astype(np.float32)
      want = grpo(total, t['group_ids'], mask.any(-1))
      want = np.where(mask, np.asarray(want)[:, None], 0)
      np.testing.assert_allclose(f(t), want, rtol=1e-5, atol=1e-6)
      q = advantages.discounted_returns(t['turn_rewards'], mask, gamma=0.95)
      want = anchored(q, t['group_ids'], t['anchor_ids'], mask)
      np.testing.assert_allclose(g(t), want, rtol=1e-5, atol=1e-6)

  def test_anchor_beyond_its_bound_is_loud(self):
    ones = jnp.ones((1, 2))
    out = advantages.anchor_advantages(
      ones, jnp.zeros(1, jnp.int32), jnp.array([[0, 9]]), ones > 0,
      num_anchors=5,
    )  # fmt: skip
    np.testing.assert_array_equal(np.isnan(out), [[False, True]])
    with pytest.raises(ValueError, match='leave_trajectory_out'):
      advantages.anchor_advantages(
        ones, jnp.zeros(1, jnp.int32), ones.astype(int), ones > 0,
        baseline='loo',
      )  # fmt: skip
