"""How far from success did a turn leave the agent, in the graph of states?"""

import chex
import jax
import jax.numpy as jnp

from agentrl_jax import reductions
from agentrl_jax.advantages import anchored, returns


def _next_keys(
  keys: chex.Array, turn_mask: chex.Array
) -> tuple[chex.Array, chex.Array]:
  """Returns (key of the next true turn, whether there is none), [B, S]."""

  def step(carry, now):
    key, counts = now
    following, is_last = carry
    after = (jnp.where(counts, key, following), is_last & ~counts)
    return after, (following, is_last)

  num = keys.shape[0]
  start = (jnp.full(num, -1, keys.dtype), jnp.ones(num, bool))
  _, found = jax.lax.scan(step, start, (keys.T, turn_mask.T), reverse=True)
  return found[0].T, found[1].T


def goal_distances(
  successes: chex.Array,
  group_ids: chex.Array,
  anchor_ids: chex.Array,
  turn_mask: chex.Array,
) -> chex.Array:
  """Counts the turns to success from the state *after* each turn.

  The graph of a task has an edge from each turn's anchor to the anchor of the
  next turn, and from the last anchor of a success to the goal. A state from
  which no path leads to the goal is one step further than the furthest from
  which one does.

  Args:
    successes: [B] bool.
    group_ids: [B] int32, -1 = in no group.
    anchor_ids: [B, S] int32, state before the turn, -1 = no anchor.
    turn_mask: [B, S] bool.

  Returns:
    [B, S] float32, 0 after the last turn of a success; 0 where masked.
  """
  chex.assert_rank([successes, group_ids, anchor_ids], [1, 1, 2])
  keys = anchored.anchor_keys(group_ids, anchor_ids, turn_mask)
  following, is_last = _next_keys(keys.reshape(turn_mask.shape), turn_mask)
  following = following.ravel()
  reaches_goal = (is_last & successes[:, None]).ravel()
  size, has_key = keys.shape[0], keys >= 0

  def after(distances):
    known = jnp.where(following >= 0, distances[following], jnp.inf)
    return jnp.where(reaches_goal, 0.0, known)

  def relax(state):
    distances, _ = state
    slots = jnp.where(has_key, keys, size)
    steps = jax.ops.segment_min(1 + after(distances), slots, size)
    shorter = jnp.minimum(distances, steps)
    return shorter, jnp.any(shorter != distances)

  start = (jnp.full(size, jnp.inf), jnp.array(True))
  distances, _ = jax.lax.while_loop(lambda state: state[1], relax, start)
  here = jnp.where(has_key, distances[keys], jnp.inf)
  groups = jnp.broadcast_to(group_ids[:, None], turn_mask.shape).ravel()
  groups = reductions.dense_ids(groups, mask=turn_mask.ravel())
  finite = jnp.where(jnp.isfinite(here), here, 0)
  furthest = reductions.segment_max(finite, groups, has_key, num_ids=size)
  furthest = reductions.gather(furthest, groups, groups >= 0)
  result = after(distances)
  result = jnp.where(jnp.isfinite(result), result, furthest + 1)
  return jnp.where(turn_mask, result.reshape(turn_mask.shape), 0)


def graphgpo(
  turn_rewards: chex.Array,
  group_ids: chex.Array,
  anchor_ids: chex.Array,
  turn_mask: chex.Array,
  *,
  num_groups: int | None = None,
  num_anchors: int | None = None,
  gamma: float = 0.1,
  goal_return: float = 10.0,
  success_threshold: float = 0.0,
  episode_weight: float = 1.0,
  anchor_weight: float = 1.0,
  scale: str = 'std',
  ddof: int = 1,
  epsilon: float = 1e-6,
  relative_floor: float = 1e-5,
  episode_stats: str = 'trajectories',
  turn_penalties: chex.Array | None = None,
) -> chex.Array:
  """Compares turns of one state by how near the goal they led.

      Q_bt = 10 γ^d(next state) - c_bt,   A = w_E A_E + ω A_S

  with A_E and A_S of `anchored.gigpo`. A failed trajectory's good turns earn
  what the same turns earned in a successful one.

  Args:
    turn_rewards: [B, S] float32.
    group_ids: [B] int32, -1 = in no group.
    anchor_ids: [B, S] int32, -1 = no anchor.
    turn_mask: [B, S] bool.
    num_groups: static bound of the group ids; None takes any ids.
    num_anchors: static bound of the anchor ids; None takes any ids.
    gamma: γ, per step of distance.
    goal_return: Q of the turn that reaches the goal.
    success_threshold: an episode return above it is a success.
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

  Reference: GraphGPO, 2026, arXiv:2605.26684.
  """
  outcomes = returns.episode_returns(turn_rewards, turn_mask)
  distances = goal_distances(
    outcomes > success_threshold, group_ids, anchor_ids, turn_mask
  )
  turn_returns = goal_return * gamma**distances
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
  anchor_part = anchored.anchor_advantages(
    turn_returns,
    group_ids,
    anchor_ids,
    turn_mask,
    num_anchors=num_anchors,
    **shared,
  )
  return episode_weight * episode_part + anchor_weight * anchor_part
