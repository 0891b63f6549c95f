"""Which weights a decoder has: each described once, everything else derived.

A `Weight` states shape, logical axes and initial spread. Initial values,
shardings and abstract trees for restoring are `tree.map`s over the same table.
"""

import dataclasses
import math
import zlib
from collections.abc import Callable

import jax
import jax.numpy as jnp

from agentrl_jax.models import lora as lora_lib
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.models.policy import Policy


@dataclasses.dataclass(frozen=True)
class Weight:
  """One weight: shape, logical axis names, std (0 = `fill` everywhere)."""

  shape: tuple[int, ...]
  axes: tuple[str | None, ...]
  std: float
  fill: float = 1.0


def describe(config: ModelConfig | Policy) -> dict:
  """Returns the tree of `Weight`s; blocks are stacked on a leading L axis."""
  if isinstance(config, Policy):
    return _foreign(config)
  c = config
  n, d = c.num_layers, c.d_model
  h, k, e = c.num_heads, c.num_kv_heads, c.head_dim
  down = 1 / math.sqrt(2 * n)  # residual branches add up over depth

  def block(shape, axes, fan_in, scale=1.0):
    std = scale / math.sqrt(fan_in)
    return Weight((n, *shape), ('layers', *axes), std)

  def norm(size):
    return Weight((n, size), ('layers', None), 0.0, fill=1.0 - c.centered_norms)

  def bias(heads, axis):
    return Weight((n, heads, e), ('layers', axis, None), 0.0, fill=0.0)

  layers = {
    'attention_norm': norm(d),
    'q': block((d, h, e), ('embed', 'heads', None), d),
    'k': block((d, k, e), ('embed', 'kv_heads', None), d),
    'v': block((d, k, e), ('embed', 'kv_heads', None), d),
    'o': block((h, e, d), ('heads', None, 'embed'), h * e, down),
    'mlp_norm': norm(d),
  }
  layers |= _feed_forward(c, block, down)
  if c.qk_norm:
    layers |= {'q_norm': norm(e), 'k_norm': norm(e)}
  if c.post_norms:
    layers |= {'attention_post_norm': norm(d), 'mlp_post_norm': norm(d)}
  if c.qkv_bias:
    layers |= {
      'q_bias': bias(h, 'heads'),
      'k_bias': bias(k, 'kv_heads'),
      'v_bias': bias(k, 'kv_heads'),
    }
  if c.lora is not None:
    layers['lora'] = lora_lib.describe(layers, c.lora)
  tree = {
    'embed': {
      'table': Weight((c.vocab_size, d), ('vocab', 'embed'), c.embedding_std)
    },
    'layers': layers,
    'final_norm': Weight((d,), (None,), 0.0, fill=1.0 - c.centered_norms),
  }
  if not c.tie_embeddings:
    std = 1 / math.sqrt(d)
    tree['head'] = Weight((d, c.vocab_size), ('embed', 'vocab'), std)
  return tree | _value_head(c)


def _feed_forward(config: ModelConfig, block: Callable, down: float) -> dict:
  d, f, e = config.d_model, config.d_ff, config.num_experts
  if not e:
    return {
      'gate': block((d, f), ('embed', 'mlp'), d),
      'up': block((d, f), ('embed', 'mlp'), d),
      'down': block((f, d), ('mlp', 'embed'), f, down),
    }
  f = config.d_expert
  return {
    'router': block((d, e), ('embed', None), d),
    'expert_gate': block((e, d, f), ('experts', 'embed', 'mlp'), d),
    'expert_up': block((e, d, f), ('experts', 'embed', 'mlp'), d),
    'expert_down': block((e, f, d), ('experts', 'mlp', 'embed'), f, down),
  }


def _value_head(config: ModelConfig | Policy) -> dict:
  if not config.value_head:
    return {}
  kernel = Weight((config.d_model,), (None,), 0.0, fill=0.0)
  return {'value': {'kernel': kernel, 'bias': Weight((), (), 0.0, fill=0.0)}}


def _foreign(policy: Policy) -> dict:
  """Weights of a foreign model, by what its initialiser would make."""
  made = jax.eval_shape(policy.init, jax.random.key(0))
  axes = policy.axes
  if axes is None:
    axes = jax.tree.map(lambda x: (None,) * x.ndim, made)
  tree = jax.tree.map(lambda x, names: Weight(x.shape, names, 0.0), made, axes)
  return tree | _value_head(policy)


def _is_weight(x) -> bool:
  return isinstance(x, Weight)


def init(config: ModelConfig, key: jax.Array) -> dict:
  """Draws float32 weights; the same key gives the same weights.

  Each weight's key is folded from its path in the tree, so that adding one
  weight does not change another's values.
  """
  if isinstance(config, Policy):
    return with_value_head(config, config.init(key))
  return _draw_tree(describe(config), key)


def _draw_tree(described: dict, key: jax.Array) -> dict:
  def one(path, weight):
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    return _draw(jax.random.fold_in(key, zlib.crc32(name.encode())), weight)

  return jax.tree_util.tree_map_with_path(one, described, is_leaf=_is_weight)


def _draw(key, weight: Weight) -> jax.Array:
  if weight.std == 0.0:
    return jnp.full(weight.shape, weight.fill, jnp.float32)
  # Truncated at two sigma: no outlier weights in the smallest models.
  unit = jax.random.truncated_normal(key, -2, 2, weight.shape, jnp.float32)
  return weight.std / 0.87962566 * unit


def with_value_head(config: ModelConfig, params: dict) -> dict:
  """Returns params with a value head of zeros, where the config has one.

  It comes after fine-tuning, so that arms with and without share its result.
  """
  if not config.value_head:
    return params
  head = {
    name: jnp.full(weight.shape, weight.fill, jnp.float32)
    for name, weight in _value_head(config)['value'].items()
  }
  return {**params, 'value': head}


def adapters(config: ModelConfig, key: jax.Array) -> dict:
  """Draws the adapters that `init` draws with them: a partial tree."""
  trained, _ = lora_lib.split(describe(config))
  return _draw_tree({'layers': trained['layers']}, key)


def policy(params: dict) -> dict:
  """Returns params without a value head: what a sampler decodes with."""
  return {name: tree for name, tree in params.items() if name != 'value'}


def abstract(config: ModelConfig, dtype=jnp.float32) -> dict:
  """Returns the tree of ShapeDtypeStructs."""
  return jax.tree.map(
    lambda w: jax.ShapeDtypeStruct(w.shape, dtype),
    describe(config),
    is_leaf=_is_weight,
  )


def logical_axes(config: ModelConfig) -> dict:
  """Returns the tree of logical axis names, for `sharding.shardings`."""
  return jax.tree.map(lambda w: w.axes, describe(config), is_leaf=_is_weight)


def count(config: ModelConfig) -> int:
  """Returns the number of weights."""
  leaves = jax.tree.leaves(describe(config), is_leaf=_is_weight)
  return sum(math.prod(w.shape) for w in leaves)


def unstack(params: dict) -> dict:
  """Returns params with `layers` as a tuple of per-layer trees.

  Decoding unrolls the layers: slicing a stacked array every step would copy
  it.
  """
  layers = params['layers']
  num_layers = jax.tree.leaves(layers)[0].shape[0]
  split = tuple(
    jax.tree.map(lambda x, i=i: x[i], layers) for i in range(num_layers)
  )
  return {**params, 'layers': split}
