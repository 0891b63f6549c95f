"""How are values reduced within groups, when the groups are int32 ids?

Ids lie in [0, num_ids); -1 means "in no group". Every function masks before it
reduces and again after it gathers, because index -1 would wrap to the last
group. `num_ids` is a static *bound*: empty groups cost memory, never results.
"""

import chex
import jax
import jax.numpy as jnp


def _slots(ids: chex.Array, mask: chex.Array, num_ids: int) -> chex.Array:
  """Returns ids with everything in no group moved out of bounds (dropped)."""
  return jnp.where(mask & (ids >= 0), ids, num_ids)


def segment_sum(
  values: chex.Array, ids: chex.Array, mask: chex.Array, *, num_ids: int
) -> chex.Array:
  """Sums values within each id: [N], [N], [N] -> [num_ids] float32."""
  in_group = mask & (ids >= 0)
  values = jnp.where(in_group, values, 0).astype(jnp.float32)
  return jax.ops.segment_sum(values, _slots(ids, mask, num_ids), num_ids)


def segment_count(
  ids: chex.Array, mask: chex.Array, *, num_ids: int
) -> chex.Array:
  """Counts the members of each id: [N], [N] -> [num_ids] float32."""
  return segment_sum(jnp.ones(ids.shape), ids, mask, num_ids=num_ids)


def segment_mean(
  values: chex.Array, ids: chex.Array, mask: chex.Array, *, num_ids: int
) -> chex.Array:
  """Averages values within each id, 0 where it is empty: -> [num_ids]."""
  count = segment_count(ids, mask, num_ids=num_ids)
  total = segment_sum(values, ids, mask, num_ids=num_ids)
  return total / jnp.maximum(count, 1)


def segment_min(
  values: chex.Array, ids: chex.Array, mask: chex.Array, *, num_ids: int
) -> chex.Array:
  """Takes the smallest value of each id, 0 where it is empty: -> [num_ids]."""
  values = jnp.where(mask, values, 0)
  slots = _slots(ids, mask, num_ids)
  smallest = jax.ops.segment_min(values, slots, num_ids)
  return jnp.where(segment_count(ids, mask, num_ids=num_ids) > 0, smallest, 0)


def segment_max(
  values: chex.Array, ids: chex.Array, mask: chex.Array, *, num_ids: int
) -> chex.Array:
  """Takes the largest value of each id, 0 where it is empty: -> [num_ids]."""
  return -segment_min(-values, ids, mask, num_ids=num_ids)


def gather(
  segment_values: chex.Array, ids: chex.Array, mask: chex.Array
) -> chex.Array:
  """Gives each member its group's value, 0 where in no group: -> like ids."""
  in_group = mask & (ids >= 0)
  return jnp.where(in_group, segment_values[jnp.where(in_group, ids, 0)], 0)


def dense_ids(*keys: chex.Array, mask: chex.Array) -> chex.Array:
  """Numbers the distinct key tuples 0, 1, ... in sorted order.

  The group of a (task, state) pair needs no table of size tasks x states, and
  no bound but N. O(N log N).

  Args:
    *keys: [N] int32 each; a negative part puts the element in no group.
    mask: [N] bool.

  Returns:
    [N] int32 in [0, N), -1 where masked or in no group.
  """
  valid = mask
  for key in keys:
    valid = valid & (key >= 0)
  last = jnp.iinfo(jnp.int32).max
  keys = [jnp.where(valid, key, last).astype(jnp.int32) for key in keys]
  order = jnp.lexsort(keys)
  is_new = jnp.zeros(order.shape, bool)
  for key in keys:
    ordered = key[order]
    is_new |= ordered != jnp.roll(ordered, 1)
  is_new = is_new.at[0].set(False)
  ids = jnp.zeros_like(order).at[order].set(jnp.cumsum(is_new))
  return jnp.where(valid, ids, -1).astype(jnp.int32)


def poison(
  values: chex.Array, ids: chex.Array, mask: chex.Array, num_ids: int | None
) -> chex.Array:
  """Puts NaN where an id breaks its bound: louder than a silent zero."""
  if num_ids is None:
    return values
  return jnp.where(mask & (ids >= num_ids), jnp.nan, values)


def masked_mean(values: chex.Array, mask: chex.Array) -> chex.Array:
  """Averages over the mask, 0 if it is empty: any shape -> scalar."""
  total = jnp.sum(jnp.where(mask, values, 0).astype(jnp.float32))
  return total / jnp.maximum(jnp.sum(mask), 1)
