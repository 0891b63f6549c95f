"""A decoder as pure functions: tokens to hidden states, with or without cache.

One forward serves training (stacked layers, scanned), prefill, extension and
decoding (layers unstacked by `params.unstack`, a cache argument).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from agentrl_jax.models import attention, heads, layers, rope
from agentrl_jax.models import cache as cache_lib
from agentrl_jax.models.config import ModelConfig

# config.remat -> what the forward pass of a block keeps for the backward one.
REMATS = {
  'none': jax.checkpoint_policies.everything_saveable,
  'block': jax.checkpoint_policies.nothing_saveable,
  'dots': jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


class Output(NamedTuple):
  """hidden [R, T, D]; cache (None without one); aux: extra losses by name."""

  hidden: jax.Array
  cache: cache_lib.Cache | None
  aux: dict[str, jax.Array]


def hidden(
  config: ModelConfig,
  params: dict,
  tokens: jax.Array,
  *,
  positions: jax.Array | None = None,
  segment_ids: jax.Array | None = None,
  cache: cache_lib.Cache | None = None,
  slots: jax.Array | None = None,
  routing: Any = None,
) -> Output:
  """Runs the decoder up to its final norm.

  Args:
    config: the shape.
    params: as `params.init`; with a cache, as `params.unstack` gives them.
    tokens: [R, T] int32.
    positions: [R, T] int32 within the segment; default 0..T-1. With a cache, a
      position >= its length marks an idle token: nothing is written, its
      output is meaningless.
    segment_ids: [R, T] int32, only without a cache; default one segment.
    cache: keys and values of the past; columns are positions.
    slots: [R] int32 rows of the cache, all different; default 0..R-1.
    routing: expert choices to replay; unused by dense decoders.

  Returns:
    Output; with a cache, its hidden states see the cache after writing.
  """
  if positions is None:
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
  dtype = jnp.dtype(config.dtype)
  x = params['embed']['table'][tokens].astype(dtype)
  tables = rope.tables(positions, config.head_dim, config.rope_theta)
  if cache is None:
    if segment_ids is None:
      segment_ids = jnp.ones_like(tokens)
    x = _scan(config, params['layers'], x, tables, segment_ids)
    new_cache = None
  else:
    x, new_cache = _cached(
      config, params['layers'], x, tables, cache, slots, positions
    )
  x = layers.rms_norm(x, params['final_norm'], config.norm_epsilon)
  return Output(x, new_cache, {})


def forward(
  config: ModelConfig, params: dict, tokens: jax.Array, **kwargs
) -> tuple[jax.Array, cache_lib.Cache | None]:
  """Returns (logits [R, T, V] float32, cache); arguments as `hidden`."""
  output = hidden(config, params, tokens, **kwargs)
  return heads.logits(config, params, output.hidden), output.cache


def _qkv(config, layer, x, tables):
  y = layers.rms_norm(x, layer['attention_norm'], config.norm_epsilon)
  q, k, v = (
    jnp.einsum('rtd,dhc->rthc', y, layer[name].astype(y.dtype))
    for name in ('q', 'k', 'v')
  )
  if config.qk_norm:
    q = layers.rms_norm(q, layer['q_norm'], config.norm_epsilon)
    k = layers.rms_norm(k, layer['k_norm'], config.norm_epsilon)
  return rope.rotate(q, *tables), rope.rotate(k, *tables), v


def _rest(config, layer, x, attended):
  x = x + jnp.einsum('rthc,hcd->rtd', attended, layer['o'].astype(x.dtype))
  y = layers.rms_norm(x, layer['mlp_norm'], config.norm_epsilon)
  return x + layers.swiglu(y, layer)


def _scan(config, stacked, x, tables, segment_ids):
  biases = attention.causal_biases(segment_ids)

  def block(x, layer):
    q, k, v = _qkv(config, layer, x, tables)
    attended = attention.causal_attention(q, k, v, biases)
    return _rest(config, layer, x, attended), None

  if config.remat != 'none':
    policy = REMATS[config.remat]
    block = jax.checkpoint(block, prevent_cse=False, policy=policy)
  return jax.lax.scan(block, x, stacked, unroll=config.scan_unroll)[0]


def _cached(config, unstacked, x, tables, cache, slots, positions):
  keys, values = [], []
  whole = slots is None
  if whole:
    slots = jnp.arange(x.shape[0])
  for layer, k_cache, v_cache in zip(
    unstacked, cache.keys, cache.values, strict=True
  ):
    q, k, v = _qkv(config, layer, x, tables)
    k_cache = cache_lib.write_keys(k_cache, k, slots, positions)
    v_cache = cache_lib.write_values(v_cache, v, slots, positions)
    k_rows, v_rows = (
      (k_cache, v_cache) if whole else (k_cache[slots], v_cache[slots])
    )
    attended = attention.cached_attention(q, k_rows, v_rows, positions)
    x = _rest(config, layer, x, attended)
    keys.append(k_cache)
    values.append(v_cache)
  return x, cache_lib.Cache(keys=tuple(keys), values=tuple(values))
