"""Is the reward being gamed? An audit, how often each hole is taken, and whose
reward it was.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from agentrl_jax import types
from agentrl_jax.rewards import parts


def audit(trajectory: types.Trajectory) -> list[float]:
  """What the environment's verifier without holes says, at the last turn.

  To be looked at and never trained on: `config.audit_reward='audit'`.

  Raises:
    ValueError: the environment has no such verifier.
  """
  if not trajectory.turns:
    return []
  found = trajectory.turns[-1].info.get('audit')
  if found is None:
    if trajectory.stop_reason is types.StopReason.DONE:
      raise ValueError(
        f'{trajectory.task.env} says nothing in info["audit"] at the end'
      )
    found = 0.0  # given up before the end: not done
  return parts.at_the_end(trajectory, float(found))


def exploits(trajectory: types.Trajectory) -> list[str]:
  """Names of the holes that an episode took, as the environment noted them."""
  named = (turn.info.get('exploit') for turn in trajectory.turns)
  return list(dict.fromkeys(name for name in named if name))


@dataclasses.dataclass(frozen=True)
class Hole:
  """How a kind of task was done.

  Attributes:
    episodes: played, infrastructure failures left out.
    taken: share that took the hole.
    paid: share that was paid.
    honest: share that the audit confirms.
    first_turn: mean turn at which the hole was taken, from 1; NaN for never.
  """

  episodes: int
  taken: float
  paid: float
  honest: float
  first_turn: float


def holes(trajectories: Sequence[types.Trajectory]) -> dict[str, Hole]:
  """Counts by kind of task (`task.data['kind']`), alphabetically."""
  kinds: dict[str, list[types.Trajectory]] = {}
  for trajectory in trajectories:
    if trajectory.stop_reason.trainable and trajectory.turns:
      kind = str(trajectory.task.data.get('kind', trajectory.task.env))
      kinds.setdefault(kind, []).append(trajectory)
  return {kind: _hole(kinds[kind]) for kind in sorted(kinds)}


def attribution(
  groups: Sequence[types.Group], weights: Mapping[str, float]
) -> dict[str, float]:
  """Whose reward is it? Share of each part in what differs within groups.

  With x_p the weighted episode sum of part p, centred in its group, and
  x = Σ_p x_p: Σ x_p x / Σ x². The shares sum to 1; a part that pulls against
  the others has a negative one.

  Args:
    groups: scored.
    weights: of the parts.

  Returns:
    Share by part; NaN where nothing differs.
  """
  columns: dict[str, list[float]] = {name: [] for name in weights}
  for group in groups:
    members = [
      t
      for t in group.trajectories
      if t.stop_reason.trainable and all(name in t.rewards for name in weights)
    ]
    for name, weight in weights.items():
      sums = [weight * math.fsum(t.rewards[name]) for t in members]
      mean = math.fsum(sums) / max(len(sums), 1)
      columns[name] += [value - mean for value in sums]
  total = [math.fsum(row) for row in zip(*columns.values())]
  whole = math.fsum(x * x for x in total)
  return {
    name: math.fsum(a * b for a, b in zip(column, total)) / whole
    if whole
    else math.nan
    for name, column in columns.items()
  }


def _hole(trajectories: Sequence[types.Trajectory]) -> Hole:
  size = len(trajectories)
  turns = [number for t in trajectories for number in _turns_of(t)[:1]]
  return Hole(
    episodes=size,
    taken=sum(bool(exploits(t)) for t in trajectories) / size,
    paid=sum(t.outcome > 0 for t in trajectories) / size,
    honest=sum(sum(_audited(t)) > 0 for t in trajectories) / size,
    first_turn=sum(turns) / len(turns) if turns else math.nan,
  )


def _turns_of(trajectory: types.Trajectory) -> list[int]:
  """Turns, from 1, at which a hole was taken."""
  infos = (turn.info for turn in trajectory.turns)
  return [i for i, info in enumerate(infos, 1) if info.get('exploit')]


def _audited(trajectory: types.Trajectory) -> list[float]:
  """The audit, or the outcome where the environment has none."""
  try:
    return audit(trajectory)
  except ValueError:
    return [trajectory.outcome]
