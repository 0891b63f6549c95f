"""How does a turn compare with other turns taken in the same state?"""

import chex
import jax.numpy as jnp

from agentrl_jax import reductions
from agentrl_jax.advantages import grouped, returns

BASELINES = ('group', 'leave_trajectory_out')
EPISODE_STATS = ('trajectories', 'turns')


def anchor_keys(
  group_ids: chex.Array, anchor_ids: chex.Array, turn_mask: chex.Array
) -> chex.Array:
  """Numbers the (task, state) pairs: [B], [B, S], [B, S] -> [B·S] int32.

  -1 where masked, without anchor or in no group. States of different tasks are
  never the same group, even if their ids are equal.
  """
  chex.assert_rank([group_ids, anchor_ids, turn_mask], [1, 2, 2])
  chex.assert_equal_shape([anchor_ids, turn_mask])
  chex.assert_type(turn_mask, bool)
  groups = jnp.broadcast_to(group_ids[:, None], anchor_ids.shape)
  return reductions.dense_ids(
    groups.ravel(), anchor_ids.ravel(), mask=turn_mask.ravel()
  )


def _without_own_trajectory(
  values: chex.Array, keys: chex.Array, shape: tuple[int, int]
) -> tuple[chex.Array, chex.Array]:
  """Returns (v - mean over other trajectories' turns, whether any), [N]."""
  size = keys.shape[0]
  everyone = jnp.ones(size, bool)
  trajectories = jnp.broadcast_to(jnp.arange(shape[0])[:, None], shape).ravel()
  own_keys = reductions.dense_ids(keys, trajectories, mask=everyone)

  def others(x):
    total, own = (
      reductions.gather(
        reductions.segment_sum(x, k, everyone, num_ids=size), k, everyone
      )
      for k in (keys, own_keys)
    )
    return total - own

  count = others(jnp.ones(size))
  has_peer = count > 0.5
  return values - others(values) / jnp.where(has_peer, count, 1.0), has_peer


def anchor_advantages(
  turn_returns: chex.Array,
  group_ids: chex.Array,
  anchor_ids: chex.Array,
  turn_mask: chex.Array,
  *,
  num_anchors: int | None = None,
  scale: str = 'std',
  ddof: int = 1,
  epsilon: float = 1e-6,
  relative_floor: float = 1e-5,
  baseline: str = 'group',
) -> chex.Array:
  """Centres turn returns within the turns of one task that share a state.

      A_bt = (Q_bt - mean_k Q) / (std_k Q + ε),   k = (group, anchor)

  over all trajectories and times. `scale='none'` omits the division. One
  anchor everywhere with `scale='none'` centres over all turns of the task.

  Args:
    turn_returns: [B, S] float32, Q.
    group_ids: [B] int32, -1 = in no group.
    anchor_ids: [B, S] int32, state before the turn, -1 = no anchor.
    turn_mask: [B, S] bool.
    num_anchors: static bound of the anchor ids (an id beyond it gives NaN);
      None takes any ids. The cost does not depend on it.
    scale: 'std' or 'none'.
    ddof: 0 population, 1 sample std.
    epsilon: ε.
    relative_floor: see `grouped.group_center`.
    baseline: 'group', or 'leave_trajectory_out': the mean is over turns of
      *other* trajectories, so that a loop does not move its own baseline; the
      std stays that of the whole anchor group. No such turn: 0.

  Returns:
    [B, S] float32; 0 where masked, without anchor or alone with it.

  Raises:
    ValueError: unknown scale or baseline.

  Reference: Feng et al. 2025, arXiv:2505.10978, Eq. 6-8.
  """
  grouped.check_one_of('baseline', baseline, BASELINES)
  grouped.check_one_of('scale', scale, grouped.SCALES)
  chex.assert_equal_shape([turn_returns, anchor_ids, turn_mask])
  keys = anchor_keys(group_ids, anchor_ids, turn_mask)
  mask = keys >= 0
  values = jnp.where(mask, turn_returns.ravel(), 0).astype(jnp.float32)
  stats = grouped.group_statistics(
    values,
    keys,
    mask,
    num_ids=keys.shape[0],
    ddof=ddof,
    relative_floor=relative_floor,
  )
  centred, counts = stats.centred, stats.varies
  if baseline == 'leave_trajectory_out':
    # Of centred values, so that a large common offset costs no precision.
    centred, has_peer = _without_own_trajectory(centred, keys, turn_mask.shape)
    counts = counts & has_peer
  divisor = stats.std + epsilon if scale == 'std' else jnp.ones_like(values)
  advantages = jnp.where(counts, centred / jnp.where(counts, divisor, 1), 0)
  advantages = advantages.reshape(turn_mask.shape)
  return reductions.poison(advantages, anchor_ids, turn_mask, num_anchors)


