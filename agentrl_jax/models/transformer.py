"""A decoder as pure functions: tokens to hidden states, with or without cache.

One forward serves training (stacked layers, scanned), prefill, extension and
decoding (layers unstacked by `params.unstack`, a cache argument).
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from agentrl_jax import sharding
from agentrl_jax.models import (
  attention,
  experts,
  fused,
  heads,
  layers,
  lora,
  products,
  rope,
)
from agentrl_jax.models import cache as cache_lib
from agentrl_jax.models import policy as policy_lib
from agentrl_jax.models.config import ModelConfig

# config.remat -> what the forward pass of a block keeps for the backward one.
REMATS = {
  'none': jax.checkpoint_policies.everything_saveable,
  'block': jax.checkpoint_policies.nothing_saveable,
  'dots': jax.checkpoint_policies.save_from_both_policies(
    jax.checkpoint_policies.save_only_these_names(products.NAME),
    jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
  ),
}


class Output(NamedTuple):
  """hidden [R, T, D]; cache (None without one); aux: what experts tell.

  `aux` is {} with a cache or without experts. Else 'balance' [] float32, the
  load-balance loss, a mean over layers; 'load' [L, E] float32, see `moe.load`;
  'kept' [] float32, share of replayed choices that the router would repeat;
  'routes' [R, T, L, k] int32. Tokens of segment 0 do not count.
  """

  hidden: jax.Array
  cache: cache_lib.Cache | None
  aux: dict[str, jax.Array]


def hidden(
  config: ModelConfig | policy_lib.Policy,
  params: dict,
  tokens: jax.Array,
  *,
  positions: jax.Array | None = None,
  segment_ids: jax.Array | None = None,
  cache: cache_lib.Cache | None = None,
  slots: jax.Array | None = None,
  routing: Any = None,
) -> Output:
  """Runs the decoder up to its final norm, or a foreign model.

  Args:
    config: the shape, or a `Policy`.
    params: as `params.init`; with a cache, as `params.unstack` gives them.
    tokens: [R, T] int32.
    positions: [R, T] int32 within the segment; default 0..T-1. With a cache, a
      position >= its length marks an idle token: nothing is written, its
      output is meaningless.
    segment_ids: [R, T] int32, only without a cache; default one segment.
    cache: keys and values of the past; columns are positions.
    slots: [R] int32 rows of the cache, all different; default 0..R-1.
    routing: [R, T, L, k] integers, expert choices to replay instead of the
      router's, -1 = choose now; only without a cache, None = choose all.

  Returns:
    Output; with a cache, its hidden states see the cache after writing.

  Raises:
    ValueError: `routing` with a cache, without experts or of another shape.
  """
  if positions is None:
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
  if isinstance(config, policy_lib.Policy):
    context = dict(segment_ids=segment_ids, cache=cache, slots=slots)
    given = dict(positions=positions, **context)
    return Output(*policy_lib.hidden(config, params, tokens, **given), {})
  dtype = jnp.dtype(config.dtype)
  x = params['embed']['table'][tokens].astype(dtype)
  if config.scale_embeddings:  # √D is rounded to the dtype first, as published
    x *= jnp.asarray(math.sqrt(config.d_model), dtype)
  kinds = _kinds(config, positions, cache)
  _check_routing(config, tokens, cache, routing)
  if cache is None:
    if segment_ids is None:
      segment_ids = jnp.ones_like(tokens)
    x = sharding.by_rows(x)
    x, aux = _scan(config, params['layers'], x, kinds, segment_ids, routing)
    new_cache = None
  else:
    x, new_cache = _cached(
      config, params['layers'], x, kinds, cache, slots, positions
    )
    aux = {}
  x = _norm(config, x, params['final_norm'])
  return Output(x, new_cache, aux)


def forward(
  config: ModelConfig, params: dict, tokens: jax.Array, **kwargs
) -> tuple[jax.Array, cache_lib.Cache | None]:
  """Returns (logits [R, T, V] float32, cache); arguments as `hidden`."""
  output = hidden(config, params, tokens, **kwargs)
  return heads.logits(config, params, output.hidden), output.cache


def _check_routing(config, tokens, cache, routing):
  shape = (*tokens.shape, config.num_layers, config.experts_per_token)
  if routing is None or (
    config.num_experts and cache is None and routing.shape == shape
  ):
    return
  raise ValueError(
    f'routing {routing.shape}: choices are replayed as [R, T, L, k] = {shape} '
    f'by a decoder with experts (this has {config.num_experts}) and without a '
    'cache; give routes that a sampler of this model recorded, or None'
  )


class _Kind(NamedTuple):
  """What layers of one kind share: rotary tables, window (0 = none)."""

  tables: tuple[jax.Array, jax.Array]
  window: int


def _kinds(config, positions, cache) -> dict[bool, _Kind]:
  """Kinds of layers there are, by whether they slide."""

  def tables(*options):
    if cache is None:
      return rope.tables(positions, config.head_dim, *options)
    # Looked up: a decode loop then makes them once, not once a head and step.
    every = rope.tables(jnp.arange(cache.columns), config.head_dim, *options)
    return tuple(x.at[positions].get(mode='clip') for x in every)

  plain = tables(config.rope_theta, config.rope_scaling)
  local = plain
  if config.rope_local_theta and any(config.slides):
    local = tables(config.rope_local_theta)
  kinds = {False: _Kind(plain, 0), True: _Kind(local, config.sliding_window)}
  return {slides: kinds[slides] for slides in set(config.slides)}


def _norm(config, x, scale):
  if config.centered_norms:
    scale = scale.astype(jnp.float32) + 1.0
  return layers.rms_norm(x, scale, config.norm_epsilon)


def _qkv(config, layer, x):
  """Queries, keys and values [R, T, heads, C], not yet turned."""
  y = _norm(config, x, layer['attention_norm'])
  q, k, v = (
    lora.linear(config.lora, layer, name, y) for name in ('q', 'k', 'v')
  )
  if config.qkv_bias:
    q, k, v = (
      z + layer[name][None, None].astype(z.dtype)
      for z, name in ((q, 'q_bias'), (k, 'k_bias'), (v, 'v_bias'))
    )
  if config.qk_norm:
    q, k = _norm(config, q, layer['q_norm']), _norm(config, k, layer['k_norm'])
  if config.query_scalar:  # attention divides by the root of head_dim
    q *= math.sqrt(config.head_dim / config.query_scalar)
  return q, k, v


def _rest(config, layer, x, attended, real, replay=None):
  """What follows attention, and what its experts tell (None without)."""
  y = lora.linear(config.lora, layer, 'o', attended)
  if config.post_norms:
    y = _norm(config, y, layer['attention_post_norm'])
  x = x + y
  y = _norm(config, x, layer['mlp_norm'])
  told = None
  if config.num_experts:
    told = experts.block(config, layer, y, real, replay)
    y, told = told.out, told._replace(out=None)
  else:
    y = layers.gated_mlp(y, layer, config.lora, activation=config.activation)
  if config.post_norms:
    y = _norm(config, y, layer['mlp_post_norm'])
  return x + y, told


def _scan(config, stacked, x, kinds, segment_ids, routing):
  def attend(kind):
    among = fused.ATTENTIONS[config.attention](segment_ids, kind.window)

    def apply(q, k, v):
      q, k = rope.rotate(q, *kind.tables), rope.rotate(k, *kind.tables)
      return among(q, k, v)

    return apply

  by_kind = {slides: attend(kind) for slides, kind in kinds.items()}
  (only, *others) = by_kind.values()

  real = segment_ids > 0

  def block(x, scanned):
    layer, slides, replay = scanned
    x = sharding.by_rows(x)
    q, k, v = _qkv(config, layer, x)
    if others:
      attended = jax.lax.cond(slides, by_kind[True], by_kind[False], q, k, v)
    else:
      attended = only(q, k, v)
    return _rest(config, layer, x, attended, real, replay)

  slides = jnp.array(config.slides) if others else None
  if config.remat != 'none':
    policy = REMATS[config.remat]
    block = jax.checkpoint(block, prevent_cse=False, policy=policy)
  replay = None if routing is None else jnp.moveaxis(routing, 2, 0)
  x, told = jax.lax.scan(
    block, x, (stacked, slides, replay), unroll=config.scan_unroll
  )
  if told is None:
    return x, {}
  aux = {
    'balance': told.balance.mean(),
    'load': told.load,
    'kept': told.kept.mean(),
    'routes': jnp.moveaxis(told.choices, 0, 2),
  }
  return x, aux


def _cached(config, unstacked, x, kinds, cache, slots, positions):
  keys, values, choices = [], [], []
  real = positions < cache.columns
  whole = slots is None
  if whole:
    slots = jnp.arange(x.shape[0])
  for layer, slides, k_cache, v_cache in zip(
    unstacked, config.slides, cache.keys, cache.values, strict=True
  ):
    kind = kinds[slides]
    q, k, v = _qkv(config, layer, x)
    q, k = rope.rotate(q, *kind.tables), rope.rotate(k, *kind.tables)
    k_cache = cache_lib.write_keys(k_cache, k, slots, positions)
    v_cache = cache_lib.write_values(v_cache, v, slots, positions)
    if whole:
      attended = attention.cached_attention(
        q, k_cache, v_cache, positions, kind.window
      )
    else:
      attended = attention.within_reach(
        q, k_cache, v_cache, slots, positions, kind.window
      )
    x, told = _rest(config, layer, x, attended, real)
    keys.append(k_cache)
    values.append(v_cache)
    choices.append(told and told.choices)
  routes = cache.routes
  if routes is not None:
    new = jnp.stack(choices, axis=2)
    routes = cache_lib.write_routes(routes, new, slots, positions)
  return x, cache_lib.Cache(
    keys=tuple(keys), values=tuple(values), routes=routes
  )
