"""How does a trajectory compare with the others of its task?

Every estimator here and in `anchored` is one idea: centre returns within the
members of an id. `group_center` is that primitive; the rest say which returns
and which ids.
"""

from typing import NamedTuple

import chex
import jax.numpy as jnp

from agentrl_jax import reductions

SCALES = ('none', 'std')
SINGLETONS = ('zero', 'raw')


def check_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
  """Raises ValueError unless value is allowed."""
  if value not in allowed:
    raise ValueError(f'{name}={value!r}; allowed: {", ".join(allowed)}')


class GroupStatistics(NamedTuple):
  """What each element knows about its group, all [N].

  Attributes:
    centred: v - mean of the group, 0 where in no group.
    std: spread of the group.
    count: members of the group, 0 where in no group.
    varies: False where the group is constant up to rounding.
  """

  centred: chex.Array
  std: chex.Array
  count: chex.Array
  varies: chex.Array


def group_statistics(
  values: chex.Array,
  ids: chex.Array,
  mask: chex.Array,
  *,
  num_ids: int | None = None,
  ddof: int = 1,
  relative_floor: float = 1e-5,
) -> GroupStatistics:
  """Measures every element's group.

  A group varies if std > relative_floor · max|v|. Sums of equal float32 values
  differ from n·v by up to 5e-7 relative; divided by such a std + ε they would
  look like full-size advantages.

  Args:
    values: [N] float, one per element.
    ids: [N] int32 in [0, num_ids), -1 = in no group.
    mask: [N] bool.
    num_ids: static bound; None takes any ids.
    ddof: 0 population, 1 sample.
    relative_floor: relative spread at or below which a group is constant.

  Returns:
    GroupStatistics; 0 and False where masked.
  """
  chex.assert_rank([values, ids, mask], 1)
  chex.assert_equal_shape([values, ids, mask])
  chex.assert_type(mask, bool)
  if num_ids is None:
    num_ids, ids = ids.shape[0], reductions.dense_ids(ids, mask=mask)
  in_group = mask & (ids >= 0)
  values = jnp.where(in_group, values, 0).astype(jnp.float32)

  def per_member(reduce, x):
    return reductions.gather(reduce(x, ids, mask, num_ids=num_ids), ids, mask)

  count = per_member(reductions.segment_sum, jnp.ones_like(values))
  largest = per_member(reductions.segment_max, jnp.abs(values))
  # Sums of differences to the minimum lose less than sums of the values.
  offsets = values - per_member(reductions.segment_min, values)
  centred = offsets - per_member(reductions.segment_mean, offsets)
  squares = per_member(reductions.segment_sum, jnp.square(centred))
  std = jnp.sqrt(squares / jnp.maximum(count - ddof, 1))
  varies = (count > 1) & (std > relative_floor * largest)
  return GroupStatistics(centred, std, count, varies)


def group_center(
  values: chex.Array,
  ids: chex.Array,
  mask: chex.Array,
  *,
  num_ids: int | None = None,
  scale: str = 'none',
  ddof: int = 1,
  epsilon: float = 1e-6,
  relative_floor: float = 1e-5,
  singleton: str = 'zero',
) -> chex.Array:
  """Centres values within each id, and divides by the spread if asked.

      A_i = v_i - mean_g           scale='none'
      A_i = (v_i - mean_g) / (std_g + ε)       'std'

  exactly 0 in a group with std_g <= relative_floor · max_g|v|.

  Args:
    values: [N] float.
    ids: [N] int32 in [0, num_ids), -1 = in no group.
    mask: [N] bool.
    num_ids: static bound; None takes any ids. An id at or above a given bound
      yields NaN.
    scale: 'none' or 'std'.
    ddof: 0 population, 1 sample std.
    epsilon: ε.
    relative_floor: relative spread at or below which a group is constant.
    singleton: a group of one gives 0 ('zero') or v itself, unscaled ('raw').

  Returns:
    [N] float32, 0 where masked or in no group.

  Raises:
    ValueError: unknown scale or singleton.
  """
  check_one_of('scale', scale, SCALES)
  check_one_of('singleton', singleton, SINGLETONS)
  stats = group_statistics(
    values,
    ids,
    mask,
    num_ids=num_ids,
    ddof=ddof,
    relative_floor=relative_floor,
  )
  divisor = stats.std + epsilon if scale == 'std' else 1.0
  safe = jnp.where(stats.varies, divisor, 1.0)
  centred = jnp.where(stats.varies, stats.centred / safe, 0.0)
  if singleton == 'raw':
    centred = jnp.where(stats.count == 1, values, centred)
  return reductions.poison(centred, ids, mask, num_ids).astype(jnp.float32)


