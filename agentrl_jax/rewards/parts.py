"""What is a part of the reward? One signature, whoever writes it.

A part takes a group and returns one row a trajectory: one number a turn, or why
there is none. Most parts look at one trajectory at a time and are written so,
`trajectory -> [S]`; `lift` makes them one. What compares the members of a group
is marked `over_group`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentrl_jax import types


@dataclasses.dataclass(frozen=True)
class Judged:
  """A row with something to remember beside it.

  Attributes:
    values: one number a turn.
    notes: JSON, kept in the trajectory's `info` under the part's name.
  """

  values: Sequence[float]
  notes: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Failure:
  """Why a trajectory has no row: data, never a zero.

  Attributes:
    reason: for a person.
    stop: what the episode's stop reason becomes, so that nothing is learnt
      from it; None leaves the episode, and drops the part for its whole group,
      whose members then stay comparable.
  """

  reason: str
  stop: types.StopReason | None = types.StopReason.REWARD_ERROR


Row = Sequence[float] | Judged | Failure
Part = Callable[[types.Group], Sequence[Row]]


def over_group(part: Callable) -> Callable:
  """Marks a part whose calls take a whole group; returns it."""
  part.over_group = True
  return part


def lift(part: Callable) -> Part:
  """Returns a part of a group from either kind.

  Of a function of a trajectory, a fault is that trajectory's alone.
  """
  if getattr(part, 'over_group', False):
    return part

  def lifted(group: types.Group) -> list[Row]:
    return [_row(part, trajectory) for trajectory in group.trajectories]

  return lifted


def at_the_end(trajectory: types.Trajectory, value: float) -> list[float]:
  """Puts one number at the last turn: [S], [] where there is no turn."""
  return [0.0] * (len(trajectory.turns) - 1) + [value] * bool(trajectory.turns)


def _row(function, trajectory) -> Row:
  try:
    return function(trajectory)
  except Exception as error:  # noqa: BLE001 (a verifier's fault is data)
    return Failure(f'{type(error).__name__}: {error}')
