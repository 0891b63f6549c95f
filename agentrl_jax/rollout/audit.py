"""Does a verifier that nobody trains on agree with the reward?"""

import collections
import math
from collections.abc import Callable, Sequence

import numpy as np

from agentrl_jax import rewards, types


def measure(
  trajectories: Sequence[types.Trajectory],
  name: str,
  part: Callable,
  limit: int = -1,
) -> dict[str, float]:
  """Judges an iteration by a held-out verifier.

  Args:
    trajectories: with `rewards['total']`; none is changed.
    name: of the verifier.
    part: as in `rewards.REWARDS`.
    limit: how many to judge, spread over the batch; -1 = all.

  Returns:
    `audit/NAME`: mean episode sum. `audit/success`: share with a sum above 0.
    `audit/gap`: by how much the share of the trained reward is higher on the
    same trajectories. `audit/pull`: share of what is rewarded above the mean
    of its task, where an update leads, that is above 0 and not confirmed; NaN
    where nothing is above. `audit/failed`: judgements that failed, in no mean.
  """
  judged = [t for t in trajectories if t.stop_reason.trainable]
  paid = collections.defaultdict(list)
  for t in judged:
    paid[t.task.name].append(sum(t.rewards['total']))
  if 0 <= limit < len(judged):
    places = np.linspace(0, len(judged) - 1, limit).round().astype(int)
    judged = [judged[i] for i in places]
  trained, audited, means, failed = [], [], [], 0
  for t in judged:
    alone = types.Group(t.task, (t,))
    (scored,) = rewards.score(alone, {name: part}, {name: 1.0}).trajectories
    if name not in scored.rewards:
      failed += 1
      continue
    audited.append(sum(scored.rewards[name]))
    trained.append(sum(t.rewards['total']))
    means.append(float(np.mean(paid[t.task.name])))
  short = name.rpartition(':')[2]
  if not audited:
    return {'audit/failed': float(failed)}
  success = float(np.mean(np.greater(audited, 0)))
  return {
    f'audit/{short}': float(np.mean(audited)),
    'audit/success': success,
    'audit/gap': float(np.mean(np.greater(trained, 0))) - success,
    'audit/pull': _pull(trained, audited, means),
    'audit/failed': float(failed),
  }


def _pull(
  trained: Sequence[float], audited: Sequence[float], means: Sequence[float]
) -> float:
  """Returns which share of Σ max(reward - mean of its task, 0) is doubtful."""
  above = np.subtract(trained, means)
  above[above <= 1e-6 * np.abs(trained)] = 0.0  # equal but for rounding
  doubtful = np.greater(trained, 0) & np.less_equal(audited, 0)
  whole = float(above.sum())
  return float(above[doubtful].sum()) / whole if whole > 0 else math.nan
