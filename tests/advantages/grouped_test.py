"""Locks the primitive and the trajectory-level estimators."""

import advantage_oracles as oracles
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized

from agentrl_jax import advantages

ONE_GROUP = jnp.zeros(4, jnp.int32)
ALL = jnp.ones(4, bool)


def _center(**options):
  return jax.jit(lambda v, i, m: advantages.group_center(v, i, m, **options))


class GroupedTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_group_center_by_hand(self):
    # Group 0: 1, 3 -> mean 2 -> -1, +1; sample std sqrt(2), population std 1.
    # Group 1: one member; id -1 and the masked element: nothing.
    values = jnp.array([1.0, 3.0, 5.0, 7.0, 9.0])
    ids = jnp.array([0, 0, 1, -1, 0])
    mask = jnp.array([True, True, True, True, False])
    names = ('scale', 'ddof', 'singleton', 'num_ids')
    f = self.variant(advantages.group_center, static_argnames=names)
    np.testing.assert_array_equal(f(values, ids, mask), [-1, 1, 0, 0, 0])
    out = f(values, ids, mask, scale='std', ddof=0, singleton='raw')
    np.testing.assert_allclose(out, [-1, 1, 5, 0, 0], rtol=2e-6)
    out = f(values, ids, mask, scale='std', num_ids=2)
    half = np.sqrt(0.5)
    np.testing.assert_allclose(out, [-half, half, 0, 0, 0], rtol=2e-6)

  @chex.variants(with_jit=True, without_jit=True)
  def test_estimators_by_hand(self):
    # Returns 1, 0, 0, 1 of one task: mean 1/2, sample std sqrt(1/3).
    # Others' mean for a success 1/3, for a failure 2/3.
    returns = jnp.array([1.0, 0.0, 0.0, 1.0])
    std = np.sqrt(1 / 3)
    sign = np.array([1, -1, -1, 1])
    args = (returns, ONE_GROUP, ALL)
    np.testing.assert_allclose(
      self.variant(advantages.grpo)(*args), sign * 0.5 / std, rtol=1e-5
    )
    np.testing.assert_allclose(
      self.variant(advantages.rloo)(*args), sign * 2 / 3, rtol=1e-6
    )
    out = self.variant(advantages.reinforce)(returns, ALL)
    np.testing.assert_array_equal(out, returns)
    f = self.variant(advantages.reinforce, static_argnames='baseline')
    out = f(returns, ALL, baseline='mean')
    np.testing.assert_array_equal(out, sign * 0.5)

  def test_baselines_by_hand(self):
    returns = jnp.array([1.0, 0.0, 0.0, 0.5])
    # Lengths 1, 1, 1, 5: baseline (1 + 5*.5)/8 = 0.4375.
    out = advantages.opo(returns, jnp.array([1, 1, 1, 5]), ONE_GROUP, ALL)
    np.testing.assert_allclose(out, np.asarray(returns) - 0.4375, rtol=1e-6)
    # Mean 0.375: (1 - .375)/.375 = 5/3, -1, -1, 1/3.
    out = advantages.maxrl(returns, ONE_GROUP, ALL)
    np.testing.assert_allclose(out, [5 / 3, -1, -1, 1 / 3], rtol=1e-5)
    # The best leads the second best by .5; a tie for the best teaches nothing.
    out = advantages.pass_at_k(returns, ONE_GROUP, ALL)
    np.testing.assert_array_equal(out, [0.5, 0, 0, 0])
    tie = jnp.array([1.0, 0.0, 0.0, 1.0])
    np.testing.assert_array_equal(
      advantages.pass_at_k(tie, ONE_GROUP, ALL), np.zeros(4)
    )
    greedy = jnp.full(4, 0.5)
    out = advantages.remax(returns, greedy, ALL)
    np.testing.assert_array_equal(out, [0.5, -0.5, -0.5, 0])

  def test_near_constant_groups_are_exactly_zero(self):
    def column(f):
      # One turn each, all in one state of one task.
      return lambda v, i, m: f(v[:, None], i, i[:, None], m[:, None])[:, 0]

    functions = (
      advantages.group_center,
      advantages.grpo,
      advantages.rloo,
      advantages.maxrl,
      advantages.pass_at_k,
      lambda v, i, m: advantages.opo(v, 1 + jnp.arange(32.0), i, m),
      lambda v, i, m: advantages.whiten(v, m),
      column(advantages.anchor_advantages),
      column(advantages.gigpo),
      lambda v, i, m: advantages.hgpo(
        v[:, None], i, i[:, None, None], m[:, None]
      )[:, 0],
    )
    program = jax.jit(lambda *args: [f(*args) for f in functions])
    for size in range(2, 33):
      values = np.zeros(32, np.float32)
      mask = np.arange(32) < size
      ids = np.zeros(32, np.int32)
      for k in range(0, 60, 7):
        values[:size] = np.float32(10) * np.float32(0.95) ** np.float32(k)
        assert not np.any(program(values, ids, mask)), (size, k)
      # The same number, reached by different roundings. Which of them is the
      # largest does matter to pass@k: it compares, and divides by nothing.
      values[:size] *= 1 + 2e-7 * np.arange(size) / size
      near = program(values, ids, mask)
      del near[functions.index(advantages.pass_at_k)]
      assert not np.any(near), size

  def test_floor_is_relative(self):
    # Spread 1e-3 around 1000 is noise in float32; the same spread at 0 is not.
    ids, mask = jnp.zeros(2, jnp.int32), jnp.ones(2, bool)
    noise = jnp.array([1000.0, 1000.001])
    assert not np.any(advantages.group_center(noise, ids, mask, scale='std'))
    out = advantages.group_center(jnp.array([0.0, 0.001]), ids, mask)
    np.testing.assert_allclose(out, [-0.0005, 0.0005], rtol=1e-5)

  def test_oracle_over_random_cases(self):
    fs = {
      (scale, ddof, raw): _center(
        scale=scale, ddof=ddof, singleton='raw' if raw else 'zero'
      )
      for scale, ddof, raw in [
        ('none', 1, False),
        ('std', 1, True),
        ('std', 0, False),
      ]
    }
    rloo = jax.jit(advantages.rloo)
    for seed in range(200):
      t = oracles.random_turns(seed)
      values = oracles.outcomes(t).astype(np.float32)
      keys = oracles.trajectory_keys(t)
      args = (values, t['group_ids'], t['turn_mask'].any(-1))
      for (scale, ddof, raw), f in fs.items():
        want = oracles.center(values, keys, scale, ddof, raw=raw)
        np.testing.assert_allclose(f(*args), want, rtol=1e-4, atol=1e-5)
      sizes = {k: keys.count(k) for k in keys}
      factor = [
        0 if k is None else sizes[k] / max(sizes[k] - 1, 1) for k in keys
      ]
      want = oracles.center(values, keys) * factor
      np.testing.assert_allclose(rloo(*args), want, rtol=1e-5, atol=1e-5)

  @parameterized.parameters(range(4))
  def test_permutation_and_bounds_change_nothing(self, seed):
    t = oracles.random_turns(seed)
    args = (
      oracles.outcomes(t).astype(np.float32),
      t['group_ids'],
      t['turn_mask'].any(-1),
    )
    want = advantages.grpo(*args)
    for bound in (oracles.B, 9, 64):
      got = advantages.grpo(*args, num_groups=bound)
      np.testing.assert_array_equal(got, want)
    order = np.random.default_rng(seed).permutation(oracles.B)
    got = advantages.grpo(*(x[order] for x in args))
    np.testing.assert_allclose(got, want[order], rtol=1e-5, atol=1e-6)
    relabelled = np.where(args[1] >= 0, 1000 + 7 * args[1], -1)
    got = advantages.grpo(args[0], relabelled, args[2])
    np.testing.assert_array_equal(got, want)

  def test_id_beyond_its_bound_is_loud(self):
    out = advantages.group_center(
      jnp.array([1.0, 2.0, 3.0]),
      jnp.array([0, 0, 5]),
      jnp.ones(3, bool),
      num_ids=2,
    )
    np.testing.assert_array_equal(np.isnan(out), [False, False, True])

  def test_unknown_options_are_named(self):
    args = (jnp.zeros(2), jnp.zeros(2, jnp.int32), jnp.ones(2, bool))
    with pytest.raises(ValueError, match="scale='sd'; allowed: none, std"):
      advantages.group_center(*args, scale='sd')
    with pytest.raises(ValueError, match='singleton'):
      advantages.group_center(*args, singleton='skip')
