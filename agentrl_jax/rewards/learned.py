"""What does a learned head think? A function that is asked once a group."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import tables, types
from agentrl_jax.rewards import parts

PAYS = ('scores', 'progress')


@parts.over_group
class Learned:
  """Scores of a head: of the outcome, or of each step.

  Args:
    score: 'package.module:name' of a function that takes trajectories and
      returns one number each (an outcome head, paid at the last turn) or one
      number a turn each (a process head). It may load what it likes; this
      package's rewards load no jax.
    options: where given, `score` is called once with them and returns the
      function: `agentrl_jax.scorer:load` takes `directory`.
    pay: of a process head: 'scores' as they are, or 'progress', what a turn
      added to the score before it. Progress adds up to the last score, so that
      no episode is paid for its length.

  Raises:
    ValueError: no such function, options that it does not take, unknown pay.

  Reference: Setlur et al. 2024, arXiv:2410.08146, for progress as a reward.
  """

  waits = True

  def __init__(
    self,
    *,
    score: str,
    options: Mapping[str, Any] | None = None,
    pay: str = 'scores',
  ):
    if pay not in PAYS:
      raise ValueError(f'pay={pay!r}: not one of {", ".join(PAYS)}')
    self._pay = pay
    self._score = tables.resolve({}, score)
    if options is not None:
      self._score = self._score(**options)

  def __call__(self, group: types.Group) -> list[parts.Row]:
    """Asks for all members at once."""
    given = list(self._score(group.trajectories))
    if len(given) != len(group.trajectories):
      raise ValueError(
        f'{len(given)} scores for {len(group.trajectories)} trajectories'
      )
    return [
      self._paid(row)
      if isinstance(row, Sequence)
      else parts.at_the_end(t, float(row))
      for row, t in zip(given, group.trajectories)
    ]

  def _paid(self, row: Sequence[float]) -> Sequence[float]:
    if self._pay == 'scores':
      return row
    return [now - then for then, now in zip([0.0, *row], row)]
