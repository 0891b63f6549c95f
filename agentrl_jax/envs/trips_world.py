"""What does a traveller want, and what does the airline hide and change?

Four kinds of request: legs to book, a round trip, a booking to change, one to
cancel. Seats and fare rules are hidden until asked for; fares move once a leg,
after a number of calls that the task fixes, so that a list grows stale and the
same actions always meet the same world.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax.envs import flight_world

KINDS = ('book', 'round', 'change', 'cancel')
SEATS = ('1A', '1C', '2A', '2C', '3A', '3C')
SIDES = {'window': 'A', 'aisle': 'C'}
EARLY, EVENING = ('00:00', '08:59'), ('17:01', '23:59')
PERIODS = {'early': EARLY, 'evening': EVENING, 'any': ('00:00', '23:59')}
_TIMES = {
  'early': flight_world.EARLY_TIMES,
  'day': ('09:30', '10:30', '12:00', '13:30', '15:00'),
  'evening': ('17:30', '18:00', '19:00', '20:00', '21:00', '22:00'),
}
_PRICES = range(300, 900, 30)
_RISE = 600  # of the best flight's fare: beyond any other
MAX_LEGS = 3

TASK_DEFAULTS = {
  'kinds': KINDS,  # each as likely as the others
  'legs': 2,  # of kind 'book', 1-3
  'flights': 5,  # a route, 4-8
  'moving': 0.5,  # P(the best fare of a leg moves)
}


def generate(
  seed: int,
  *,
  kinds: Sequence[str] = TASK_DEFAULTS['kinds'],
  legs: int = TASK_DEFAULTS['legs'],
  flights: int = TASK_DEFAULTS['flights'],
  moving: float = TASK_DEFAULTS['moving'],
) -> dict[str, Any]:
  """Draws a request and its world.

  Returns:
    `kind`; `legs` [[from, to, period]] to book; `side` of the seat wanted;
    `flights` {id: {route, time, price, free}}; `moves`, for each leg None or
    [calls, flight, price]; `codes` of the bookings to come; `booking`, the one
    to change or cancel: {code, flight, fare, state}; `seed`, on which the
    environment's noise depends.

  Raises:
    ValueError: an option out of its range.
  """
  _check(kinds, legs, flights, moving)
  draw = random.Random(seed)
  kind = draw.choice(list(kinds))
  stops = draw.sample(flight_world.CITIES, MAX_LEGS + 1)
  routes = _legs(kind, legs, stops)
  side = draw.choice(tuple(SIDES))
  names = draw.sample(flight_world.FLIGHTS, flights * len(routes))
  world, moves = {}, []
  for route in routes:
    rows = _route(
      draw, route, SIDES[side], [names.pop() for _ in range(flights)]
    )
    world |= rows
    moves.append(
      _move(draw, rows, route, side) if draw.random() < moving else None
    )
  codes = draw.sample([f'{a}{n}' for a in 'KMQRTX' for n in range(2, 10)], 4)
  booking = {
    'code': codes.pop(),
    'flight': draw.choice([f for f in world if world[f]['time'] >= '09:00']),
    'fare': draw.choice(('flex', 'basic')),
    'state': draw.choice(('kept', 'kept', 'moved')),
  }
  order = sorted(world)
  draw.shuffle(order)
  return {
    'kind': kind,
    'legs': [list(route) for route in routes],
    'side': side,
    'flights': {flight: world[flight] for flight in order},
    'moves': moves,
    'codes': codes,
    'booking': booking,
    'seed': seed,
  }


def _check(kinds, legs, flights, moving) -> None:
  unknown = [kind for kind in kinds if kind not in KINDS]
  if unknown or not kinds:
    raise ValueError(f'kinds={kinds}: give some of {", ".join(KINDS)}')
  if not 1 <= legs <= MAX_LEGS:
    raise ValueError(f'legs={legs}: give 1-{MAX_LEGS}')
  if not 4 <= flights <= len(flight_world.FLIGHTS) // MAX_LEGS:
    most = len(flight_world.FLIGHTS) // MAX_LEGS
    raise ValueError(f'flights={flights}: give 4-{most}')
  if not 0 <= moving <= 1:
    raise ValueError(f'moving={moving}: give a probability')


def _legs(kind: str, legs: int, stops: Sequence[str]) -> list[tuple]:
  if kind == 'round':
    out, back = stops[:2], stops[1::-1]
    return [(*out, 'early'), (*back, 'evening')]
  count = legs if kind == 'book' else 1
  return [(*pair, 'early') for pair in zip(stops[:count], stops[1:])]


def _route(
  draw: random.Random, route: tuple, side: str, names: Sequence[str]
) -> dict[str, dict[str, Any]]:
  """Draws a route's flights: two in the period asked for have a seat."""
  origin, destination, period = route
  other = 'early' if period == 'evening' else 'evening'
  wanted = 3 if len(names) > 4 else 2
  times = draw.sample(_TIMES[period], wanted)
  times += draw.sample(_TIMES['day'], 1)
  times += draw.sample(_TIMES[other], len(names) - len(times))
  prices = draw.sample(_PRICES, len(names))
  full = draw.randrange(wanted) if wanted > 2 else -1
  rows = {}
  for rank, (name, time, price) in enumerate(zip(names, times, prices)):
    free = set(draw.sample(SEATS, draw.randint(1, 3)))
    mine = {seat for seat in SEATS if seat.endswith(side)}
    if rank == full:
      free = (free - mine) or {draw.choice(sorted(set(SEATS) - mine))}
    elif rank < wanted and not free & mine:
      free.add(draw.choice(sorted(mine)))
    rows[name] = {
      'route': [origin, destination],
      'time': time,
      'price': price,
      'free': sorted(free),
    }
  return rows


