"""Locks discounting, GAE and Monte-Carlo values against arithmetic by hand."""

import advantage_oracles as oracles
import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from agentrl_jax import advantages


class ReturnsTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_discounted_returns_by_hand(self):
    # 2; 1 + .5*2 = 2; 4 + .5*2 = 5; the masked 9 neither earns nor discounts:
    # 1; 2 + .5*1 = 2.5.
    rewards = jnp.array([[4.0, 1.0, 2.0], [2.0, 9.0, 1.0]])
    mask = jnp.array([[True, True, True], [True, False, True]])
    f = self.variant(advantages.discounted_returns, static_argnames='gamma')
    out = f(rewards, mask, gamma=0.5)
    np.testing.assert_array_equal(out, [[5, 2, 2], [2.5, 0, 1]])

  @chex.variants(with_jit=True, without_jit=True)
  def test_gae_by_hand(self):
    # gamma = .5, lam = .5, bootstrap 2, the middle position masked.
    # last: delta = 1 + .5*2 - 3 = -1, A = -1.
    # first: next value is 3 (skipping the masked one): delta = 0 + .5*3 - 1
    # = .5, A = .5 + .25*(-1) = .25.
    f = self.variant(advantages.gae, static_argnames=('gamma', 'lam'))
    out, returns = f(
      jnp.array([[0.0, 100.0, 1.0]]),
      jnp.array([[1.0, 100.0, 3.0]]),
      jnp.array([[True, False, True]]),
      gamma=0.5,
      lam=0.5,
      bootstrap_values=jnp.array([2.0]),
    )
    np.testing.assert_array_equal(out, [[0.25, 0, -1]])
    np.testing.assert_array_equal(returns, [[1.25, 0, 2]])

  @chex.variants(with_jit=True, without_jit=True)
  def test_vineppo_by_hand(self):
    # V = mean of two continuations: 0.5, 1.0, then one continuation taken: 0.
    # A = 0 + 1 - .5, 0 + 0 - 1, 2 + 0 - 0. Below, the second state has no
    # value: its turn shares 0 + 0 + .5 - 1 with the first; then 2 - .5. Masked
    # turns neither earn nor have a value.
    nan = np.nan
    continuations = jnp.array(
      [
        [[0.0, 1.0], [1.0, 1.0], [9.0, 9.0], [0.0, nan]],
        [[1.0, 1.0], [nan, nan], [9.0, 9.0], [0.5, 0.5]],
      ]
    )
    rewards = jnp.array([[0.0, 0.0, 9.0, 2.0]] * 2)
    mask = jnp.array([[True, True, False, True]] * 2)
    out = self.variant(advantages.vineppo)(rewards, continuations, mask)
    np.testing.assert_array_equal(out, [[0.5, -1, 0, 2], [-0.5, -0.5, 0, 1.5]])

  def test_oracle_over_random_cases(self):
    f = jax.jit(lambda r, m: advantages.discounted_returns(r, m, gamma=0.9))
    g = jax.jit(
      lambda r, v, m, b: advantages.gae(
        r, v, m, gamma=0.9, lam=0.7, bootstrap_values=b
      )
    )
    for seed in range(200):
      t = oracles.random_turns(seed)
      rewards, mask = t['turn_rewards'], t['turn_mask']
      want = oracles.discounted(rewards, mask, 0.9)
      np.testing.assert_allclose(f(rewards, mask), want, rtol=1e-5, atol=1e-5)
      rng = np.random.default_rng(seed)
      values = np.where(mask, rng.normal(size=mask.shape), np.nan)
      values = values.astype(np.float32)
      last = rng.normal(size=mask.shape[0]).astype(np.float32)
      want = oracles.gae(rewards, values, mask, 0.9, 0.7, last)
      got, returns = g(rewards, values, mask, last)
      np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
      want = np.where(mask, want + np.where(mask, values, 0), 0)
      np.testing.assert_allclose(returns, want, rtol=1e-5, atol=1e-5)

  def test_only_the_first_state_valued_is_a_measured_baseline(self):
    # Rewards 1, 0, 2 at gamma .5: 1 + 2/4 - .75 = .75, for all three turns.
    # Valued from the second state on: 0 before, then 0 + .5*2 - .75 = .25.
    nan = np.nan
    values = jnp.array([[0.75, nan, nan], [nan, 0.75, nan]])[..., None]
    rewards, mask = jnp.array([[1.0, 0.0, 2.0]] * 2), jnp.ones((2, 3), bool)
    out = advantages.vineppo(rewards, values, mask, gamma=0.5)
    np.testing.assert_array_equal(out, [[0.75] * 3, [0, 0.25, 0.25]])

  def test_vineppo_oracle_over_random_cases(self):
    f = jax.jit(lambda r, c, m: advantages.vineppo(r, c, m, gamma=0.9))
    for seed in range(200):
      t = oracles.random_turns(seed)
      rewards, mask = t['turn_rewards'], t['turn_mask']
      rng = np.random.default_rng(seed)
      continuations = rng.normal(size=(*mask.shape, 3)).astype(np.float32)
      continuations[rng.random(continuations.shape) < 0.6] = np.nan
      want = oracles.vineppo(rewards, continuations, mask, 0.9)
      got = f(rewards, continuations, mask)
      np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)

  @parameterized.parameters(0, 1, 2)
  def test_gae_reduces_to_returns_minus_values(self, seed):
    t = oracles.random_turns(seed)
    rewards, mask = t['turn_rewards'], t['turn_mask']
    values = np.random.default_rng(seed).normal(size=mask.shape)
    values = values.astype(np.float32)
    got, _ = advantages.gae(rewards, values, mask, gamma=0.9, lam=1.0)
    want = advantages.discounted_returns(rewards, mask, gamma=0.9)
    want = want - np.where(mask, values, 0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
