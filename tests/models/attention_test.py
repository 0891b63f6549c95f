"""Locks attention against loops in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.models import attention


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


# One block of 10, and blocks of 128 that a segment crosses; with a window of
# 100 the last of three blocks leaves the keys of the first out.
@pytest.mark.parametrize(
  'length, kv_heads, window',
  [
    (10, 1, 0),
    (10, 2, 3),
    (10, 4, 1),
    (256, 1, 0),
    (256, 2, 0),
    (256, 4, 200),
    (384, 2, 100),
    (384, 1, 129),
  ],
)
def test_causal_attention_equals_loops(length, kv_heads, window):
  q = draw(0, 2, length, 4, 6)
  k, v = draw(1, 2, length, kv_heads, 6), draw(2, 2, length, kv_heads, 6)
  places = np.arange(length)
  segments = np.stack([1 + (places >= 4) + (places >= length - 3), places // 7])
  visible = (segments[:, :, None] == segments[:, None]) & np.tri(
    length, dtype=bool
  )
  if window:
    visible &= places[:, None] - places < window
  out = jax.jit(attention.causal_attention)(
    q, k, v, attention.causal_biases(jnp.array(segments, jnp.int32), window)
  )
  np.testing.assert_allclose(out, attend(q, k, v, visible), atol=2e-6)


def test_a_window_leaves_keys_out():
  biases = attention.causal_biases(jnp.ones((1, 384), jnp.int32), 100)
  assert [bias.shape[-2:] for bias in biases] == [
    (128, n) for n in (128, 256, 256)
  ]


@pytest.mark.parametrize('kv_heads, window', [(1, 0), (2, 0), (4, 0), (2, 3)])
def test_cached_attention_equals_loops(kv_heads, window):
  rows, length, columns = 3, 2, 9
  q = draw(0, rows, length, 4, 6)
  k, v = (
    draw(1, rows, columns, kv_heads, 6),
    draw(2, rows, columns, kv_heads, 6),
  )
  positions = np.array([[0, 1], [7, 8], [3, 4]])
  visible = np.arange(columns) <= positions[..., None]
  if window:
    visible &= np.arange(columns) > positions[..., None] - window
  out = attention.cached_attention(
    q,
    k.transpose(0, 2, 3, 1),
    v.transpose(0, 2, 1, 3),
    jnp.array(positions),
    window,
  )
  np.testing.assert_allclose(out, attend(q, k, v, visible), atol=2e-6)
