"""Which trajectories are trained on, and in which optimizer update?"""

from collections.abc import Sequence

import numpy as np

from agentrl_jax import rng, types

_OVERLONG = (types.StopReason.LENGTH, types.StopReason.CONTEXT_FULL)


def flat(groups: Sequence[types.Group]) -> list[types.Trajectory]:
  """Returns the trajectories of all groups, in order."""
  return [t for group in groups for t in group.trajectories]


def varying(groups: Sequence[types.Group], floor: float = 1e-5) -> list[bool]:
  """Says of each group whether its outcomes differ: the same for any estimator.

  Outcomes are sums of the total reward over the turns of trajectories that
  may be judged; a group of one is constant, and one whose sample std is at most
  `floor` times the largest, as of `advantages.grouped.group_statistics`.
  """
  out = []
  for group in groups:
    returns = [
      float(np.sum(t.rewards['total']))
      for t in group.trajectories
      if t.stop_reason.trainable and t.turns
    ]
    spread = np.std(returns, ddof=1) if len(returns) > 1 else 0.0
    out.append(bool(spread > floor * max(np.abs(returns), default=0.0)))
  return out


def task_order(num_tasks: int, seed: int, first: int, count: int) -> list[int]:
  """Returns the tasks at some places: epochs of seeded permutations, in order.

  Args:
    num_tasks: there are.
    seed: of the run.
    first: place of the first task, counted from the start of the run.
    count: how many.
  """
  orders: dict[int, np.ndarray] = {}
  out = []
  for place in range(first, first + count):
    epoch, at = divmod(place, num_tasks)
    if epoch not in orders:
      shuffle = rng.generator(seed, 'tasks', epoch)
      orders[epoch] = shuffle.permutation(num_tasks)
    out.append(int(orders[epoch][at]))
  return out


def fill(groups: Sequence[types.Group], count: int) -> list[types.Group]:
  """Takes `count` groups: those that vary, in order, then others to fill up."""
  varies = varying(groups)
  ranked = [g for g, good in zip(groups, varies) if good]
  ranked += [g for g, good in zip(groups, varies) if not good]
  return ranked[:count]


def usable(
  groups: Sequence[types.Group], constant_groups: str, overlong: str = 'keep'
) -> list[int]:
  """Returns indices of the flat trajectories that are trained on.

  Args:
    groups: of the iteration.
    constant_groups: 'keep' groups whose outcomes are equal, or not ('drop',
      'refill').
    overlong: 'keep' or 'drop' those that ran out of tokens: they stay in the
      statistics of their group (DAPO's overlong filtering).

  Returns:
    Ascending; infrastructure failures and trajectories without a turn are not
    among them.
  """
  keep = [True] * len(groups) if constant_groups == 'keep' else varying(groups)
  pairs = [
    (good, t) for good, group in zip(keep, groups) for t in group.trajectories
  ]
  too_long = _OVERLONG if overlong == 'drop' else ()
  return [
    i
    for i, (good, t) in enumerate(pairs)
    if good
    and t.turns
    and t.stop_reason.trainable
    and t.stop_reason not in too_long
  ]


def minibatches(
  indices: Sequence[int],
  num_minibatches: int,
  generator: np.random.Generator,
) -> list[list[int]]:
  """Deals trajectories out to the optimizer updates of one epoch.

  Args:
    indices: of those that are trained on, see `usable`.
    num_minibatches: updates; fewer where there are fewer trajectories.
    generator: order of dealing.

  Returns:
    Ascending lists, none empty.
  """
  order = [indices[i] for i in generator.permutation(len(indices))]
  parts = np.array_split(np.array(order, int), num_minibatches)
  return [sorted(part.tolist()) for part in parts if len(part)]
