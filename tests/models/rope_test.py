"""Locks rotary angles by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.models import rope
from agentrl_jax.models.config import RopeScaling


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


# head_dim 8, base 10^4: radians a position, before any scaling.
RATES = np.array([1.0, 0.1, 0.01, 0.001])


def rates(*scaling, **more):
  return rope.scaled_rates(8, 1e4, RopeScaling(*scaling, **more))


def test_linear_by_hand():
  np.testing.assert_allclose(rates('linear', 4.0), RATES / 4, rtol=1e-6)


def test_llama3_by_hand():
  # Within 64 tokens the pairs turn 10.2, 1.02, 0.1 and 0.01 times: one is kept
  # (above 4), two are stretched (below 1), and of the second
  # (64 * 0.1 / 2π - 1) / 3 is kept.
  kept = (6.4 / (2 * np.pi) - 1) / 3
  second = (1 - kept) * 0.1 / 8 + kept * 0.1
  np.testing.assert_allclose(
    rates('llama3', 8.0, 64), [1.0, second, 0.01 / 8, 0.001 / 8], rtol=1e-6
  )


def test_yarn_by_hand():
  # A pair i turns 32 / (2π 10^i) times within 32 tokens: once at i = 0.707, 32
  # times at i = -0.8. Rounded outwards the border is 0 to 1.
  expected = [1.0, 0.1 / 4, 0.01 / 4, 0.001 / 4]
  np.testing.assert_allclose(rates('yarn', 4.0, 32), expected, rtol=1e-6)
  # Not rounded, from 2 turns at i = 0.406 to 1/4 of one at i = 1.309: of the
  # pair 1, (1 - 0.406) / (1.309 - 0.406) = 0.658 is stretched.
  borders = np.log10(32 / (2 * np.pi * np.array([2.0, 0.25])))
  part = (1 - borders[0]) / (borders[1] - borders[0])
  assert abs(part - 0.658) < 1e-3
  mixed = rates('yarn', 4.0, 32, beta_fast=2.0, beta_slow=0.25, truncate=False)
  expected[1] = part * 0.1 / 4 + (1 - part) * 0.1
  np.testing.assert_allclose(mixed, expected, rtol=1e-5)


def test_yarn_scales_the_tables():
  factor = 0.1 * np.log(4) + 1
  for scaling, expected in (
    (RopeScaling('yarn', 4.0, 32), factor),
    (RopeScaling('yarn', 4.0, 32, attention_factor=1.5), 1.5),
    (
      RopeScaling('yarn', 4.0, 32, mscale=0.5, mscale_all_dim=1.0),
      (0.05 * np.log(4) + 1) / factor,
    ),
    (RopeScaling('linear', 4.0), 1.0),
    (None, 1.0),
  ):
    cos, sin = rope.tables(jnp.array([[3]]), 8, 1e4, scaling)
    np.testing.assert_allclose(cos**2 + sin**2, expected**2, rtol=1e-5)


def test_a_kind_that_is_not_known_is_named():
  with pytest.raises(ValueError, match="'dynamic' is not one of.*'llama3'"):
    rates('dynamic', 2.0)
