"""What does a flight world look like? Random ones, and the mission's own.

Values come from small fixed sets (24 flights, 8 cities, 14 departures, 34
prices), so that a tokenizer of a few hundred tokens can hold each as an atom.
Whatever decides success is drawn so that no shortcut works: the cheapest flight
is mostly not an early one, and the cheapest early ones are often sold out.
"""

import random
from collections.abc import Sequence
from typing import Any

from agentrl_jax.envs import flight_db

CITIES = (
  'Beijing',
  'Shanghai',
  'Chengdu',
  'Shenzhen',
  'Xian',
  'Wuhan',
  'Harbin',
  'Kunming',
)
FLIGHTS = tuple(
  f'{carrier}{number}'
  for carrier in ('CA', 'MU', 'CZ', 'HU')
  for number in (1501, 1831, 2407, 5101, 6318, 9270)
)
EARLY_TIMES = ('06:00', '06:30', '07:00', '07:30', '08:00', '08:30')
LATE_TIMES = (
  '09:30',
  '10:30',
  '12:00',
  '13:30',
  '15:00',
  '17:00',
  '19:00',
  '21:00',
)
PRICES = tuple(range(300, 1300, 30))
ROUTES = 3  # routes of a world; those beyond the task's legs are noise

TASK_DEFAULTS = {
  'legs': 2,  # 1-3
  'flights': 8,  # a route, 5-8 (24 ids in all)
  'sold_out': (0.5, 0.5),  # P(k cheapest early ones are sold out)
  'early_cheapest': 0.15,  # P(the cheapest of all is an early one)
}

# A policy can only strengthen what it does at times: demonstrations go on past
# sold-out flights more often than the tasks ask for.
DEMONSTRATION_DEFAULTS = {'sold_out': (0.35, 0.5, 0.15)}


def _route(
  draw: random.Random, flights: int, sold_out: Sequence[float], cheapest: float
) -> list[tuple[str, int, int]]:
  """Draws (departure, price, seats) of a route's flights, shuffled."""
  gone = draw.choices(range(len(sold_out)), sold_out)[0]
  num_early = max(gone + 1, draw.choice((3, 4)))
  prices = sorted(draw.sample(PRICES, flights))
  first = draw.random() < cheapest
  rest = draw.sample(prices[1:], num_early - first)
  early = sorted(rest + prices[:1] * first)
  late = [price for price in prices if price not in early]
  early_times = draw.sample(EARLY_TIMES, len(early))
  late_times = draw.sample(LATE_TIMES, len(late))
  rows = []
  for rank, (time, price) in enumerate(zip(early_times, early)):
    if rank <= gone:
      seats = 0 if rank < gone else draw.randint(1, 9)
    else:
      seats = draw.choice((0, 1, 4, 9))
    rows.append((time, price, seats))
  for time, price in zip(late_times, late):
    rows.append((time, price, draw.choice((0, 2, 5, 9))))
  draw.shuffle(rows)
  return rows


def generate(
  seed: int,
  *,
  legs: int = TASK_DEFAULTS['legs'],
  flights: int = TASK_DEFAULTS['flights'],
  sold_out: Sequence[float] = TASK_DEFAULTS['sold_out'],
  early_cheapest: float = TASK_DEFAULTS['early_cheapest'],
) -> dict[str, Any]:
  """Draws a task: legs and a world of flights, one best flight a leg.

  Args:
    seed: the only source of randomness.
    legs: routes to book, 1-3, each leaving where the last one ended.
    flights: flights a route, 5-8.
    sold_out: weights of how many of the cheapest early flights are sold out.
    early_cheapest: probability that the cheapest flight of all is early.

  Returns:
    `legs` [[origin, destination]], `flights` rows as `flight_db.create` takes
    them, and `seed`, which the environment's noise depends on.
  """
  if not 1 <= legs <= ROUTES:
    raise ValueError(f'legs={legs}: a flight world has 1-{ROUTES} legs')
  if not 5 <= flights <= len(FLIGHTS) // ROUTES:
    raise ValueError(f'flights={flights}: give 5-{len(FLIGHTS) // ROUTES}')
  if not 1 <= len(sold_out) <= 4:
    raise ValueError(f'sold_out={sold_out}: give 1-4 weights')
  draw = random.Random(seed)
  stops = draw.sample(CITIES, ROUTES + 1)
  names = draw.sample(FLIGHTS, flights * ROUTES)
  rows = []
  for origin, destination in zip(stops, stops[1:]):
    for time, price, seats in _route(draw, flights, sold_out, early_cheapest):
      rows.append([names.pop(), origin, destination, time, price, seats])
  draw.shuffle(rows)
  routes = [[a, b] for a, b in zip(stops, stops[1:])]
  return {'legs': routes[:legs], 'flights': rows, 'seed': seed}


def hide(data: dict[str, Any]) -> dict[str, Any]:
  """The same schedule with other seats: the best flights are now sold out."""
  flipped = [[*row[:5], 0 if row[5] else 3] for row in data['flights']]
  return {**data, 'flights': flipped}


def mission() -> dict[str, Any]:
  """The world in which the mission's trajectories A and B replay literally.

  200 flights touch Beijing or Shanghai and MU5101 heads the list; 12 go from
  one to the other before noon below 1000; CA1831 is the cheapest early one but
  sold out, CA1501 at 06:30 for 760 the right one.
  """
  route = ['Beijing', 'Shanghai']
  rows = [
    ['MU5101', *route, '09:30', 1280, 9],
    ['CA1831', *route, '07:00', 690, 0],
    ['CA1501', *route, '06:30', 760, 4],
    ['MU5103', *route, '08:00', 810, 2],
    ['HU7601', *route, '08:30', 940, 0],
  ]
  for number in range(8):  # before noon and below 1000, but not early
    time = f'{9 + number // 4:02d}:{number % 4 * 15:02d}'
    rows.append([f'CZ{3100 + number}', *route, time, 500 + 50 * number, 5])
  elsewhere = CITIES[2:]
  for number in range(200 - len(rows)):
    city = elsewhere[number % len(elsewhere)]
    ends = (city, route[number % 2])
    origin, destination = ends if number % 4 < 2 else ends[::-1]
    time = f'{9 + number % 13:02d}:{number % 6 * 10:02d}'
    rows.append(
      [f'HU{2000 + number}', origin, destination, time, 320 + 5 * number, 7]
    )
  for number in range(10):  # touches neither city
    rows.append(
      [f'CA{4100 + number}', 'Xian', 'Wuhan', '07:30', 350 + 10 * number, 3]
    )
  return {'legs': [route], 'flights': rows, 'seed': 0}


def is_well_posed(data: dict[str, Any]) -> bool:
  """Each leg has a best flight, and no other early one at its price."""
  database = flight_db.create(data['flights'])
  try:
    for leg, route in enumerate(data['legs']):
      flight = flight_db.best(database, leg, *route)
      early = [
        row
        for row in data['flights']
        if row[1:3] == list(route) and row[3] < flight_db.EARLY
      ]
      prices = [row[4] for row in early]
      if flight is None or len(set(prices)) < len(prices):
        return False
  finally:
    database.close()
  return True
