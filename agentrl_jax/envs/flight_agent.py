"""Who plays the flight environment without having learnt anything?

A scripted agent that reads only what it was shown. With its rates at zero it is
the oracle; with the default ones it shows the format of calls and every right
decision often, and a whole right episode seldom: supervised fine-tuning on it
teaches to call tools, and leaves the strategy to reinforcement learning.
"""

import dataclasses
import random
import re
from collections.abc import Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base, flight, noise, scripted
from agentrl_jax.envs.scripted import broken, call

_ROW = re.compile(
  r'^([A-Z]{2}\d{4}) (\d\d:\d\d) (\d+)(?: (\w+) > (\w+))?$', re.M
)
_LEG = re.compile(r'(\w+) > (\w+)')


@dataclasses.dataclass(frozen=True)
class Rates:
  """Probability of each kind of mistake, each time it could be made.

  Of a list just found: `skip_filter` takes the first flight shown, `no_early`
  sorts all by price, `by_time` sorts early ones by time, `page` and `research`
  are harmless detours. Later: `skip_check` orders unasked, `order_sold_out`
  orders although the answer was no. `broad_query` searches with too few words,
  `malformed` breaks the JSON.
  """

  skip_filter: float = 0.14
  no_early: float = 0.26
  by_time: float = 0.19
  page: float = 0.05
  research: float = 0.03
  skip_check: float = 0.42
  order_sold_out: float = 0.25
  broad_query: float = 0.0
  malformed: float = 0.01


# What goes through its mind before a call, by tool and arguments.
_THOUGHTS = {
  'search from to': 'find {from} > {to}',
  'search query': 'find {query}',
  'filter dep sort': 'early ones by {sort}',
  'filter sort': 'all by {sort}',
  'page': 'more rows',
  'pick_first': 'see the first',
  'check_seat flight': 'seats on {flight}?',
  'order flight': 'take {flight}',
}

ORACLE = Rates(**dict.fromkeys(Rates.__dataclass_fields__, 0.0))


class Agent:
  """Plays one episode: `act` takes the new messages and returns an action.

  Args:
    seed: of the mistakes.
    rates: their probabilities.
    traces: whether it writes a short `<think>` trace before each call.
  """

  def __init__(
    self, *, seed: int, rates: Rates | None = None, traces: bool = False
  ):
    self._draw = random.Random(f'flight_agent {seed}')
    self._rates = Rates() if rates is None else rates
    self._traces = traces
    self._legs = []
    self._decide = self._search
    self._last = ''
    self._retry = None
    self._detours = set()
    self.mistakes = []

  def reseed(self, seed: Any) -> None:
    """Draws later mistakes anew; what was decided stays."""
    self._draw.seed(f'flight_agent {seed}')

  def act(self, messages: Sequence[types.Message]) -> types.Action:
    """Decides from the messages that came since the last action."""
    text = '\n'.join(message.content for message in messages)
    if self._retry is None:
      self._legs = _LEG.findall(text)
      action = self._search('')
    elif text.startswith(('error', noise.BUSY)):
      action = self._retry
    else:
      action = self._decide(text)
    self._retry = action
    if self._traces:
      action = thoughtful(action)
    if self._errs('malformed'):
      return broken(action)
    return action

  def _errs(self, kind: str) -> bool:
    rate = getattr(self._rates, kind)
    if rate and self._draw.random() < rate:
      self.mistakes.append(kind)
      return True
    return False

  def _search(self, text: str) -> types.Action:
    """Starts the leg that the last reply names (or the first)."""
    del text
    self._detours.clear()
    return self._search_again()

  def _search_again(self) -> types.Action:
    self._rows, self._tried = [], 0
    self._decide = self._on_list
    origin, destination = self._legs[0]
    if self._errs('broad_query'):
      return call('search', query=f'{origin} {destination} flight')
    return call('search', **{'from': origin, 'to': destination})

  def _on_list(self, text: str) -> types.Action:
    """A list was found, unfiltered: what now?"""
    self._read(text)
    draw, rates = self._draw.random(), self._rates
    for kind in ('skip_filter', 'no_early', 'by_time', 'page', 'research'):
      draw -= getattr(rates, kind)
      if draw >= 0:
        continue
      if kind in self._detours:
        break  # the same detour twice in a leg is no demonstration
      self.mistakes.append(kind)
      return self._wander(kind)
    return self._list('filter', dep='<09:00', sort='price')

  def _wander(self, kind: str) -> types.Action:
    """Goes wrong, or the long way, at a list."""
    if kind == 'no_early':
      return self._list('filter', sort='price')
    if kind == 'by_time':
      return self._list('filter', dep='<09:00', sort='time')
    if kind == 'skip_filter':
      if self._draw.random() < 0.5:
        return self._list('pick_first')
      return self._next()
    self._detours.add(kind)
    if kind == 'page':
      self._rows, self._decide = [], self._on_list
      return call('page')
    return self._search_again()

  def _list(self, name: str, **arguments: str) -> types.Action:
    """A call whose reply lists the candidates."""
    self._rows, self._tried = [], 0
    self._decide = self._on_candidates
    return call(name, **arguments)

  def _on_candidates(self, text: str) -> types.Action:
    """Candidates were listed, best first."""
    if not self._read(text):  # the list is at its end: book what was seen
      return self._order(self._last)
    return self._next()

  def _next(self) -> types.Action:
    """Takes the next candidate; pages when all rows shown are used up."""
    if self._tried == len(self._rows):
      self._decide = self._on_candidates
      return call('page')
    self._last = self._rows[self._tried]
    self._tried += 1
    if self._errs('skip_check'):
      return self._order(self._last)
    self._decide = self._on_check
    return call('check_seat', flight=self._last)

  def _on_check(self, text: str) -> types.Action:
    """A seat was asked for."""
    sold_out = f'{self._last} sold out' in text
    if sold_out and not self._errs('order_sold_out'):
      return self._next()
    return self._order(self._last)

  def _order(self, name: str) -> types.Action:
    self._legs = self._legs[1:]
    self._decide = self._search
    return call('order', flight=name)

  def _read(self, text: str) -> int:
    """Adds the rows of this leg that an observation shows."""
    found = [
      row[0]
      for row in _ROW.findall(text)
      if not row[3] or row[3:] == self._legs[0]
    ]
    self._rows += found
    self._last = self._last or ''.join(found[:1])
    return len(found)


