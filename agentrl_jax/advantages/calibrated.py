"""How much evidence is there that an *action* is better in its state?"""

import chex
import jax.numpy as jnp

from agentrl_jax import reductions
from agentrl_jax.advantages import anchored, grouped, returns


def action_advantages(
  turn_returns: chex.Array,
  group_ids: chex.Array,
  anchor_ids: chex.Array,
  action_ids: chex.Array,
  turn_mask: chex.Array,
  *,
  shrinkage: float = 1.0,
  scale: str = 'std',
  ddof: int = 1,
  epsilon: float = 1e-6,
  relative_floor: float = 1e-5,
) -> chex.Array:
  """Compares mean returns of actions in a state, less where evidence is thin.

      A_bt = g_k · n_a / (n_a + κ) · (Q̄_a - Q̄_k) / (std_k Q + ε)
      g_k = V_between / (V_between + V_within)

  over the turns of one state k and, in it, of one action a: turns that did the
  same share one estimate; an action tried once is shrunk by 1/(1 + κ); a state
  in which returns vary as much within an action as between actions is gated
  down. κ = 0 and one return per action is `anchored.anchor_advantages`.

  Args:
    turn_returns: [B, S] float32, Q.
    group_ids: [B] int32, -1 = in no group.
    anchor_ids: [B, S] int32, -1 = no anchor.
    action_ids: [B, S] int32, canonical action, -1 = none (then 0).
    turn_mask: [B, S] bool.
    shrinkage: κ, in turns.
    scale: 'std' or 'none'.
    ddof: 0 population, 1 sample std.
    epsilon: ε.
    relative_floor: see `grouped.group_center`.

  Returns:
    [B, S] float32, 0 where masked, without anchor or action, or alone.
  """
  grouped.check_one_of('scale', scale, grouped.SCALES)
  chex.assert_equal_shape([turn_returns, anchor_ids, action_ids, turn_mask])
  acts = turn_mask & (action_ids >= 0)
  keys = anchored.anchor_keys(group_ids, anchor_ids, acts)
  mask, size = keys >= 0, keys.shape[0]
  values = jnp.where(mask, turn_returns.ravel(), 0).astype(jnp.float32)
  options = dict(ddof=ddof, relative_floor=relative_floor)
  stats = grouped.group_statistics(values, keys, mask, num_ids=size, **options)
  actions = reductions.dense_ids(keys, action_ids.ravel(), mask=mask)
  own = grouped.group_statistics(
    stats.centred, actions, mask, num_ids=size, **options
  )
  lead = stats.centred - own.centred

  def within_state(x):
    total = reductions.segment_sum(x, keys, mask, num_ids=size)
    return reductions.gather(total, keys, mask)

  between = within_state(jnp.square(lead))
  within = within_state(jnp.square(own.centred))
  gate = between / jnp.where(stats.varies, between + within, 1)
  divisor = stats.std + epsilon if scale == 'std' else jnp.ones_like(values)
  shrunk = own.count / jnp.where(mask, own.count + shrinkage, 1)
  advantages = gate * shrunk * lead / jnp.where(stats.varies, divisor, 1)
  return jnp.where(stats.varies, advantages, 0).reshape(turn_mask.shape)


def ecpo(
  turn_rewards: chex.Array,
  group_ids: chex.Array,
  anchor_ids: chex.Array,
  action_ids: chex.Array,
  turn_mask: chex.Array,
  *,
  num_groups: int | None = None,
  gamma: float = 0.95,
  shrinkage: float = 1.0,
  episode_weight: float = 1.0,
  anchor_weight: float = 1.0,
  scale: str = 'std',
  ddof: int = 1,
  epsilon: float = 1e-6,
  relative_floor: float = 1e-5,
  episode_stats: str = 'trajectories',
  turn_penalties: chex.Array | None = None,
) -> chex.Array:
  """Adds calibrated action advantages to the comparison within tasks.

      A_bt = w_E A_E + ω A_S,   A_E of `anchored.gigpo`,
      A_S of `action_advantages`

  Args:
    turn_rewards: [B, S] float32.
    group_ids: [B] int32, -1 = in no group.
    anchor_ids: [B, S] int32, -1 = no anchor.
    action_ids: [B, S] int32, canonical action, -1 = none.
    turn_mask: [B, S] bool.
    num_groups: static bound of the group ids; None takes any ids.
    gamma: discount per turn.
    shrinkage: κ, in turns.
    episode_weight: w_E.
    anchor_weight: ω.
    scale: 'std' or 'none', for both parts.
    ddof: 0 population, 1 sample std.
    epsilon: ε.
    relative_floor: see `grouped.group_center`.
    episode_stats: see `anchored.episode_advantages`.
    turn_penalties: [B, S] float32, c; None = 0.

  Returns:
    [B, S] float32, 0 where masked.

  Reference: Li et al. 2026, arXiv:2606.05885 (its idea; the exact form of
  shrinkage and gate is ours: n/(n + κ) and the correlation ratio).
  """
  turn_returns = returns.discounted_returns(
    turn_rewards, turn_mask, gamma=gamma
  )
  if turn_penalties is not None:
    turn_returns -= jnp.where(turn_mask, turn_penalties, 0)
  shared = dict(
    scale=scale, ddof=ddof, epsilon=epsilon, relative_floor=relative_floor
  )
  episode_part = anchored.episode_advantages(
    turn_rewards,
    group_ids,
    turn_mask,
    num_groups=num_groups,
    episode_stats=episode_stats,
    turn_penalties=turn_penalties,
    **shared,
  )
  anchor_part = action_advantages(
    turn_returns,
    group_ids,
    anchor_ids,
    action_ids,
    turn_mask,
    shrinkage=shrinkage,
    **shared,
  )
  return episode_weight * episode_part + anchor_weight * anchor_part
