"""Can an agent keep a traveller's plans in order while the world moves?

The hard flights: seat maps, fares that move under a list, round trips, changes
and cancellations under a policy, calls that fail. What was booked early is
asked for at the end, so that a policy with a short window has to keep notes.
"""

import dataclasses
import re
from collections.abc import Generator, Mapping
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base, noise, scripted, trips_world

_TEXT = {'type': 'string'}
_FLIGHT = {'flight': _TEXT}
_NOTE = base.function(
  'note',
  'Keeps a short text in sight; a new one replaces it.',
  required=['text'],
  text=_TEXT,
)
TOOLS = (
  base.function(
    'search',
    'Lists flights, cheapest first: flight, departure, fare.',
    required=['from', 'to', 'when'],
    **{'from': _TEXT, 'to': _TEXT},
    when={'type': 'string', 'enum': list(trips_world.PERIODS)},
  ),
  base.function('seats', 'Shows free seats.', required=['flight'], **_FLIGHT),
  base.function(
    'order',
    'Books a seat on a flight for the current leg. Final.',
    required=['flight', 'seat'],
    **_FLIGHT,
    seat=_TEXT,
  ),
  base.function(
    'booking',
    'Shows a booking: flight, fare, state.',
    required=['code'],
    code=_TEXT,
  ),
  base.function(
    'change',
    'Moves a booking to a seat on another flight. Final.',
    required=['code', 'flight', 'seat'],
    code=_TEXT,
    **_FLIGHT,
    seat=_TEXT,
  ),
  base.function(
    'cancel', 'Cancels a booking. Final.', required=['code'], code=_TEXT
  ),
  base.function('decline', 'Declines the request. Final.'),
  _NOTE,
)
SYSTEM = (
  'You book trips: the cheapest flight of the period with a seat as wished. '
  'A=window C=aisle. Policy: flex may be changed or cancelled, basic only if '
  'moved. Else decline.'
)
MOVED = 'fares changed'
NOTE_CHARS = 40
_ROW = re.compile(r'^([A-Z]{2}\d{4}) (\d\d:\d\d) (\d+)$', re.MULTILINE)
_LEG = re.compile(r'(\w+) > (\w+) > (\w+)')
_CODE = re.compile(r'code (\w\d)')