def _move(
  draw: random.Random, rows: Mapping[str, Any], route: tuple, side: str
) -> list:
  """The best flight grows dear after two to four calls of the leg."""
  flight = best(rows, route, side)
  return [draw.randint(2, 4), flight, rows[flight]['price'] + _RISE]


def fits(row: Mapping[str, Any], leg: Sequence[str]) -> bool:
  """Whether a flight serves a leg in its period of the day."""
  first, last = PERIODS[leg[2]]
  return row['route'] == list(leg[:2]) and first <= row['time'] <= last


def listed(
  flights: Mapping[str, Any], origin: str, destination: str, period: str
) -> list[tuple[str, str, int]]:
  """Rows (flight, time, price), cheapest first; equal fares by flight."""
  leg = (origin, destination, period)
  rows = [
    (flight, row['time'], row['price'])
    for flight, row in flights.items()
    if fits(row, leg)
  ]
  return sorted(rows, key=lambda row: (row[2], row[0]))


def best(
  flights: Mapping[str, Any], leg: Sequence[str], side: str
) -> str | None:
  """The cheapest flight of a leg's period with a free seat on that side."""
  for flight, _, _ in listed(flights, *leg):
    if any(seat.endswith(SIDES[side]) for seat in flights[flight]['free']):
      return flight
  return None


def is_allowed(booking: Mapping[str, Any]) -> bool:
  """The policy: flex always, basic only if the airline moved the flight."""
  return booking['fare'] == 'flex' or booking['state'] == 'moved'


def request(data: Mapping[str, Any]) -> str:
  """What the traveller says."""
  legs = ', '.join(' > '.join(leg) for leg in data['legs'])
  code = data['booking']['code']
  if data['kind'] == 'cancel':
    return f'Cancel {code}.'
  if data['kind'] == 'change':
    return f'Change {code}: {legs}, {data["side"]}.'
  return f'Book {legs}, {data["side"]}. Then say all codes.'


def hide(data: Mapping[str, Any]) -> dict[str, Any]:
  """The same request with other seats, fare rules and codes."""
  flights = {
    flight: {**row, 'free': [s for s in SEATS if s not in row['free']]}
    for flight, row in data['flights'].items()
  }
  booking = dict(data['booking'])
  booking['fare'] = 'basic' if booking['fare'] == 'flex' else 'flex'
  return {
    **data,
    'flights': flights,
    'booking': booking,
    'codes': list(reversed(data['codes'])),
  }