def grpo(
  episode_returns: chex.Array,
  group_ids: chex.Array,
  mask: chex.Array,
  *,
  num_groups: int | None = None,
  scale: str = 'std',
  ddof: int = 1,
  epsilon: float = 1e-6,
  relative_floor: float = 1e-5,
  singleton: str = 'zero',
) -> chex.Array:
  """Compares each trajectory with the others of its task.

      A_b = (R_b - mean_g R) / (std_g R + ε)

  `scale='none'` is Dr. GRPO's estimator.

  Args:
    episode_returns: [B] float32.
    group_ids: [B] int32, task of each trajectory, -1 = in no group.
    mask: [B] bool, True for a trainable trajectory.
    num_groups: static bound; None takes any ids.
    scale: 'std' or 'none'.
    ddof: 0 population, 1 sample std.
    epsilon: ε.
    relative_floor: see `group_center`.
    singleton: 'zero' or 'raw'.

  Returns:
    [B] float32, 0 where masked.

  Reference: Shao et al. 2024, arXiv:2402.03300; Dr. GRPO: Liu et al. 2025,
  arXiv:2503.20783. Constant groups are exactly 0 here, rounding noise divided
  by ε in public codes.
  """
  return group_center(
    episode_returns,
    group_ids,
    mask,
    num_ids=num_groups,
    scale=scale,
    ddof=ddof,
    epsilon=epsilon,
    relative_floor=relative_floor,
    singleton=singleton,
  )


def rloo(
  episode_returns: chex.Array,
  group_ids: chex.Array,
  mask: chex.Array,
  *,
  num_groups: int | None = None,
) -> chex.Array:
  """Compares each trajectory with the mean of the *other* ones of its task.

      A_b = R_b - 1/(n-1) Σ_{i≠b} R_i = n/(n-1) (R_b - mean_g R)

  Args:
    episode_returns: [B] float32.
    group_ids: [B] int32, -1 = in no group.
    mask: [B] bool.
    num_groups: static bound; None takes any ids.

  Returns:
    [B] float32, 0 where masked and in a group of one.

  Reference: Ahmadian et al. 2024, arXiv:2402.14740.
  """
  stats = group_statistics(episode_returns, group_ids, mask, num_ids=num_groups)
  rest = jnp.where(stats.varies, stats.count - 1, 1.0)
  left_out = stats.centred * stats.count / rest
  left_out = jnp.where(stats.varies, left_out, 0.0)
  return reductions.poison(left_out, group_ids, mask, num_groups)


def reinforce(
  episode_returns: chex.Array,
  mask: chex.Array,
  *,
  baseline: str = 'none',
) -> chex.Array:
  """Takes the return itself, or its distance to the batch mean.

      A_b = R_b        baseline='none'
      A_b = R_b - mean R over the batch    'mean'

  Args:
    episode_returns: [B] float32.
    mask: [B] bool.
    baseline: 'none' or 'mean' (the null hypothesis of every table).

  Returns:
    [B] float32, 0 where masked.

  Raises:
    ValueError: unknown baseline.

  Reference: Williams 1992, doi:10.1007/BF00992696.
  """
  check_one_of('baseline', baseline, ('none', 'mean'))
  chex.assert_rank([episode_returns, mask], 1)
  chex.assert_equal_shape([episode_returns, mask])
  if baseline == 'mean':
    one_group = jnp.zeros(mask.shape, jnp.int32)
    return group_center(episode_returns, one_group, mask, num_ids=1)
  return jnp.where(mask, episode_returns, 0).astype(jnp.float32)