def episode_advantages(
  turn_rewards: chex.Array,
  group_ids: chex.Array,
  turn_mask: chex.Array,
  *,
  num_groups: int | None = None,
  scale: str = 'std',
  ddof: int = 1,
  epsilon: float = 1e-6,
  relative_floor: float = 1e-5,
  episode_stats: str = 'trajectories',
  singleton: str = 'zero',
  turn_penalties: chex.Array | None = None,
) -> chex.Array:
  """Gives every turn its trajectory's advantage, less the turn's own penalty.

      A_bt = (R_b - c_bt - mean_g R) / (std_g R + ε)

  With `episode_stats='turns'` mean and std are those of the penalised scores
  R_b - c_bt of all turns of the task. Without penalties and with trajectory
  statistics this is `grouped.grpo`, broadcast.

  Args:
    turn_rewards: [B, S] float32.
    group_ids: [B] int32, -1 = in no group.
    turn_mask: [B, S] bool; a trajectory without a true turn is in no group.
    num_groups: static bound of the group ids; None takes any ids.
    scale: 'std' or 'none'.
    ddof: 0 population, 1 sample std.
    epsilon: ε.
    relative_floor: see `grouped.group_center`.
    episode_stats: 'trajectories' (paper) or 'turns' (authors' code: a long
      trajectory weighs more, a group of one has one turn).
    singleton: 'zero' or 'raw' (R_b - c_bt, unscaled).
    turn_penalties: [B, S] float32, c; None = 0.

  Returns:
    [B, S] float32, 0 where masked, and in a constant group.
  """
  grouped.check_one_of('episode_stats', episode_stats, EPISODE_STATS)
  totals = returns.episode_returns(turn_rewards, turn_mask)
  if turn_penalties is None:
    turn_penalties = jnp.zeros(turn_mask.shape)
  penalties = jnp.where(turn_mask, turn_penalties, 0).astype(jnp.float32)
  options = dict(num_ids=num_groups, ddof=ddof, relative_floor=relative_floor)
  if episode_stats == 'turns':
    groups = jnp.broadcast_to(group_ids[:, None], turn_mask.shape).ravel()
    scores = (totals[:, None] - penalties).ravel()
    options |= dict(scale=scale, epsilon=epsilon, singleton=singleton)
    centred = grouped.group_center(scores, groups, turn_mask.ravel(), **options)
    return centred.reshape(turn_mask.shape)
  grouped.check_one_of('scale', scale, grouped.SCALES)
  grouped.check_one_of('singleton', singleton, grouped.SINGLETONS)
  is_real = jnp.any(turn_mask, axis=-1)
  stats = grouped.group_statistics(totals, group_ids, is_real, **options)
  divisor = stats.std + epsilon if scale == 'std' else jnp.ones_like(totals)
  divisor = jnp.where(stats.varies, divisor, 1)[:, None]
  advantages = (stats.centred[:, None] - penalties) / divisor
  advantages = jnp.where(stats.varies[:, None], advantages, 0)
  if singleton == 'raw':
    alone = (stats.count == 1)[:, None]
    advantages = jnp.where(alone, totals[:, None] - penalties, advantages)
  advantages = jnp.where(turn_mask, advantages, 0)
  return reductions.poison(
    advantages, group_ids[:, None], turn_mask, num_groups
  )


def gigpo(
  turn_rewards: chex.Array,
  group_ids: chex.Array,
  anchor_ids: chex.Array,
  turn_mask: chex.Array,
  *,
  num_groups: int | None = None,
  num_anchors: int | None = None,
  gamma: float = 0.95,
  episode_weight: float = 1.0,
  anchor_weight: float = 1.0,
  scale: str = 'std',
  ddof: int = 1,
  epsilon: float = 1e-6,
  relative_floor: float = 1e-5,
  episode_stats: str = 'trajectories',
  singleton: str = 'zero',
  baseline: str = 'group',
  turn_penalties: chex.Array | None = None,
) -> chex.Array:
  """Adds a comparison within states to the comparison within tasks.

      A_bt = w_E A_E + ω A_S,   A_S = centred Q within (group, anchor),
      Q_bt = R_t - c_bt,   R_t = r_t + γ R_{t+1}

  `anchor_weight=0` is `grouped.grpo` broadcast; `episode_weight=0` is
  `anchor_advantages` of the discounted returns.

  Args:
    turn_rewards: [B, S] float32.
    group_ids: [B] int32, task, -1 = in no group.
    anchor_ids: [B, S] int32, state before the turn, -1 = no anchor.
    turn_mask: [B, S] bool.
    num_groups: static bound of the group ids; None takes any ids.
    num_anchors: static bound of the anchor ids; None takes any ids.
    gamma: discount per turn; 1 removes the implicit speed bonus.
    episode_weight: w_E.
    anchor_weight: ω.
    scale: 'std' or 'none', for both parts.
    ddof: 0 population, 1 sample std.
    epsilon: ε.
    relative_floor: see `grouped.group_center`.
    episode_stats: 'trajectories' or 'turns', see `episode_advantages`.
    singleton: of the trajectory-level part, 'zero' or 'raw'.
    baseline: of the anchor part, 'group' or 'leave_trajectory_out'.
    turn_penalties: [B, S] float32, c, for that turn only; None = 0.

  Returns:
    [B, S] float32, 0 where masked.

  Reference: Feng et al. 2025, arXiv:2505.10978, Eq. 3-9. The authors' code
  takes A_E's statistics over turns (`episode_stats='turns'`) and keeps a group
  of one (`singleton='raw'`).
  """
  chex.assert_equal_shape([turn_rewards, anchor_ids, turn_mask])
  shared = dict(
    scale=scale, ddof=ddof, epsilon=epsilon, relative_floor=relative_floor
  )
  turn_returns = returns.discounted_returns(
    turn_rewards, turn_mask, gamma=gamma
  )
  if turn_penalties is not None:
    turn_returns -= jnp.where(turn_mask, turn_penalties, 0)
  episode_part = episode_advantages(
    turn_rewards,
    group_ids,
    turn_mask,
    num_groups=num_groups,
    episode_stats=episode_stats,
    singleton=singleton,
    turn_penalties=turn_penalties,
    **shared,
  )
  anchor_part = anchor_advantages(
    turn_returns,
    group_ids,
    anchor_ids,
    turn_mask,
    num_anchors=num_anchors,
    baseline=baseline,
    **shared,
  )
  return episode_weight * episode_part + anchor_weight * anchor_part
