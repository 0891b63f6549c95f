"""Locks the facts of a world: what is selected, ordered, best, verified."""

import pytest

from agentrl_jax.envs import flight_db
from agentrl_jax.envs.flight_db import View

ROUTE = ('Beijing', 'Xian')
FLIGHTS = [
  ['CA1501', *ROUTE, '07:00', 600, 1],
  ['MU5101', *ROUTE, '12:00', 300, 5],
  ['CZ1501', *ROUTE, '06:00', 500, 0],
  ['HU1501', *ROUTE, '08:30', 600, 4],
  ['CA1831', 'Xian', 'Wuhan', '06:30', 400, 2],
]


@pytest.fixture
def world():
  database = flight_db.create(FLIGHTS)
  yield database
  database.close()


def ids(database, **view):
  return [row[0] for row in flight_db.select(database, View(**view))]


@pytest.mark.parametrize(
  'view, expected',
  [
    ({}, ['CA1501', 'MU5101', 'CZ1501', 'HU1501', 'CA1831']),
    ({'origin': 'Xian'}, ['CA1831']),
    ({'destination': 'Xian', 'below': 600}, ['MU5101', 'CZ1501']),
    ({'before': '07:00'}, ['CZ1501', 'CA1831']),
    ({'departure': ('>=', '08:30')}, ['MU5101', 'HU1501']),
    ({'departure': ('<=', '06:30')}, ['CZ1501', 'CA1831']),
    ({'touching': ('Wuhan', 'Rome')}, ['CA1831']),
    # Ties stay in the order of the schedule.
    (
      {'origin': 'Beijing', 'sort': 'price'},
      ['MU5101', 'CZ1501', 'CA1501', 'HU1501'],
    ),
    ({'origin': 'Beijing', 'sort': 'time', 'below': 400}, ['MU5101']),
  ],
)
def test_select_by_hand(world, view, expected):
  assert ids(world, **view) == expected


def test_a_row_shows_no_seats(world):
  row = flight_db.select(world, View(origin='Xian'))[0]
  assert row == ('CA1831', 'Xian', 'Wuhan', '06:30', 400)


@pytest.mark.parametrize(
  'text, bound',
  [
    ('<9:00', ('<', '09:00')),
    (' >= 23:59 ', ('>=', '23:59')),
    ('<=24:00', ('<=', '24:00')),
    ('<25:00', None),
    ('<9:60', None),
    ('=9:00', None),
    ('before 9:00', None),
  ],
)
def test_departure_bounds(text, bound):
  assert flight_db.parse_departure(text) == bound


CITIES = ('Beijing', 'Shanghai', 'Xian')


@pytest.mark.parametrize(
  'query, view',
  [
    # Broad: any flight that touches a city, whatever the order of words.
    ('flights shanghai BEIJING', View(touching=('Beijing', 'Shanghai'))),
    ('nowhere', View()),
    # Narrow: a route, with the bounds that the words mean.
    (
      'cheap early Xian to Beijing',
      View('Xian', 'Beijing', before='12:00', below=1000),
    ),
    ('morning Xian', View('Xian', before='12:00')),
    ('cheapest Xian Xian Beijing', View('Xian', 'Beijing', below=1000)),
  ],
)
def test_queries_by_hand(query, view):
  assert flight_db.parse_query(query, CITIES) == view


def test_a_view_is_described_by_all_it_selects_by():
  views = [
    View(),
    View('Xian'),
    View('', 'Xian'),
    View(touching=('Xian',)),
    View(before='12:00'),
    View(below=1000),
    View(departure=('<', '09:00')),
    View(sort='price'),
    View(page=1),
  ]
  assert len({view.describe() for view in views}) == len(views)


def test_cities_and_seats(world):
  assert flight_db.cities(world) == ['Beijing', 'Wuhan', 'Xian']
  assert flight_db.seats(world, 'HU1501') == 4
  assert flight_db.seats(world, 'ZZ1') is None


def test_an_order_takes_a_seat_or_fails(world):
  assert flight_db.order(world, 0, 'CA1501', '') == flight_db.ISSUED
  assert flight_db.seats(world, 'CA1501') == 0
  assert flight_db.order(world, 1, 'CA1501', '') == flight_db.FAILED
  assert flight_db.seats(world, 'CA1501') == 0


def test_the_best_is_cheapest_early_with_a_seat_when_the_leg_was_due(world):
  # CZ1501 is cheaper but sold out; MU5101 cheaper still but late; HU1501 costs
  # as much and stands behind CA1501 in the schedule.
  assert flight_db.best(world, 0, *ROUTE) == 'CA1501'
  flight_db.order(world, 0, 'CA1501', '')
  assert flight_db.best(world, 0, *ROUTE) == 'CA1501'  # its own seat
  # An earlier leg took the last one: for leg 1 the next best is right.
  assert flight_db.best(world, 1, *ROUTE) == 'HU1501'


def test_verify_says_it_for_each_leg(world):
  legs = [ROUTE, ('Xian', 'Wuhan')]
  assert flight_db.verify(world, legs) == [False, False]
  flight_db.order(world, 0, 'HU1501', '')  # issued, not the best
  flight_db.order(world, 1, 'CA1831', '')
  assert flight_db.verify(world, legs) == [False, True]


def test_a_leg_that_nobody_can_book_right_is_never_right():
  database = flight_db.create([[*row[:5], 0] for row in FLIGHTS])
  assert flight_db.best(database, 0, *ROUTE) is None
  assert flight_db.verify(database, [ROUTE]) == [False]
  flight_db.order(database, 0, 'CZ1501', '')
  assert flight_db.verify(database, [ROUTE]) == [False]
  database.close()


def test_a_copy_goes_its_own_way(world):
  copy = flight_db.restore(world.serialize())
  flight_db.order(copy, 0, 'CA1501', '')
  assert flight_db.seats(world, 'CA1501') == 1
  assert flight_db.seats(copy, 'CA1501') == 0
  copy.close()
