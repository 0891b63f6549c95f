"""How does a turn compare with turns that share its recent past?"""

import chex
import jax.numpy as jnp

from agentrl_jax import reductions
from agentrl_jax.advantages import anchored, grouped, returns


def hgpo_level_weights(
  num_levels: int, *, alpha: float = 1.0, offset: int = 1
) -> chex.Array:
  """Weighs deeper shared histories more: (j + offset)^α for j = 0..L-1.

  Args:
    num_levels: L.
    alpha: α; 0 weighs all levels alike.
    offset: 1 is the paper's text, 2 its authors' code.

  Returns:
    [L] float32.
  """
  levels = jnp.arange(num_levels, dtype=jnp.float32)
  return (levels + offset) ** alpha


def hgpo(
  turn_rewards: chex.Array,
  group_ids: chex.Array,
  history_ids: chex.Array,
  turn_mask: chex.Array,
  *,
  level_weights: chex.Array | None = None,
  base_weight: float = 1.0,
  base_place: str = 'added',
  num_groups: int | None = None,
  num_anchors: int | None = None,
  gamma: float = 0.95,
  scale: str = 'std',
  ddof: int = 0,
  epsilon: float = 1e-6,
  relative_floor: float = 1e-5,
  episode_stats: str = 'trajectories',
  skip_zeros: bool = False,
  turn_penalties: chex.Array | None = None,
) -> chex.Array:
  """Averages comparisons within ever more specific histories.

      A_bt = w_B A_E + Σ_j w_j A_j / Σ_j w_j,   over levels j at which the
      turn's cluster (task, last j+1 anchors) has at least two turns
      (w_B A_E + Σ_j w_j A_j) / (w_B + Σ_j w_j)   with base_place='averaged'
      A_j = (Q - mean) / (std + ε) within the cluster,   Q = R_t - c

  One level and `base_weight=1` is `anchored.gigpo` (but for ddof of A_S).

  Args:
    turn_rewards: [B, S] float32.
    group_ids: [B] int32, task, -1 = in no group.
    history_ids: [B, S, L] int32, id of the last j+1 anchors, -1 = too few.
    turn_mask: [B, S] bool.
    level_weights: [L] float, w; None = `hgpo_level_weights(L)`.
    base_weight: w_B of the trajectory-level advantage (sample std). At 0, the
      authors' default, a turn without a peer gets no gradient at all.
    base_place: 'added' to the mean over levels, or 'averaged' as one more
      level, as in the authors' code.
    num_groups: static bound of the group ids; None takes any ids.
    num_anchors: static bound of the history ids; None takes any ids.
    gamma: discount per turn.
    scale: 'std' or 'none', for both parts.
    ddof: of the clusters, 0 population, 1 sample std.
    epsilon: ε.
    relative_floor: see `grouped.group_center`.
    episode_stats: see `anchored.episode_advantages`.
    skip_zeros: leave A_j that are exactly 0 out of the mean, as the authors'
      code does; discontinuous.
    turn_penalties: [B, S] float32, c; None = 0.

  Returns:
    [B, S] float32, 0 where masked.

  Raises:
    ValueError: unknown base_place, scale or episode_stats.

  Reference: He et al. 2026, arXiv:2602.22817. The authors' code is
  offset=2, skip_zeros=True, base_weight=0, or 1 with base_place='averaged' and
  episode_stats='turns'.
  """
  grouped.check_one_of('base_place', base_place, ('added', 'averaged'))
  chex.assert_rank([turn_rewards, history_ids, turn_mask], [2, 3, 2])
  chex.assert_equal_shape_prefix([turn_rewards, history_ids, turn_mask], 2)
  shared = dict(scale=scale, epsilon=epsilon, relative_floor=relative_floor)
  if level_weights is None:
    level_weights = hgpo_level_weights(history_ids.shape[-1])
  level_weights = jnp.asarray(level_weights, jnp.float32)
  chex.assert_shape(level_weights, (history_ids.shape[-1],))
  turn_returns = returns.discounted_returns(
    turn_rewards, turn_mask, gamma=gamma
  )
  if turn_penalties is not None:
    turn_returns -= jnp.where(turn_mask, turn_penalties, 0)
  base = anchored.episode_advantages(
    turn_rewards,
    group_ids,
    turn_mask,
    num_groups=num_groups,
    episode_stats=episode_stats,
    turn_penalties=turn_penalties,
    ddof=1,
    **shared,
  )
  options = dict(num_anchors=num_anchors, ddof=ddof, **shared)
  levels = [
    _level(turn_returns, group_ids, ids, turn_mask, **options)
    for ids in jnp.moveaxis(history_ids, -1, 0)
  ]
  weights = [jnp.where(c, w, 0.0) for (_, c), w in zip(levels, level_weights)]
  advantages = [a for a, _ in levels]
  if base_place == 'averaged':
    advantages.append(base)
    weights.append(jnp.where(turn_mask, base_weight, 0.0))
  if skip_zeros:
    weights = [jnp.where(a != 0, w, 0) for a, w in zip(advantages, weights)]
  norm = sum(weights)
  total = sum(w * a for a, w in zip(advantages, weights))
  averaged = total / jnp.where(norm > 0, norm, 1)
  return averaged if base_place == 'averaged' else base_weight * base + averaged


def _level(
  turn_returns: chex.Array,
  group_ids: chex.Array,
  ids: chex.Array,
  turn_mask: chex.Array,
  **options,
) -> tuple[chex.Array, chex.Array]:
  """Returns (advantages, whether the cluster has another turn), [B, S]."""
  advantages = anchored.anchor_advantages(
    turn_returns, group_ids, ids, turn_mask, **options
  )
  keys = anchored.anchor_keys(group_ids, ids, turn_mask)
  sizes = reductions.segment_count(keys, keys >= 0, num_ids=keys.shape[0])
  size = reductions.gather(sizes, keys, keys >= 0)
  return advantages, size.reshape(turn_mask.shape) > 1
