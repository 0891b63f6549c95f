"""Locks rotary angles by hand."""

import jax.numpy as jnp
import numpy as np

from agentrl_jax.models import rope


def draw(seed, *shape):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_rotary_angles_by_hand():
  # head_dim 4, base 100: rates 1 and 1/10.
  cos, sin = rope.tables(jnp.array([[0, 2]]), 4, 100.0)
  np.testing.assert_allclose(cos[0], np.cos([[0, 0], [2, 0.2]]), rtol=1e-6)
  np.testing.assert_allclose(sin[0], np.sin([[0, 0], [2, 0.2]]), rtol=1e-6)
  x = jnp.array([[[[1.0, 0, 0, 0]], [[0, 1.0, 0, 0]]]])  # pairs (0, 2), (1, 3)
  turned = rope.rotate(x, cos, sin)
  np.testing.assert_allclose(turned[0, 0, 0], [1, 0, 0, 0], atol=1e-7)
  expected = [0, np.cos(0.2), 0, np.sin(0.2)]
  np.testing.assert_allclose(turned[0, 1, 0], expected, rtol=1e-6)


def test_rotary_scores_depend_on_distance_only():
  q, k = draw(0, 1, 1, 1, 8), draw(1, 1, 1, 1, 8)

  def score(at_q, at_k):
    turned = [
      rope.rotate(x, *rope.tables(jnp.array([[at]]), 8, 1e4))
      for x, at in ((q, at_q), (k, at_k))
    ]
    return float(jnp.vdot(*turned))

  np.testing.assert_allclose(score(7, 3), score(104, 100), rtol=1e-4)
  assert abs(score(7, 3) - score(7, 4)) > 1e-3