def thoughtful(action: types.Action) -> types.Action:
  """The same call after a short trace."""
  (made,) = action.calls
  kind = ' '.join((made.name, *sorted(made.arguments)))
  thought = _THOUGHTS[kind].format(**made.arguments)
  text = f'<think>{thought}</think>{action.text}'
  return dataclasses.replace(action, text=text)


def play(
  task: types.Task, agent, *, max_turns: int = 30, **options: Any
) -> tuple[list[types.Message], float]:
  """Plays an episode to its end.

  Args:
    task: a flight task.
    agent: something with `act(messages) -> Action`.
    max_turns: turns after which the episode is given up.
    **options: of `FlightEnv`.

  Returns:
    All messages, system prompt first, and the reward.
  """
  env = flight.FlightEnv(**options)
  return scripted.play(env, task, agent, max_turns=max_turns)


class NoSeatCheck(Agent):
  """Knows all but one thing: orders the cheapest early flight unasked."""

  def __init__(self, *, seed: int):
    rates = dataclasses.replace(ORACLE, skip_check=1.0)
    super().__init__(seed=seed, rates=rates)


class RandomAgent:
  """Calls random tools with values that it has seen."""

  def __init__(self, *, seed: int):
    self._draw = random.Random(f'random {seed}')
    self._flights, self._legs = [], []

  def act(self, messages: Sequence[types.Message]) -> types.Action:
    """Any valid call."""
    text = '\n'.join(message.content for message in messages)
    self._legs = self._legs or _LEG.findall(text)
    self._flights += [row[0] for row in _ROW.findall(text)]
    draw = self._draw
    names = ['search', 'page', 'filter', 'pick_first']
    name = draw.choice(names + ['check_seat', 'order'] * bool(self._flights))
    if name == 'search':
      origin, destination = draw.choice(self._legs)
      return call(name, **{'from': origin, 'to': destination})
    if name == 'filter':
      sort = draw.choice(('price', 'time'))
      return call(name, dep='<09:00', sort=sort)
    if name in ('check_seat', 'order'):
      return call(name, flight=draw.choice(self._flights))
    return call(name)


AGENTS = {
  'oracle': lambda seed: Agent(seed=seed, rates=ORACLE),
  'demonstrations': lambda seed: Agent(seed=seed),
  'no_seat_check': lambda seed: NoSeatCheck(seed=seed),
  'random': lambda seed: RandomAgent(seed=seed),
}


def baseline_success(name: str, num_tasks: int, **options: Any) -> float:
  """Success rate of a scripted agent on freshly drawn tasks.

  Args:
    name: a key of `AGENTS`.
    num_tasks: episodes, one a task.
    **options: of the environment and its tasks.

  Returns:
    Share of episodes with reward 1.
  """
  env_options, task_options = base.split_options(flight.FlightEnv, options)
  total = 0.0
  for index in range(num_tasks):
    data = flight.FlightEnv.generate(index, **task_options)
    task = types.Task('flight', 'baseline', index, data)
    total += play(task, AGENTS[name](index), **env_options)[1]
  return total / num_tasks
