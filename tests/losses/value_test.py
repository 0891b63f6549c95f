"""Locks the value loss, clipped or not."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax import losses


class ValueTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_by_hand(self):
    # V 3, old 1, R 2, clip .5: unclipped 1, clipped to 1.5: .25 -> max 1.
    # V 3, old 1, R 4: 1, clipped: 6.25 -> 6.25, without gradient.
    f = self.variant(losses.value_loss, static_argnames='clip')
    values, old = jnp.array([[3.0, 3.0, 3.0]]), jnp.ones((1, 3))
    target = jnp.array([[2.0, 4.0, jnp.nan]])
    mask = jnp.array([[True, True, False]])
    np.testing.assert_allclose(f(values, old, target, mask), [[1, 1, 0]])
    out = f(values, old, target, mask, clip=0.5)
    np.testing.assert_allclose(out, [[1, 6.25, 0]])
    got = jax.grad(lambda v: f(v, old, target, mask, clip=0.5).sum())(values)
    np.testing.assert_allclose(got, [[2, 0, 0]])

  def test_targets_and_old_values_are_constants(self):
    f = losses.value_loss
    args = jnp.array([[3.0]]), jnp.array([[2.9]]), jnp.array([[1.0]])
    mask = jnp.ones((1, 1), bool)
    for clip in (None, 0.5):
      got = jax.grad(
        lambda *x, clip=clip: f(*x, mask, clip=clip).sum(), (1, 2)
      )(*args)
      np.testing.assert_array_equal(got, np.zeros((2, 1, 1)))

  def test_oracle_over_random_cases(self):
    f = jax.jit(
      lambda *x: (losses.value_loss(*x), losses.value_loss(*x, clip=0.3))
    )
    for seed in range(200):
      rng = np.random.default_rng(seed)
      values, old, target = rng.normal(size=(3, 4, 5)).astype(np.float32)
      mask = rng.random((4, 5)) < 0.7
      target = np.where(mask, target, np.nan)
      plain = np.where(mask, (np.float64(values) - target) ** 2, 0)
      bounded = np.clip(np.float64(values), old - 0.3, old + 0.3)
      clipped = np.where(mask, np.maximum(plain, (bounded - target) ** 2), 0)
      got = f(values, old, target, mask)
      np.testing.assert_allclose(got, [plain, clipped], rtol=1e-5, atol=1e-6)
