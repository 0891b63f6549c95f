"""Who sees whom: attention over packed rows, and over a cache."""

import functools

import jax
import jax.numpy as jnp

# Queries are processed in static blocks, each against the keys up to its end:
# the upper triangle of the score matrix is never computed.
_BLOCK = 128
_MASKED = -1e30  # finite: a fully masked row gives no NaN
_REACHES = 8  # programs that read a cache up to so many eighths


def causal_biases(
  segment_ids: jax.Array, window: int = 0
) -> tuple[jax.Array, ...]:
  """Returns what hides the future and other segments, a query block each.

  They are the same in every layer of a kind, so that they are made once.

  Args:
    segment_ids: [R, T] int32; a query sees keys of its own id only.
    window: a query sees that many tokens, itself included; 0 = all before it.

  Returns:
    For each block of Q queries that ends at E and sees keys from F on:
    [R, 1, 1, Q, E - F] float32. Without a window F is 0.
  """
  length = segment_ids.shape[1]
  block = _BLOCK if length % _BLOCK == 0 else length
  biases = []
  for start in range(0, length, block):
    end = start + block
    first = max(start - window + 1, 0) // block * block if window else 0
    same = segment_ids[:, start:end, None] == segment_ids[:, None, first:end]
    queries = jnp.arange(start, end)[:, None]
    keys = jnp.arange(first, end)[None, :]
    past = queries >= keys
    if window:
      past &= queries - keys < window
    biases.append(jnp.where(same & past[None], 0.0, _MASKED)[:, None, None])
  return tuple(biases)


def causal_attention(
  q: jax.Array, k: jax.Array, v: jax.Array, biases: tuple[jax.Array, ...]
) -> jax.Array:
  """Attends within segments, to the past and itself.

  Args:
    q: [R, T, H, C].
    k, v: [R, T, K, C].
    biases: as `causal_biases` gives them.

  Returns:
    [R, T, H, C].
  """
  rows, length, num_heads, head_dim = q.shape
  num_kv = k.shape[2]
  group = num_heads // num_kv
  q = (q * head_dim**-0.5).reshape(rows, length, num_kv, group, head_dim)
  q = q.transpose(0, 2, 3, 1, 4)
  k, v = k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3)
  outputs, start = [], 0
  for bias in biases:
    block, columns = bias.shape[-2:]
    end = start + block
    first = end - columns
    merged = (rows, num_kv, group * block)  # one matrix of queries a kv head
    part = q[:, :, :, start:end].reshape(*merged, head_dim)
    scores = jnp.einsum('rkmc,rksc->rkms', part, k[:, :, first:end])
    scores = scores.astype(jnp.float32).reshape(
      rows, num_kv, group, block, columns
    )
    weights = jax.nn.softmax(scores + bias, axis=-1).astype(v.dtype)
    weights = weights.reshape(*merged, columns)
    out = jnp.einsum('rkms,rksc->rkmc', weights, v[:, :, first:end])
    outputs.append(out.reshape(rows, num_kv, group, block, head_dim))
    start = end
  out = jnp.concatenate(outputs, axis=3).transpose(0, 3, 1, 2, 4)
  return out.reshape(rows, length, num_heads, head_dim)


def cached_attention(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  positions: jax.Array,
  window: int = 0,
) -> jax.Array:
  """Attends to cache columns up to each query's position.

  Args:
    q: [R, T, H, C], T new tokens a row.
    k: [R, K, S'/Q, C, Q], blocks of columns; column s holds position s.
    v: [R, K, S, C], S <= S'.
    positions: [R, T] int32.
    window: as in `causal_biases`; columns before it are kept and not seen.

  Returns:
    [R, T, H, C].
  """
  rows, length, num_heads, head_dim = q.shape
  num_kv, columns = v.shape[1:3]
  q = q.reshape(rows, length, num_kv, num_heads // num_kv, head_dim)
  q = (q * head_dim**-0.5).transpose(0, 2, 1, 3, 4)
  q = q.reshape(rows, num_kv, -1, head_dim)
  q = jnp.broadcast_to(q[:, :, None], (*k.shape[:3], *q.shape[2:]))
  scores = jnp.einsum('rkbmc,rkbcs->rkbms', q, k).transpose(0, 1, 3, 2, 4)
  scores = scores.reshape(*scores.shape[:3], -1)[..., :columns]
  places = jnp.arange(columns)[None, None]
  mask = places <= positions[..., None]  # [R, T, S]
  if window:
    mask &= places > positions[..., None] - window
  group = num_heads // num_kv
  mask = jnp.repeat(mask, group, axis=1)[:, None]
  scores = jnp.where(mask, scores.astype(jnp.float32), _MASKED)
  weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
  out = jnp.einsum('rkms,rksc->rkmc', weights, v)
  out = out.reshape(rows, num_kv, length, group, head_dim)
  return out.transpose(0, 2, 1, 3, 4).reshape(rows, length, num_heads, head_dim)


def within_reach(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  slots: jax.Array,
  positions: jax.Array,
  window: int = 0,
) -> jax.Array:
  """As `cached_attention` with some rows of a cache, of which no more is read
  than the last query sees.

  Args:
    q, positions, window: as in `cached_attention`; a position >= S is idle.
    k: [N, K, S'/Q, C, Q].
    v: [N, K, S, C].
    slots: [R] int32, rows of the cache.
  """
  block, columns = k.shape[-1], v.shape[2]
  step = -(-k.shape[2] // _REACHES)
  widths = range(step, k.shape[2] + step, step)  # in blocks
  last = jnp.max(jnp.where(positions < columns, positions, 0))
  number = last // (step * block)

  def read(width, q, k, v):
    k, v = k[slots, :, :width], v[slots, :, : width * block]
    return cached_attention(q, k, v, positions, window)

  branches = [functools.partial(read, width) for width in widths]
  return jax.lax.switch(number, branches, q, k, v)
