"""Worlds are solvable, hard where they mean to be, and of few words."""

import pytest

from agentrl_jax.envs import flight_db, flight_world


@pytest.mark.parametrize('legs', [1, 2, 3])
def test_worlds_are_well_posed_and_hard(legs):
  worlds = [flight_world.generate(seed, legs=legs) for seed in range(200)]
  assert all(map(flight_world.is_well_posed, worlds))
  sold_out = late = 0
  for world in worlds:
    rows = [row for row in world['flights'] if row[1:3] == world['legs'][0]]
    assert len(rows) == 8
    assert len({row[4] for row in rows}) == 8  # no two at one price
    early = [row for row in rows if row[3] < flight_db.EARLY]
    sold_out += min(early, key=lambda row: row[4])[5] == 0
    late += min(rows, key=lambda row: row[4])[3] >= flight_db.EARLY
  assert 0.4 < sold_out / 200 < 0.6
  assert 0.75 < late / 200 < 0.95


def test_values_are_few_enough_to_be_atoms_of_a_tokenizer():
  atoms = set()
  for seed in range(300):
    for row in flight_world.generate(seed)['flights']:
      atoms |= set(row[:5])
  assert len(atoms) <= 80  # 24 flights, 8 cities, 14 times, 34 prices


@pytest.mark.parametrize(
  'options, match',
  [
    ({'legs': 4}, 'legs=4: .* 1-3'),
    ({'legs': 0}, 'legs=0: .* 1-3'),
    ({'flights': 9}, 'flights=9: give 5-8'),
    ({'sold_out': ()}, 'give 1-4 weights'),
  ],
)
def test_impossible_worlds_are_errors(options, match):
  with pytest.raises(ValueError, match=match):
    flight_world.generate(0, **options)


def test_a_world_is_its_seed_and_a_route_starts_where_the_last_ended():
  one = flight_world.generate(5, legs=3)
  assert one == flight_world.generate(5, legs=3)
  assert one['flights'] != flight_world.generate(6, legs=3)['flights']
  for (_, reached), (left, _) in zip(one['legs'], one['legs'][1:]):
    assert reached == left
  assert len({row[0] for row in one['flights']}) == 24
  # The number of legs is not drawn: fewer legs, the same world.
  fewer = flight_world.generate(5, legs=1)
  assert fewer['flights'] == one['flights']
  assert fewer['legs'] == one['legs'][:1]


@pytest.mark.parametrize('gone', [0, 1, 2])
def test_as_many_cheapest_early_flights_are_sold_out_as_asked(gone):
  weights = [0.0] * gone + [1.0]
  for seed in range(50):
    world = flight_world.generate(seed, sold_out=weights)
    for route in world['legs']:
      early = sorted(
        (row[4], row[5])
        for row in world['flights']
        if row[1:3] == route and row[3] < flight_db.EARLY
      )
      assert [seats == 0 for _, seats in early[: gone + 1]] == (
        [True] * gone + [False]
      )


def test_a_hidden_world_looks_the_same_and_has_another_answer():
  world = flight_world.generate(3)
  hidden = flight_world.hide(world)
  assert [row[:5] for row in hidden['flights']] == [
    row[:5] for row in world['flights']
  ]

  def answers(data):
    database = flight_db.create(data['flights'])
    best = [
      flight_db.best(database, leg, *route)
      for leg, route in enumerate(data['legs'])
    ]
    database.close()
    return best

  for a, b in zip(answers(world), answers(hidden), strict=True):
    assert a != b


def test_a_world_without_an_answer_or_with_two_is_not_well_posed():
  world = flight_world.generate(0, legs=1)
  gone = [[*row[:5], 0] for row in world['flights']]
  assert not flight_world.is_well_posed({**world, 'flights': gone})
  one_price = [[*row[:4], 500, row[5]] for row in world['flights']]
  assert not flight_world.is_well_posed({**world, 'flights': one_price})
