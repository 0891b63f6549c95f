"""Drawn trips are well-posed: one answer, which a shortcut does not find."""

import collections

import pytest

from agentrl_jax.envs import trips_world


@pytest.mark.parametrize('kind', trips_world.KINDS)
def test_every_leg_has_a_best_flight_before_and_after_its_fare_moves(kind):
  for seed in range(200):
    data = trips_world.generate(seed, kinds=[kind], moving=1.0)
    for leg, move in zip(data['legs'], data['moves'], strict=True):
      best = trips_world.best(data['flights'], leg, data['side'])
      assert move[1] == best
      moved = {f: dict(row) for f, row in data['flights'].items()}
      moved[best]['price'] = move[2]
      other = trips_world.best(moved, leg, data['side'])
      assert other not in (None, best), (seed, leg)


def test_kinds_come_about_equally_often():
  drawn = collections.Counter(
    trips_world.generate(seed)['kind'] for seed in range(2000)
  )
  assert set(drawn) == set(trips_world.KINDS)
  assert min(drawn.values()) > 420


def test_the_cheapest_of_the_day_is_mostly_wrong():
  right = []
  for seed in range(500):
    data = trips_world.generate(seed, kinds=['book'], legs=1)
    (leg,) = data['legs']
    cheapest = trips_world.listed(data['flights'], *leg[:2], 'any')[0][0]
    right.append(
      cheapest == trips_world.best(data['flights'], leg, data['side'])
    )
  assert sum(right) / 500 < 0.45


@pytest.mark.parametrize(
  'fare, state, allowed',
  [
    ('flex', 'kept', True),
    ('flex', 'moved', True),
    ('basic', 'moved', True),
    ('basic', 'kept', False),
  ],
)
def test_the_policy(fare, state, allowed):
  assert trips_world.is_allowed({'fare': fare, 'state': state}) == allowed


def test_a_draw_depends_on_its_seed_alone():
  assert trips_world.generate(5) == trips_world.generate(5)
  assert trips_world.generate(5) != trips_world.generate(6)


def test_equal_fares_are_ordered_by_flight():
  row = {'route': ['A', 'B'], 'time': '07:00', 'price': 300, 'free': ['1A']}
  flights = {'B2': row, 'A1': row}
  assert [r[0] for r in trips_world.listed(flights, 'A', 'B', 'any')] == [
    'A1',
    'B2',
  ]
