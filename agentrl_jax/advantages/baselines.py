"""Which other baselines and transforms of one outcome per trajectory exist?

Each is a line or two over the reductions that `grouped` uses.
"""

import chex
import jax.numpy as jnp

from agentrl_jax import reductions
from agentrl_jax.advantages import grouped


def opo(
  episode_returns: chex.Array,
  lengths: chex.Array,
  group_ids: chex.Array,
  mask: chex.Array,
  *,
  num_groups: int | None = None,
) -> chex.Array:
  """Subtracts the length-weighted mean, the variance-optimal baseline.

      A_b = R_b - Σ_i len_i R_i / Σ_i len_i

  Equal lengths make it `grpo(scale='none')`.

  Args:
    episode_returns: [B] float32.
    lengths: [B] float or int, sampled tokens (or turns) of each trajectory.
    group_ids: [B] int32, -1 = in no group.
    mask: [B] bool.
    num_groups: static bound; None takes any ids.

  Returns:
    [B] float32, 0 where masked and in constant groups.

  Reference: Hao et al. 2025, arXiv:2505.23585, Eq. 9.
  """
  chex.assert_equal_shape([episode_returns, lengths, group_ids, mask])
  stats = grouped.group_statistics(
    episode_returns, group_ids, mask, num_ids=num_groups
  )
  ids = reductions.dense_ids(group_ids, mask=mask)
  size = ids.shape[0]
  lengths = jnp.where(mask, lengths, 0).astype(jnp.float32)
  weighted, total = (
    reductions.gather(
      reductions.segment_sum(x, ids, mask, num_ids=size), ids, mask
    )
    for x in (lengths * stats.centred, lengths)
  )
  baseline = weighted / jnp.where(total > 0, total, 1)
  advantages = jnp.where(stats.varies, stats.centred - baseline, 0)
  return reductions.poison(advantages, group_ids, mask, num_groups)


def remax(
  episode_returns: chex.Array, greedy_returns: chex.Array, mask: chex.Array
) -> chex.Array:
  """Subtracts the return of the greedy trajectory of the same task.

      A_b = R_b - R_greedy

  Args:
    episode_returns: [B] float32.
    greedy_returns: [B] float32, of the greedy trajectory of b's task.
    mask: [B] bool.

  Returns:
    [B] float32, 0 where masked.

  Reference: Li et al. 2023, arXiv:2310.10505.
  """
  chex.assert_equal_shape([episode_returns, greedy_returns, mask])
  difference = episode_returns - greedy_returns
  return jnp.where(mask, difference, 0).astype(jnp.float32)


def maxrl(
  episode_returns: chex.Array,
  group_ids: chex.Array,
  mask: chex.Array,
  *,
  num_groups: int | None = None,
  epsilon: float = 1e-6,
) -> chex.Array:
  """Divides the centred return by the mean: rare successes count more.

      A_b = (R_b - mean_g R) / (mean_g R + ε),   R >= 0

  Args:
    episode_returns: [B] float32, not negative.
    group_ids: [B] int32, -1 = in no group.
    mask: [B] bool.
    num_groups: static bound; None takes any ids.
    epsilon: ε.

  Returns:
    [B] float32, 0 where masked and in constant groups. NaN in a group that
    varies and has a negative return: a negative mean would turn every sign.

  Reference: MaxRL, Tajwar et al. 2026, arXiv:2602.02710: for 0/1 rewards an
  estimate of the gradient of log(success rate).
  """
  stats = grouped.group_statistics(
    episode_returns, group_ids, mask, num_ids=num_groups
  )
  mean = jnp.where(stats.varies, episode_returns - stats.centred, 1)
  ids = reductions.dense_ids(group_ids, mask=mask)
  lowest = reductions.segment_min(
    episode_returns, ids, mask, num_ids=ids.shape[0]
  )
  is_defined = reductions.gather(lowest, ids, mask) >= 0
  advantages = jnp.where(is_defined, stats.centred / (mean + epsilon), jnp.nan)
  advantages = jnp.where(stats.varies, advantages, 0)
  return reductions.poison(advantages, group_ids, mask, num_groups)


def pass_at_k(
  episode_returns: chex.Array,
  group_ids: chex.Array,
  mask: chex.Array,
  *,
  num_groups: int | None = None,
) -> chex.Array:
  """Credits the best trajectory alone with its lead over the second best.

      A_b = R_(1) - R_(2) for the best of its task, else 0

  Ties for the best give 0: the best of k does not depend on either.

  Args:
    episode_returns: [B] float32.
    group_ids: [B] int32, -1 = in no group.
    mask: [B] bool.
    num_groups: static bound; None takes any ids.

  Returns:
    [B] float32, 0 where masked and in a group of one.

  Reference: Tang et al. 2025, arXiv:2503.19595, with a group of k.
  """
  chex.assert_rank([episode_returns, group_ids, mask], 1)
  chex.assert_equal_shape([episode_returns, group_ids, mask])
  ids = reductions.dense_ids(group_ids, mask=mask)
  in_group, size = ids >= 0, ids.shape[0]
  values = jnp.where(in_group, episode_returns, 0).astype(jnp.float32)

  def largest(counts):
    best = reductions.segment_max(values, ids, counts, num_ids=size)
    return reductions.gather(best, ids, in_group)

  def count(counts):
    total = reductions.segment_count(ids, counts, num_ids=size)
    return reductions.gather(total, ids, in_group)

  is_best = in_group & (values == largest(in_group))
  lead = largest(in_group) - largest(in_group & ~is_best)
  alone = is_best & (count(is_best) == 1) & (count(in_group) > 1)
  advantages = jnp.where(alone, lead, 0)
  return reductions.poison(advantages, group_ids, mask, num_groups)
