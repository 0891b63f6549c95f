"""Keys and values of contexts: one pair of arrays a layer, one row a slot."""

import chex
import jax
import jax.numpy as jnp

from agentrl_jax.models.config import ModelConfig


@chex.dataclass(frozen=True)
class Cache:
  """Attributes: keys, values: L arrays [slots, K, C, S], [slots, K, S, C]."""

  keys: tuple[jax.Array, ...]
  values: tuple[jax.Array, ...]


def init(config: ModelConfig, num_slots: int, length: int) -> Cache:
  """Returns an empty cache for `num_slots` contexts of `length` tokens."""
  outer = (num_slots, config.num_kv_heads)
  layers = range(config.num_layers)
  keys, values = (
    tuple(jnp.zeros((*outer, *inner), config.dtype) for _ in layers)
    for inner in ((config.head_dim, length), (length, config.head_dim))
  )
  return Cache(keys=keys, values=values)


def num_bytes(config: ModelConfig, num_slots: int, length: int) -> int:
  """Returns the size of such a cache."""
  item = jnp.dtype(config.dtype).itemsize
  columns = num_slots * config.num_kv_heads * length
  return 2 * config.num_layers * columns * config.head_dim * item


def write_keys(
  array: jax.Array, new: jax.Array, slots: jax.Array, positions: jax.Array
) -> jax.Array:
  """Writes [R, T, K, C] at (slots [R], positions [R, T]).

  A position >= the cache's length is dropped: that marks an idle token.
  """
  return array.at[slots[:, None], :, :, positions].set(
    new.astype(array.dtype), mode='drop'
  )


def write_values(
  array: jax.Array, new: jax.Array, slots: jax.Array, positions: jax.Array
) -> jax.Array:
  """As `write_keys`, into the layout of the values."""
  return array.at[slots[:, None], :, positions].set(
    new.astype(array.dtype), mode='drop'
  )
