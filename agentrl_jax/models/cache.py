"""Keys and values of contexts: one pair of arrays a layer, one row a slot.

A decoder of experts may also note which of them each token used.
"""

import chex
import jax
import jax.numpy as jnp

from agentrl_jax.models import moe
from agentrl_jax.models import policy as policy_lib
from agentrl_jax.models.config import ModelConfig

# Columns of a block of keys: a decode step's product with a block reads memory
# as fast as it comes; with all columns side by side it takes a CPU 3-4 times
# as long.
BLOCK = 64


@chex.dataclass(frozen=True)
class Cache:
  """Attributes: keys: L arrays [slots, K, S/Q, C, Q], Q = min(S, `BLOCK`).

  values: L arrays [slots, K, S, C]. Where Q does not divide S, the last block
  of keys has columns that nobody reads.
  routes: [slots, S, L, k] int8 or int16, experts that the token of a column
  was sent to; None where they are not recorded.
  """

  keys: tuple[jax.Array, ...]
  values: tuple[jax.Array, ...]
  routes: jax.Array | None = None

  @property
  def columns(self) -> int:
    """S."""
    return self.values[0].shape[2]


def init(
  config: ModelConfig | policy_lib.Policy,
  num_slots: int,
  length: int,
  *,
  routes: bool = False,
) -> Cache | policy_lib.TokenCache:
  """Returns an empty cache for `num_slots` contexts of `length` tokens.

  Args:
    config: the shape.
    num_slots, length: of the cache.
    routes: record the experts that tokens use; nothing without experts.
  """
  if isinstance(config, policy_lib.Policy):
    return policy_lib.init_cache(num_slots, length)
  outer = (num_slots, config.num_kv_heads)
  layers = range(config.num_layers)
  block, blocks = _blocks(length)
  keys, values = (
    tuple(jnp.zeros((*outer, *inner), config.dtype) for _ in layers)
    for inner in (
      (blocks, config.head_dim, block),
      (length, config.head_dim),
    )
  )
  noted = None
  if routes and config.num_experts:
    shape = (num_slots, length, config.num_layers, config.experts_per_token)
    noted = jnp.full(shape, -1, moe.route_dtype(config.num_experts))
  return Cache(keys=keys, values=values, routes=noted)


def num_bytes(config: ModelConfig, num_slots: int, length: int) -> int:
  """Returns the size of such a cache."""
  if isinstance(config, policy_lib.Policy):
    return num_slots * length * 4  # its tokens
  item = jnp.dtype(config.dtype).itemsize
  block, blocks = _blocks(length)
  columns = num_slots * config.num_kv_heads * (block * blocks + length)
  return config.num_layers * columns * config.head_dim * item


def _blocks(length: int) -> tuple[int, int]:
  """Columns of a block of keys, and how many blocks hold `length` columns."""
  block = min(length, BLOCK)
  return block, -(-length // block)


def write_keys(
  array: jax.Array, new: jax.Array, slots: jax.Array, positions: jax.Array
) -> jax.Array:
  """Writes [R, T, K, C] at (slots [R], positions [R, T]).

  A position >= the cache's length marks an idle token: its key is dropped, or
  lies where nobody reads.
  """
  number, place = jnp.divmod(positions, array.shape[-1])
  return array.at[slots[:, None], :, number, :, place].set(
    new.astype(array.dtype), mode='drop'
  )


def write_values(
  array: jax.Array, new: jax.Array, slots: jax.Array, positions: jax.Array
) -> jax.Array:
  """As `write_keys`, into the layout of the values."""
  return array.at[slots[:, None], :, positions].set(
    new.astype(array.dtype), mode='drop'
  )


def write_routes(
  array: jax.Array, new: jax.Array, slots: jax.Array, positions: jax.Array
) -> jax.Array:
  """As `write_keys`: [R, T, L, k] into the layout of the routes."""
  return array.at[slots[:, None], positions].set(
    new.astype(array.dtype), mode='drop'
  )
