"""Locks the pieces of a block against loops in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.models import layers


def attend(q, k, v, visible):
  """[R, T, H, C] by loops; visible[r, t, s] says who sees whom."""
  rows, length, heads, dim = q.shape
  group = heads // k.shape[2]
  out = np.zeros(q.shape)
  for r, t, h in np.ndindex(rows, length, heads):
    seen = np.flatnonzero(visible[r, t])
    scores = k[r, seen, h // group] @ q[r, t, h] / np.sqrt(dim)
    weights = np.exp(scores - scores.max())
    out[r, t, h] = weights / weights.sum() @ v[r, seen, h // group]
  return out


def draw(seed, *shape):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_rms_norm_by_hand():
  # [3, 4]: mean square 12.5, epsilon 12.5: divided by 5; scaled by 2 and 10.
  out = layers.rms_norm(
    jnp.array([[3.0, 4.0]]), jnp.array([2.0, 10.0]), epsilon=12.5
  )
  np.testing.assert_allclose(out, [[1.2, 8.0]], rtol=1e-6)


def test_rms_norm_is_taken_in_float32():
  x = jnp.full((1, 4), 300.0, jnp.float16)  # its square overflows float16
  out = layers.rms_norm(x, jnp.ones(4), epsilon=1e-6)
  assert out.dtype == jnp.float16
  np.testing.assert_allclose(out, 1.0, rtol=1e-3)


def test_rotary_angles_by_hand():
  # head_dim 4, base 100: rates 1 and 1/10.
  cos, sin = layers.rope_tables(jnp.array([[0, 2]]), 4, 100.0)
  np.testing.assert_allclose(cos[0], np.cos([[0, 0], [2, 0.2]]), rtol=1e-6)
  np.testing.assert_allclose(sin[0], np.sin([[0, 0], [2, 0.2]]), rtol=1e-6)
  x = jnp.array([[[[1.0, 0, 0, 0]], [[0, 1.0, 0, 0]]]])  # pairs (0, 2), (1, 3)
  turned = layers.rotate(x, cos, sin)
  np.testing.assert_allclose(turned[0, 0, 0], [1, 0, 0, 0], atol=1e-7)
  expected = [0, np.cos(0.2), 0, np.sin(0.2)]
  np.testing.assert_allclose(turned[0, 1, 0], expected, rtol=1e-6)


def test_rotary_scores_depend_on_distance_only():
  q, k = draw(0, 1, 1, 1, 8), draw(1, 1, 1, 1, 8)

  def score(at_q, at_k):
    turned = [
      layers.rotate(x, *layers.rope_tables(jnp.array([[at]]), 8, 1e4))
      for x, at in ((q, at_q), (k, at_k))
    ]
    return float(jnp.vdot(*turned))

  np.testing.assert_allclose(score(7, 3), score(104, 100), rtol=1e-4)
  assert abs(score(7, 3) - score(7, 4)) > 1e-3


# One block of 10, and two blocks of 128 that a segment crosses.
@pytest.mark.parametrize('length', [10, 256])
@pytest.mark.parametrize('kv_heads', [1, 2, 4])
def test_causal_attention_equals_loops(length, kv_heads):
  q = draw(0, 2, length, 4, 6)
  k, v = draw(1, 2, length, kv_heads, 6), draw(2, 2, length, kv_heads, 6)
  places = np.arange(length)
  segments = np.stack([1 + (places >= 4) + (places >= length - 3), places // 7])
  visible = (segments[:, :, None] == segments[:, None]) & np.tri(
    length, dtype=bool
  )
  out = jax.jit(layers.causal_attention)(
    q, k, v, layers.causal_biases(jnp.array(segments, jnp.int32))
  )
  np.testing.assert_allclose(out, attend(q, k, v, visible), atol=2e-6)


@pytest.mark.parametrize('kv_heads', [1, 2, 4])
def test_cached_attention_equals_loops(kv_heads):
  rows, length, columns = 3, 2, 9
  q = draw(0, rows, length, 4, 6)
  k, v = (
    draw(1, rows, columns, kv_heads, 6),
    draw(2, rows, columns, kv_heads, 6),
  )
  positions = np.array([[0, 1], [7, 8], [3, 4]])
  visible = np.arange(columns) <= positions[..., None]
  out = layers.cached_attention(
    q, k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3), jnp.array(positions)
  )
  np.testing.assert_allclose(out, attend(q, k, v, visible), atol=2e-6)


def test_swiglu_by_hand():
  layer = {
    'gate': jnp.array([[1.0, 0.0]]),
    'up': jnp.array([[3.0, 5.0]]),
    'down': jnp.array([[2.0], [7.0]]),
  }
  # x = 1: silu(1) * 3 * 2 + silu(0) * ... = 6 / (1 + e^-1)
  out = layers.swiglu(jnp.ones((1, 1)), layer)
  np.testing.assert_allclose(out, [[6 / (1 + np.exp(-1))]], rtol=1e-6)
