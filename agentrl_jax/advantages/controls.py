"""Is it the anchors that help? Controls and placebos for studies.

A placebo replaces the ids and leaves the estimator alone.
"""

import chex
import jax
import jax.numpy as jnp

from agentrl_jax.advantages import anchored


def return_to_go(
  turn_rewards: chex.Array,
  group_ids: chex.Array,
  turn_mask: chex.Array,
  *,
  gamma: float = 0.95,
  episode_weight: float = 0.0,
  **options,
) -> chex.Array:
  """Centres discounted turn returns over *all* turns of the task.

      A_bt = (Q_bt - mean_g Q) / (std_g Q + ε)

  The control that shows how much of GiGPO is discounting: `anchored.gigpo`
  with one state everywhere.

  Args:
    turn_rewards: [B, S] float32.
    group_ids: [B] int32, -1 = in no group.
    turn_mask: [B, S] bool.
    gamma: discount per turn.
    episode_weight: weight of the trajectory-level part.
    **options: of `anchored.gigpo`.

  Returns:
    [B, S] float32, 0 where masked.
  """
  return anchored.gigpo(
    turn_rewards,
    group_ids,
    jnp.zeros(turn_mask.shape, jnp.int32),
    turn_mask,
    gamma=gamma,
    episode_weight=episode_weight,
    **options,
  )


def turn_index_anchors(turn_mask: chex.Array) -> chex.Array:
  """Names every state by the number of true turns before it (a placebo).

  Args:
    turn_mask: [B, S] bool.

  Returns:
    [B, S] int32 anchor ids, -1 where masked.
  """
  chex.assert_rank(turn_mask, 2)
  index = jnp.cumsum(turn_mask, axis=-1) - 1
  return jnp.where(turn_mask, index, -1).astype(jnp.int32)


def shuffled_anchors(
  anchor_ids: chex.Array,
  group_ids: chex.Array,
  turn_mask: chex.Array,
  key: chex.PRNGKey,
) -> chex.Array:
  """Permutes the anchors among the turns of each task (a placebo).

  Every anchor group keeps its size; which turns are in it means nothing.

  Args:
    anchor_ids: [B, S] int32, -1 = no anchor (and stays so).
    group_ids: [B] int32, -1 = in no group.
    turn_mask: [B, S] bool.
    key: new-style PRNG key.

  Returns:
    [B, S] int32 anchor ids, -1 where masked, without anchor or in no group.
  """
  chex.assert_rank([anchor_ids, group_ids, turn_mask], [2, 1, 2])
  chex.assert_equal_shape([anchor_ids, turn_mask])
  groups = jnp.broadcast_to(group_ids[:, None], anchor_ids.shape).ravel()
  moves = turn_mask.ravel() & (anchor_ids.ravel() >= 0) & (groups >= 0)
  groups = jnp.where(moves, groups, jnp.iinfo(jnp.int32).max)
  noise = jax.random.uniform(key, groups.shape)
  places = jnp.argsort(groups, stable=True)
  sources = jnp.lexsort((noise, groups))
  ids = anchor_ids.ravel()
  ids = jnp.zeros_like(ids).at[places].set(ids[sources])
  return jnp.where(moves, ids, -1).reshape(turn_mask.shape)
