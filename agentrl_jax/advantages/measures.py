"""How much did this batch have to teach, and where did it come from?"""

import chex
import jax.numpy as jnp

from agentrl_jax import reductions
from agentrl_jax.advantages import anchored, grouped, returns
from agentrl_jax.batch import TurnBatch


def outcome_varies(
  turns: TurnBatch, *, relative_floor: float = 1e-5
) -> chex.Array:
  """Says for each trajectory whether its task's outcomes differ.

  The outcome is the episode return. It is the same test for every estimator,
  so that comparisons run on the same data. A group of one is constant.

  Args:
    turns: the batch.
    relative_floor: see `grouped.group_statistics`.

  Returns:
    [B] bool; False without a true turn or a group.
  """
  outcomes = returns.episode_returns(turns.turn_rewards, turns.turn_mask)
  return grouped.group_statistics(
    outcomes,
    turns.group_ids,
    jnp.any(turns.turn_mask, axis=-1),
    relative_floor=relative_floor,
  ).varies


def diagnostics(
  turns: TurnBatch, advantages: chex.Array, *, relative_floor: float = 1e-5
) -> dict[str, chex.Array]:
  """Measures groups, anchors and where the advantages come from.

  Args:
    turns: the batch.
    advantages: [B, S] float32, what an estimator gave.
    relative_floor: see `grouped.group_statistics`.

  Returns:
    Scalars, float32:
      anchor_group_size: turns with an anchor / number of anchor groups, the
        mean size of a (task, state) group; 0 without anchors.
      anchor_singletons: share of turns that no other turn shares a state with
        (no anchor included).
      contrastive_share: share of turns in anchor groups in which at least two
        distinct actions were taken.
      dead_groups: share of tasks whose outcomes are all equal.
      phantom_share: share of Σ|A| that comes from such tasks.
  """
  chex.assert_equal_shape([advantages, turns.turn_mask, turns.anchor_ids])
  mask = turns.turn_mask
  varies = outcome_varies(turns, relative_floor=relative_floor)
  keys = anchored.anchor_keys(turns.group_ids, turns.anchor_ids, mask)
  has_anchor = keys >= 0
  sizes = reductions.segment_count(keys, has_anchor, num_ids=keys.shape[0])
  size = reductions.gather(sizes, keys, has_anchor).reshape(mask.shape)
  is_real = jnp.any(mask, axis=-1)
  groups = reductions.dense_ids(turns.group_ids, mask=is_real)
  in_group = groups >= 0
  group_size = reductions.gather(
    reductions.segment_count(groups, in_group, num_ids=groups.shape[0]),
    groups,
    in_group,
  )
  # Each member of a group of n counts 1/n, so that sums count groups.
  share = jnp.where(in_group, 1 / jnp.maximum(group_size, 1), 0)
  size_of_a = jnp.where(mask, jnp.abs(advantages), 0).astype(jnp.float32)
  phantom = jnp.sum(jnp.where(varies[:, None], 0, size_of_a))
  return {
    'anchor_group_size': jnp.sum(sizes) / jnp.maximum(jnp.sum(sizes > 0), 1),
    'anchor_singletons': reductions.masked_mean(size <= 1, mask),
    'contrastive_share': reductions.masked_mean(
      _has_contrast(keys, turns.action_ids.ravel()).reshape(mask.shape),
      mask,
    ),
    'dead_groups': jnp.sum(jnp.where(varies, 0, share))
    / jnp.maximum(jnp.sum(share), 1),
    'phantom_share': phantom / jnp.maximum(jnp.sum(size_of_a), 1e-30),
  }


def _has_contrast(keys: chex.Array, action_ids: chex.Array) -> chex.Array:
  """Says for each turn whether its anchor group saw two actions: [N] bool."""
  acted = (keys >= 0) & (action_ids >= 0)
  first, last = (
    reduce(action_ids, keys, acted, num_ids=keys.shape[0])
    for reduce in (reductions.segment_min, reductions.segment_max)
  )
  return reductions.gather(first != last, keys, keys >= 0)
