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
    q, blocked(k, 4), v.transpose(0, 2, 1, 3), jnp.array(positions), window
  )
  np.testing.assert_allclose(out, attend(q, k, v, visible), atol=2e-6)


def blocked(k, size):
  """[R, S, K, C] as [R, K, S'/Q, C, Q]; columns that are added hold NaN."""
  rows, columns, heads, depth = k.shape
  k = np.pad(
    k, [(0, 0), (0, -columns % size), (0, 0), (0, 0)], constant_values=np.nan
  )
  k = k.reshape(rows, -1, size, heads, depth)
  return jnp.array(k.transpose(0, 3, 1, 4, 2))


@pytest.mark.parametrize('last, blocks', [(3, 1), (4, 2), (20, 6), (41, 11)])
def test_no_more_is_read_than_the_last_query_sees(last, blocks):
  """NaN in blocks beyond it would spoil 0 · NaN; an idle row reaches far."""
  columns = 42
  k, v = draw(1, 4, columns, 2, 6), draw(2, 4, columns, 2, 6)
  q = draw(0, 3, 2, 4, 6)
  slots = jnp.array([2, 0, 3])
  positions = np.array([[0, 1], [columns, columns], [last - 1, last]])
  visible = np.arange(columns) <= positions[..., None]
  held = v.transpose(0, 2, 1, 3).copy()
  step = 2  # blocks: of 11, with at most 8 reaches
  held[:, :, -(-blocks // step) * step * 4 :] = np.nan
  out = attention.within_reach(
    q, blocked(k, 4), jnp.array(held), slots, jnp.array(positions)
  )
  expected = attend(q, k[slots], v[slots], visible)
  real = np.array([0, 2])
  np.testing.assert_allclose(out[real], expected[real], atol=2e-6)
