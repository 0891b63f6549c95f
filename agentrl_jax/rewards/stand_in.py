"""What does a judge's noise cost? A judge whose faults are known.

It is asked as any other: the same question, ids, JSON and checks. But it looks
the attempts up, instead of reading them, and errs on purpose.
"""

import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence

from agentrl_jax import types
from agentrl_jax.rewards import parts, process, ruler

_ATTEMPT = re.compile(r'<attempt id="(\w+)">\n(.*)\n</attempt>')


def grade(
  trajectory: types.Trajectory, *, rule: str = 'flight', enough: int = 6
) -> float:
  """Says how good an attempt is, 0 to 1, by what is hidden from the agent.

  Half for the outcome; half for the right steps of `process`, of `enough`.

  Args:
    trajectory: finished.
    rule: a name in `process.RULES`.
    enough: right steps of a whole solution.
  """
  worth = process.process(trajectory, rule=rule, detour=0.0, wrong=0.0)
  return (trajectory.outcome > 0) / 2 + min(sum(worth) / enough, 1.0) / 2


@parts.over_group
class StandIn(ruler.Ruler):
  """RULER with a judge that knows the grade, and errs by a known amount.

  Args:
    noise: standard deviation of what it adds to a grade.
    rule, enough: of `grade`.
    **options: of `ruler.Ruler`.

  Raises:
    ValueError: noise below 0, or options that the ruler refuses.
  """

  def __init__(
    self, *, noise: float, rule: str = 'flight', enough: int = 6, **options
  ):
    if not noise >= 0:
      raise ValueError(f'noise={noise}: must be >= 0')
    super().__init__(judge=self._complete, **options)
    self._noise, self._rule, self._enough = noise, rule, enough
    self._grades: dict[str, float] = {}

  def __call__(self, group: types.Group) -> list[parts.Row]:
    """Grades the members, then asks about them."""
    for t in group.trajectories:
      known = grade(t, rule=self._rule, enough=self._enough)
      self._grades[_key(ruler.conversation(t))] = known
    return super().__call__(group)

  def _complete(self, messages: Sequence[Mapping[str, str]]) -> str:
    """What an endpoint would have said."""
    text = messages[-1]['content']
    start = json.loads(text.split('\n')[1])
    scores = []
    for name, line in _ATTEMPT.findall(text):
      known = self._grades[_key([*start, *json.loads(line)])]
      draw = random.Random(f'{name} {line}')
      scores.append({'id': name, 'score': known + draw.gauss(0, self._noise)})
    return f'My scores: {json.dumps({"scores": scores})}'


def _key(conversation: Sequence[Mapping[str, str]]) -> str:
  text = json.dumps(list(conversation))
  return hashlib.sha256(text.encode()).hexdigest()
