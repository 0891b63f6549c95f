"""Locks HGPO: levels, weights, what is skipped."""

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


def _hgpo(t, **options):
  return advantages.ESTIMATORS['hgpo'](TurnBatch(**t), **options)


class HistoryTest(chex.TestCase):
  def test_level_weights_by_hand(self):
    f = advantages.hgpo_level_weights
    np.testing.assert_array_equal(f(3), [1, 2, 3])
    np.testing.assert_array_equal(f(3, alpha=2.0, offset=2), [4, 9, 16])

  def test_hgpo_by_hand(self):
    # Both trajectories pass state 0 then state 1, the third comes to state 1
    # at once. gamma 1: Q = 1, 0, .5 everywhere.
    # State 1, level 0: mean .5 -> .5, -.5, 0; level 1 (0 then 1): +-.5.
    # Turn 2: (1*.5 + 2*.5)/3 = .5. Turn 1: only level 0, mean of 1, 0: +-.5.
    # Base: returns 1, 0, .5 around .5.
    args = (
      jnp.array([[0.0, 1.0], [0.0, 0.0], [0.5, 0.0]]),
      jnp.zeros(3, jnp.int32),
      jnp.array([[[0, -1], [1, 5]], [[0, -1], [1, 5]], [[1, -1], [-1, -1]]]),
      jnp.array([[True, True], [True, True], [True, False]]),
    )
    f = functools.partial(advantages.hgpo, gamma=1.0, scale='none')
    out = f(*args, base_weight=0.0)
    want = [[0.5, 0.5], [-0.5, -0.5], [0, 0]]
    np.testing.assert_allclose(out, want, atol=1e-6)
    out = f(*args, base_weight=1.0)
    np.testing.assert_allclose(out, 2 * np.array(want), atol=1e-6)

  def test_hgpo_oracle_over_random_cases(self):
    weights = np.array([1.0, 4.0, 9.0], np.float32)
    for base, scale in [(1.0, 'std'), (0.0, 'none')]:
      f = jax.jit(
        functools.partial(
          _hgpo, level_weights=weights, base_weight=base, scale=scale, gamma=0.9
        )
      )
      for seed in range(200):
        t = oracles.random_turns(seed)
        want = oracles.hgpo(t, weights, base, 0.9, scale)
        np.testing.assert_allclose(f(t), want, err_msg=f'{seed=}', **CLOSE)

  def test_averaged_base_and_skipped_zeros_over_random_cases(self):
    # Multiples of 1/8, so that what is exactly 0 here is so in float64.
    weights = np.array([2.0, 3.0, 4.0], np.float32)
    for averaged, skip in [(True, False), (True, True), (False, True)]:
      f = jax.jit(
        functools.partial(
          _hgpo,
          level_weights=weights,
          base_weight=1.5,
          base_place='averaged' if averaged else 'added',
          skip_zeros=skip,
          scale='none',
          gamma=0.5,
        )
      )
      for seed in range(200):
        t = oracles.random_turns(seed)
        t['turn_rewards'] = np.round(4 * t['turn_rewards']) / np.float32(4)
        want = oracles.hgpo(t, weights, 1.5, 0.5, 'none', averaged, skip)
        np.testing.assert_allclose(f(t), want, err_msg=f'{seed=}', **CLOSE)

  def test_unknown_place_is_named(self):
    t = oracles.random_turns(0)
    with pytest.raises(ValueError, match="base_place='top'; allowed: added"):
      _hgpo(t, base_place='top')

  def test_skip_zeros_by_hand(self):
    # Q = 2, 0, 1 at level 0: 1, -1, 0. Level 1 holds the last two: -.5, +.5.
    # The zero of the third at level 0 is left out: .5, not (0 + 2*.5)/3.
    args = (
      jnp.array([[2.0], [0.0], [1.0]]),
      jnp.zeros(3, jnp.int32),
      jnp.array([[[0, 0]], [[0, 1]], [[0, 1]]]),
      jnp.ones((3, 1), bool),
    )
    f = functools.partial(advantages.hgpo, scale='none', base_weight=0.0)
    out = f(*args, skip_zeros=True)[:, 0]
    np.testing.assert_allclose(out, [1, -2 / 3, 0.5], atol=1e-6)
    out = f(*args)[:, 0]
    np.testing.assert_allclose(out, [1, -2 / 3, 1 / 3], atol=1e-6)

  def test_one_level_is_gigpo(self):
    f, g = (
      jax.jit(functools.partial(_hgpo, ddof=1)),
      jax.jit(lambda t: advantages.ESTIMATORS['gigpo'](TurnBatch(**t))),
    )
    for seed in range(4):
      t = oracles.random_turns(seed)
      t['history_ids'] = t['anchor_ids'][..., None]
      np.testing.assert_allclose(f(t), g(t), rtol=1e-5, atol=1e-6)
