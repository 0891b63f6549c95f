"""Monte-Carlo values of steps: against exact ones, and where they are known."""

import functools

import numpy as np
import pytest

from agentrl_jax import envs, types
from agentrl_jax.envs import flight, flight_agent, frozen_lake, grid
from agentrl_jax.rewards import calibration, labels


def exact(rows):
  """Values of walking in a random direction, by solving V = P V + r."""
  size = len(rows)
  cells = [(i, j) for i in range(size) for j in range(size)]
  going = [cell for cell in cells if rows[cell[0]][cell[1]] not in 'GO']
  place = {cell: i for i, cell in enumerate(going)}
  p, r = np.zeros((len(going),) * 2), np.zeros(len(going))
  for cell in going:
    for way in frozen_lake.outcomes(rows, cell).values():
      ((_, to, reward),) = way
      r[place[cell]] += reward / 4
      if to in place:
        p[place[cell], place[to]] += 1 / 4
  return dict(zip(going, np.linalg.solve(np.eye(len(going)) - p, r)))


def lake(rows, index=0):
  data = {'rows': list(rows), 'slip': 0.0}
  return types.Task('frozen_lake', 'test', index, data)


def label(task, name, rates, **options):
  env_class = envs.ENVS[name]
  return labels.label(
    functools.partial(envs.make, name),
    functools.partial(env_class.agent, task, seed=task.index, rates=rates),
    task,
    **{'rollouts': 8, 'max_turns': 12, **options},
  )


def cell_of(key):
  return grid.find([line.split() for line in key.splitlines()], '@')


def test_values_of_a_random_walk_are_those_of_the_exact_solution():
  """Rank correlation over the states of episodes on six small lakes."""
  found, wanted = [], []
  for seed in range(6):
    task = lake(frozen_lake.generate(seed, size=3)['rows'], seed)
    values = exact(task.data['rows'])
    made = label(task, 'frozen_lake', {'wander': 1}, rollouts=60, max_turns=99)
    states = [cell_of(turn.state_key) for turn in made.trajectory.turns]
    found += [made.start, *made.values[:-1]]
    wanted += [values[cell] for cell in states]
  assert len(found) > 25
  error = np.abs(np.array(found) - wanted)
  # 60 rollouts: a standard error of at most 0.065.
  assert error.mean() < 0.07 and error.max() < 0.26
  assert calibration.rank_correlation(found, wanted) > 0.9


def test_who_makes_no_mistakes_is_worth_1_and_the_last_value_is_what_happened():
  task = lake(['S..', '.O.', '..G'])
  made = label(task, 'frozen_lake', {})
  assert made.start == 1.0 and made.values == (1.0,) * 4
  assert made.any_success == (True,) * 4
  assert made.trajectory.turns[-1].reward == 1.0
  assert made.trajectory.stop_reason is types.StopReason.DONE


def test_a_flight_is_lost_or_won_at_the_filter():
  """No early flight is cheapest and none is sold out, so one mistake decides.

  Half of all agents forget the early morning when they filter: 0.5 before,
  then 0 or 1 to the end.
  """
  fields = flight_agent.Rates.__dataclass_fields__
  rates = {**dict.fromkeys(fields, 0.0), 'no_early': 0.5}
  options = {'legs': 1, 'early_cheapest': 0.0, 'sold_out': (1.0,)}
  ends = set()
  for index in range(6):
    data = flight.FlightEnv.generate(index, **options)
    task = types.Task('flight', 'test', index, data)
    made = label(task, 'flight', rates, rollouts=40, max_turns=20)
    end = made.trajectory.turns[-1].reward
    assert made.trajectory.turns[1].calls[0].name == 'filter'
    assert made.values[1:] == (end,) * 3  # filter, check_seat, order
    assert made.any_success == (True, *[end > 0] * 3)
    # 40 rollouts: a standard error of 0.08.
    assert abs(made.start - 0.5) < 0.3 and abs(made.values[0] - 0.5) < 0.3
    ends.add(end)
  assert ends == {0.0, 1.0}


def test_an_episode_that_does_not_end_has_failed():
  task = lake(['S..', '...', '..G'])
  made = label(task, 'frozen_lake', {}, max_turns=2)
  assert made.trajectory.stop_reason is types.StopReason.MAX_TURNS
  assert made.start == 0.0 and made.values == (0.0, 0.0)


def test_the_seed_decides():
  task = lake(frozen_lake.generate(2, size=4)['rows'])
  options = {'rates': {'wander': 0.7}, 'rollouts': 20}
  first, same, other = (
    label(task, 'frozen_lake', seed=seed, **options) for seed in (0, 0, 1)
  )
  assert first == same and first.values != other.values


class NoSnapshots:
  pass


def test_what_cannot_be_labelled():
  task = lake(['S..', '...', '..G'])
  with pytest.raises(ValueError, match='rollouts=0'):
    label(task, 'frozen_lake', {}, rollouts=0)
  with pytest.raises(ValueError, match='NoSnapshots has no snapshots'):
    labels.label(NoSnapshots, object, task, rollouts=1, max_turns=1)