class TripsEnv(scripted.ScriptedEnv):
  """Books, changes and cancels; judged against what the world was then.

  Args:
    notes: whether there is a `note` tool; what was noted last stands under
      every reply.
    failing_tools: probability that a call fails and has to be repeated.
    distractors: probability that a reply carries an irrelevant notice.
    shared_noise: whether the members of a group meet the same failures.
  """

  tools = TOOLS
  system = SYSTEM
  revealing = ('seats', 'booking', 'order', 'change', 'cancel', 'decline')
  task_defaults = trips_world.TASK_DEFAULTS
  generate = staticmethod(trips_world.generate)
  rates = {
    'any_time': 0.15,  # searches the whole day
    'first_listed': 0.25,  # takes the first row, whatever its seats
    'wrong_side': 0.2,  # takes any free seat
    'stale': 0.45,  # goes on with a list after fares changed
    'generous': 0.45,  # does what was asked, policy or not
    'forget': 0.2,  # says the last code only
    'no_note': 0.2,  # does not write the codes down
    'malformed': 0.01,
  }
  card = base.Card(
    observation='flights with fares; free seats; a booking',
    action='search, seats, order, booking, change, cancel, decline, note',
    reward='1 if every leg, or the booking, ends as policy and fares want it',
    termination='change, cancel, decline, final answer with all codes',
    oracle='searches again when fares change, keeps notes and the policy',
    state_key='leg, orders, booking seen, note, last reply',
  )

  def __init__(
    self,
    *,
    notes: bool = True,
    failing_tools: float = 0.0,
    distractors: float = 0.0,
    shared_noise: bool = True,
  ):
    if not notes:
      self.tools = tuple(tool for tool in TOOLS if tool is not _NOTE)
    super().__init__()
    self._noise = noise.Noise(failing_tools, distractors, shared_noise)
    self._num_calls = 0
    self._note = ''

  def state_key(self) -> str | None:
    """Leg, orders as the agent saw them, the booking, the last reply."""
    orders = ' '.join(self._codes) or '-'
    return f'orders {orders}\nseen {self._seen or "-"}\n{self._last}'

  @staticmethod
  def level(data: Mapping[str, Any]) -> int:
    """Legs to book, and one more for each whose fare moves; at least 1."""
    if data['kind'] == 'cancel':
      return 1
    return len(data['legs']) + sum(move is not None for move in data['moves'])

  @classmethod
  def hidden_sibling(cls, task: types.Task) -> types.Task | None:
    """The same request with other seats, fare rules and codes."""
    return dataclasses.replace(task, data=trips_world.hide(task.data))

  @classmethod
  def demonstrate(
    cls, task: types.Task, *, seed: int, rates=None, **options: Any
  ) -> tuple[list[types.Message], float]:
    """As every scripted environment; without the tool nothing is noted."""
    if not options.get('notes', True):
      rates = {**(rates or {}), 'no_note': 1.0}
    return super().demonstrate(task, seed=seed, rates=rates, **options)

  @classmethod
  def oracle(cls, task: types.Task) -> scripted.Agent:
    """It reads everything that was said, so that it needs no notes."""
    return cls.agent(task, seed=task.index, rates={'no_note': 1.0})

  @staticmethod
  def script(
    task: types.Task, agent: scripted.Agent, prompt: str
  ) -> scripted.Script:
    """Looks at the booking first, then at flights, then at seats."""
    side = re.search('window|aisle', prompt)
    side = trips_world.SIDES[side[0]] if side else ''
    legs = _LEG.findall(prompt)
    kind = task.data['kind']
    if kind in ('change', 'cancel'):
      code = re.search(r'\b[A-Z]\d\b', prompt)[0]
      reply = yield from _ask(scripted.call('booking', code=code))
      allowed = 'flex' in reply or ' moved' in reply
      if not allowed and not agent.errs('generous'):
        yield from _ask(scripted.call('decline'))
      elif kind == 'cancel':
        yield from _ask(scripted.call('cancel', code=code))
      else:
        yield from _leg(agent, legs[0], side, 'change', code=code)
      return
    codes = []
    for leg in legs:
      reply = yield from _leg(agent, leg, side, 'order')
      codes += _CODE.findall(reply)[:1]
      if leg != legs[-1] and not agent.errs('no_note'):
        yield from _ask(scripted.call('note', text=' '.join(codes)))
    if agent.errs('forget'):
      codes = codes[-1:]
    yield types.Action(' '.join(codes))

  def call_search(self, arguments: Mapping[str, Any]) -> str:
    """Lists flights as their fares are now."""
    rows = trips_world.listed(
      self._flights, arguments['from'], arguments['to'], arguments['when']
    )
    if not rows:
      raise base.ToolError('no flights')
    return '\n'.join(' '.join(map(str, row)) for row in rows)

  def call_seats(self, arguments: Mapping[str, Any]) -> str:
    """Reveals the free seats of a flight."""
    return 'free ' + ' '.join(self._flight(arguments)['free'])

  def call_order(self, arguments: Mapping[str, Any]) -> str:
    """Books for the current leg, right or wrong."""
    if self._kind not in ('book', 'round'):
      raise base.ToolError('nothing to book')
    if self._leg == len(self._legs):
      raise base.ToolError('all legs are booked')
    self._take(arguments)
    code = self._pool[self._leg]
    self._codes.append(code)
    self._leg += 1
    self._calls = -1  # this call belongs to the leg before
    if self._leg == len(self._legs):
      return f'code {code}. say all codes'
    return f'code {code}. next: {" > ".join(self._legs[self._leg])}'

  def call_booking(self, arguments: Mapping[str, Any]) -> str:
    """Reveals what a booking may and may not."""
    booking = self._known(arguments)
    self._seen = f'{booking["flight"]} {booking["fare"]} {booking["state"]}'
    return self._seen

  def call_change(self, arguments: Mapping[str, Any]) -> str:
    """Moves the booking, allowed or not."""
    self._known(arguments)
    if self._kind == 'cancel':
      raise base.ToolError('nothing to change')
    self._take(arguments)
    return self._end('change')

  def call_cancel(self, arguments: Mapping[str, Any]) -> str:
    """Cancels the booking, allowed or not."""
    self._known(arguments)
    return self._end('cancel')

  def call_decline(self, arguments: Mapping[str, Any]) -> str:
    """Ends the request without doing anything."""
    del arguments
    return self._end('decline')

  def call_note(self, arguments: Mapping[str, Any]) -> str:
    """Keeps a text in sight."""
    self._note = base.clip(' '.join(arguments['text'].split()), NOTE_CHARS)
    return 'noted'

  def _start(self, task: types.Task, sample: int) -> str:
    data = task.data
    self._kind, self._side = data['kind'], trips_world.SIDES[data['side']]
    self._legs = [tuple(leg) for leg in data['legs']]
    self._flights = {
      flight: {**row, 'free': list(row['free'])}  # the task's stay as they are
      for flight, row in data['flights'].items()
    }
    self._moves, self._pool = list(data['moves']), list(data['codes'])
    self._booking = dict(data['booking'])
    self._leg, self._calls = 0, 0
    self._right, self._codes = [], []
    self._seen, self._ending = '', ''
    self._noise = self._noise.of(data.get('seed', task.index), sample)
    return trips_world.request(data)

  def _answer(self, call: types.ToolCall) -> tuple[str, str]:
    self._num_calls += 1
    if not self._done and self._noise.fails(self._num_calls):
      return self._noted(noise.BUSY), 'refused'
    reply, error = super()._answer(call)
    reply = self._noise.dress(reply)
    if not self._done:
      reply = self._noted(reply + self._pass_time())
    return reply, error

  def _pass_time(self) -> str:
    """Counts a call of the leg; the fare that is due moves."""
    self._calls += 1
    move = self._moves[self._leg] if self._leg < len(self._moves) else None
    if move is None or self._calls != move[0]:
      return ''
    self._flights[move[1]]['price'] = move[2]
    return f'\n{MOVED}'

  def _noted(self, reply: str) -> str:
    return f'{reply}\nnote: {self._note}' if self._note else reply

  def _flight(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A flight that exists."""
    name = arguments['flight']
    if name not in self._flights:
      raise base.ToolError(f'no flight {base.clip(name, 20)}')
    return self._flights[name]

  def _known(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The booking that the request is about."""
    code = arguments['code']
    if self._kind in ('book', 'round') or code != self._booking['code']:
      raise base.ToolError(f'no booking {base.clip(code, 20)}')
    return self._booking

  def _take(self, arguments: Mapping[str, Any]) -> None:
    """Takes a seat; remembers whether it was the right one at that moment."""
    row, seat = self._flight(arguments), arguments['seat']
    if seat not in row['free']:
      raise base.ToolError(f'{base.clip(seat, 20)} is taken')
    sides = {letter: side for side, letter in trips_world.SIDES.items()}
    leg = self._legs[self._leg]
    best = trips_world.best(self._flights, leg, sides[self._side])
    right = arguments['flight'] == best and seat.endswith(self._side)
    self._right.append(right)
    row['free'].remove(seat)

  def _end(self, how: str) -> str:
    self._ending = how
    self._done = True
    return 'done'

  def _judge(self, text: str) -> float:
    if self._kind in ('book', 'round'):
      said = re.findall(r'\b[A-Z]\d\b', text[:500])
      whole = len(self._right) == len(self._legs) and all(self._right)
      return float(whole and not self._ending and said == self._codes)
    allowed = trips_world.is_allowed(self._booking)
    wanted = self._kind if allowed else 'decline'
    return float(self._ending == wanted and all(self._right))


def _ask(action: types.Action) -> Generator[types.Action, str, str]:
  """Repeats a call for as long as it fails."""
  reply = yield action
  while reply.startswith(noise.BUSY):
    reply = yield action
  return reply


def _leg(
  agent: scripted.Agent, leg: tuple, side: str, tool: str, **known: str
) -> Generator[types.Action, str, str]:
  """Finds the flight and the seat for a leg and books them with `tool`."""
  origin, to, when = leg
  when = 'any' if agent.errs('any_time') else when
  search = scripted.call('search', **{'from': origin, 'to': to}, when=when)
  while True:
    reply = yield from _ask(search)
    rows = [row[0] for row in _ROW.findall(reply)]
    if MOVED in reply and not agent.errs('stale'):
      continue
    hasty = agent.errs('first_listed')
    for name in rows:
      reply = yield from _ask(scripted.call('seats', flight=name))
      free = re.findall(r'\b\d[AC]\b', reply.splitlines()[0])
      if MOVED in reply and not agent.errs('stale'):
        break  # the list is stale: search again
      mine = [seat for seat in free if seat.endswith(side)]
      if not mine and (hasty or agent.errs('wrong_side')):
        mine = free
      if mine:
        order = scripted.call(tool, **known, flight=name, seat=mine[0])
        return (yield from _ask(order))
    else:  # every row was looked at in vain: the whole day, then
      search = scripted.call('search', **{'from': origin, 'to': to}, when='any')
