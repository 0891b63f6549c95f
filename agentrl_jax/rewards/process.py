"""Was this step right? A rule that scores each turn by what is known later.

A right step +1, a wrong one -0.5, a detour +0.3: the scale of human labels of
steps. A positive score is paid once for each thing that has to be done, a
detour once a leg: nothing is gained by doing it again.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentrl_jax import tables, types

RIGHT, DETOUR, WRONG, NOTHING = 'right', 'detour', 'wrong', 'nothing'
_BEST_LAST = (WRONG, NOTHING, DETOUR, RIGHT)
_EARLY = '09:00'  # the flight world's early morning ends here
_EARLY_FILTER = re.compile(r'\s*<\s*0?9:00\s*')


def process(
  trajectory: types.Trajectory,
  *,
  rule: str = 'flight',
  right: float = 1.0,
  detour: float = 0.3,
  wrong: float = -0.5,
) -> list[float]:
  """Scores each turn by the verdict of a rule.

  Args:
    trajectory: finished; the rule may read the task's hidden facts.
    rule: a name in `RULES`, or 'package.module:name' of a function
      trajectory -> [S] of 'right', 'detour', 'wrong', 'nothing' (worth 0).
    right, detour, wrong: what a verdict is worth.

  Raises:
    ValueError: unknown rule or verdict, or a rule of another environment.

  Reference: Lightman et al. 2023, arXiv:2305.20050, for scores of steps.
  """
  judge = tables.resolve(RULES, rule)
  verdicts = judge(trajectory) if trajectory.turns else []
  worth = {RIGHT: right, DETOUR: detour, WRONG: wrong, NOTHING: 0.0}
  strange = set(verdicts) - set(worth)
  if strange:
    raise ValueError(
      f'rule {rule!r} gave {sorted(strange)}; known: {list(worth)}'
    )
  return [worth[verdict] for verdict in verdicts]


@dataclasses.dataclass
class _Leg:
  """What an agent has done for one leg of a flight task."""

  route: tuple[str, str]
  early: list[tuple[str, int]]  # (flight, seats), cheapest first
  early_only: bool = False
  by_price: bool = False
  paid: set[str] = dataclasses.field(default_factory=set)

  def once(self, what: str, verdict: str) -> str:
    """The verdict, the first time; then nothing."""
    if what in self.paid:
      return NOTHING
    self.paid.add(what)
    return verdict


def flight(trajectory: types.Trajectory) -> list[str]:
  """Judges a flight episode by the schedule and the seats behind it.

  Right are: searching the leg's route, narrowing it to early flights sorted by
  price, asking for the seats of those up to the right one, ordering that.
  """
  data = trajectory.task.data
  if 'legs' not in data or 'flights' not in data:
    raise ValueError(
      f'rule flight cannot judge a task of {trajectory.task.env!r}'
    )
  legs = [_leg(data, tuple(route)) for route in data['legs']]
  out, at = [], 0
  for turn in trajectory.turns:
    found = [WRONG] if turn.error or not turn.calls else []
    for call, message in zip(turn.calls, turn.observation):
      if at == len(legs):
        break
      leg, reply = legs[at], message.content
      found.append(_judge(leg, call, reply))
      at += call.name == 'order' and _ordered(reply)
    out.append(min(found or [NOTHING], key=_BEST_LAST.index))
  return out


RULES: dict[str, Callable[[types.Trajectory], Sequence[str]]] = {
  'flight': flight
}


def _leg(data: Mapping[str, Any], route: tuple[str, str]) -> _Leg:
  rows = [
    row
    for row in data['flights']
    if (row[1], row[2]) == route and row[3] < _EARLY
  ]
  rows.sort(key=lambda row: row[4])
  return _Leg(route, [(row[0], row[5]) for row in rows])


def _ordered(reply: str) -> bool:
  return reply.startswith(('ticket issued', 'order placed', 'sold out, order'))


def _judge(leg: _Leg, call: types.ToolCall, reply: str) -> str:
  """The verdict on one call, by its arguments and what came back."""
  arguments = call.arguments
  if reply.startswith('busy'):
    return NOTHING  # not the agent's fault
  if call.name == 'order' and _ordered(reply):
    best = next((name for name, seats in leg.early if seats), None)
    return RIGHT if arguments['flight'] == best else WRONG
  if call.name == 'check_seat' and reply.startswith(
    (f'{arguments.get("flight")} seats', f'{arguments.get("flight")} sold')
  ):
    return _checked(leg, arguments['flight'])
  if call.name in ('search', 'filter', 'page') and re.match(
    r'\d+ flights', reply
  ):
    return _listed(leg, call.name, arguments)
  if call.name == 'pick_first' and re.match(r'[A-Z]{2}\d{4} ', reply):
    return leg.once('detour', DETOUR)
  return WRONG


def _checked(leg: _Leg, name: str) -> str:
  """Right are the early flights up to the cheapest that has a seat."""
  for early, seats in leg.early:
    if early == name:
      return leg.once(f'check {name}', RIGHT)
    if seats:
      break
  return leg.once('detour', DETOUR)


def _listed(leg: _Leg, name: str, arguments: Mapping[str, Any]) -> str:
  """A list was shown: is it nearer to the one that is needed?"""
  if name == 'search':
    leg.early_only = leg.by_price = False
    words = str(arguments.get('query', '')).lower()
    ends = arguments.get('from'), arguments.get('to')
    by_words = re.search(
      rf'{leg.route[0]}.*{leg.route[1]}'.lower(), words
    ) and re.search('early|morning|cheap', words)
    if ends == leg.route or by_words:
      return leg.once('search', RIGHT)
  if name == 'filter':
    if 'dep' in arguments:
      leg.early_only = bool(_EARLY_FILTER.fullmatch(arguments['dep']))
    leg.by_price = arguments.get('sort', 'price' * leg.by_price) == 'price'
    if leg.early_only and leg.by_price and 'search' in leg.paid:
      return leg.once('filter', RIGHT)
  return leg.once('detour', DETOUR)
