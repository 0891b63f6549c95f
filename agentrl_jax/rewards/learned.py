"""What does a learned head think? A function that is asked once a group."""

from collections.abc import Sequence

from agentrl_jax import tables, types
from agentrl_jax.rewards import parts


@parts.over_group
class Learned:
  """Scores of a head: of the outcome, or of each step.

  Args:
    score: 'package.module:name' of a function that takes trajectories and
      returns one number each (an outcome head, paid at the last turn) or one
      number a turn each (a process head). It may load what it likes; this
      package's rewards load no jax.

  Raises:
    ValueError: no such function.
  """

  waits = True

  def __init__(self, *, score: str):
    self._score = tables.resolve({}, score)

  def __call__(self, group: types.Group) -> list[parts.Row]:
    """Asks for all members at once."""
    given = list(self._score(group.trajectories))
    if len(given) != len(group.trajectories):
      raise ValueError(
        f'{len(given)} scores for {len(group.trajectories)} trajectories'
      )
    return [
      row if isinstance(row, Sequence) else parts.at_the_end(t, float(row))
      for row, t in zip(given, group.trajectories)
    ]
