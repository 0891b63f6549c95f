"""How do advantages of turns reach tokens, and tokens their trajectories?"""

import chex
import jax.numpy as jnp


def broadcast_turns(
  turn_values: chex.Array,
  row_trajectory: chex.Array,
  row_turn: chex.Array,
  mask: chex.Array,
) -> chex.Array:
  """Gives every sampled token the value of its turn.

      x_rt = v[row_trajectory_rt, row_turn_rt]

  Args:
    turn_values: [B, S] float.
    row_trajectory: [R, T] int32, trajectory of the token, -1 = none.
    row_turn: [R, T] int32, turn of the token, -1 = none.
    mask: [R, T] bool, True where the token was sampled.

  Returns:
    [R, T] float32, 0 where masked or in no turn, NaN where there is no such
    trajectory or turn.
  """
  chex.assert_rank([turn_values, row_trajectory, row_turn, mask], 2)
  chex.assert_equal_shape([row_trajectory, row_turn, mask])
  chex.assert_type(mask, bool)
  has_turn = mask & (row_trajectory >= 0) & (row_turn >= 0)
  place = (
    jnp.where(has_turn, row_trajectory, 0),
    jnp.where(has_turn, row_turn, 0),
  )
  values = turn_values.astype(jnp.float32)
  values = values.at[place].get(mode='fill', fill_value=jnp.nan)
  return jnp.where(has_turn, values, 0)


def token_ranks(
  row_trajectory: chex.Array,
  row_turn: chex.Array,
  positions: chex.Array,
  mask: chex.Array,
) -> chex.Array:
  """Numbers the sampled tokens of each trajectory in the order of sampling.

  The order is (turn, position in the segment), wherever packing put them.

  Args:
    row_trajectory: [R, T] int32, -1 = none.
    row_turn: [R, T] int32, -1 = none.
    positions: [R, T] int32, place within the segment.
    mask: [R, T] bool, True where the token was sampled.

  Returns:
    [R, T] int32, 0, 1, ... within each trajectory, -1 where masked.
  """
  chex.assert_rank([row_trajectory, row_turn, positions, mask], 2)
  chex.assert_equal_shape([row_trajectory, row_turn, positions, mask])
  chex.assert_type(mask, bool)
  counts = (mask & (row_trajectory >= 0) & (row_turn >= 0)).ravel()
  last = jnp.iinfo(jnp.int32).max
  trajectories = jnp.where(counts, row_trajectory.ravel(), last)
  order = jnp.lexsort((positions.ravel(), row_turn.ravel(), trajectories))
  ordered = trajectories[order]
  place = jnp.arange(order.shape[0])
  first = jnp.searchsorted(ordered, ordered, side='left')
  ranks = jnp.zeros_like(order).at[order].set(place - first)
  return jnp.where(counts, ranks, -1).reshape(mask.shape).astype(jnp.int32)


def gather_tokens(
  token_values: chex.Array,
  row_trajectory: chex.Array,
  row_token: chex.Array,
  mask: chex.Array,
) -> chex.Array:
  """Brings values by trajectory into packed rows: [B, N] -> [R, T].

  The same gather as `broadcast_turns`, over tokens.

  Args:
    token_values: [B, N] float, by trajectory and rank of the token.
    row_trajectory: [R, T] int32, -1 = none.
    row_token: [R, T] int32, from `token_ranks`, -1 = none.
    mask: [R, T] bool.

  Returns:
    [R, T] float32, 0 where masked.
  """
  return broadcast_turns(token_values, row_trajectory, row_token, mask)


def scatter_tokens(
  row_values: chex.Array,
  row_trajectory: chex.Array,
  row_token: chex.Array,
  mask: chex.Array,
  *,
  num_trajectories: int,
  num_tokens: int,
) -> tuple[chex.Array, chex.Array]:
  """Brings packed rows into one line per trajectory: [R, T] -> [B, N].

  The inverse of `gather_tokens`.

  Args:
    row_values: [R, T] float.
    row_trajectory: [R, T] int32, -1 = none.
    row_token: [R, T] int32, from `token_ranks`, -1 = none.
    mask: [R, T] bool.
    num_trajectories: B.
    num_tokens: N, a bound on the sampled tokens of a trajectory; tokens beyond
      it are dropped.

  Returns:
    (values [B, N] float32, mask [B, N] bool), 0 and False where no token fell.
  """
  chex.assert_rank([row_values, row_trajectory, row_token, mask], 2)
  chex.assert_equal_shape([row_values, row_trajectory, row_token, mask])
  chex.assert_type(mask, bool)
  counts = mask & (row_trajectory >= 0) & (row_token >= 0)
  place = (jnp.where(counts, row_trajectory, num_trajectories), row_token)
  values = jnp.zeros((num_trajectories, num_tokens), jnp.float32)
  values = values.at[place].set(jnp.where(counts, row_values, 0), mode='drop')
  filled = jnp.zeros(values.shape, bool).at[place].set(True, mode='drop')
  return values, filled
