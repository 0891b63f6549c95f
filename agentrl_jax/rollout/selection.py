"""Which trajectories are trained on, and in which optimizer update?"""

from collections.abc import Sequence

import numpy as np

from agentrl_jax import types


def varying(groups: Sequence[types.Group], floor: float = 1e-5) -> list[bool]:
  """Says of each group whether its outcomes differ: the same for any estimator.

  Outcomes are sums of the total reward over the turns of trajectories that
  may be judged; a group of one is constant.
  """
  out = []
  for group in groups:
    returns = [
      float(np.sum(t.rewards['total']))
      for t in group.trajectories
      if t.stop_reason.trainable and t.turns
    ]
    spread = np.ptp(returns) if returns else 0.0
    out.append(bool(spread > floor * max(np.abs(returns), default=0.0)))
  return out


def minibatches(
  groups: Sequence[types.Group],
  constant_groups: str,
  num_minibatches: int,
  generator: np.random.Generator,
) -> list[list[int]]:
  """Deals trajectories out to the optimizer updates of one epoch.

  Args:
    groups: of the iteration.
    constant_groups: 'keep' or 'drop' groups whose outcomes are equal.
    num_minibatches: updates; fewer where there are fewer trajectories.
    generator: order of dealing.

  Returns:
    Lists of indices into the flat trajectories, none empty; infrastructure
    failures and trajectories without a turn are in none.
  """
  keep = [True] * len(groups) if constant_groups == 'keep' else varying(groups)
  flat = [
    (good, t) for good, group in zip(keep, groups) for t in group.trajectories
  ]
  usable = [
    i
    for i, (good, t) in enumerate(flat)
    if good and t.turns and t.stop_reason.trainable
  ]
  order = [usable[i] for i in generator.permutation(len(usable))]
  parts = np.array_split(np.array(order, int), num_minibatches)
  return [sorted(part.tolist()) for part in parts if len(part)]
