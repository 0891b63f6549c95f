"""Levels that teach are drawn often; a resumed run draws what it would have."""

import collections
import json

import pytest
import rollout_fakes as made

from agentrl_jax import config as config_lib
from agentrl_jax import distributed
from agentrl_jax.envs import frozen_lake, sokoban
from agentrl_jax.rollout import curriculum, selection
from agentrl_jax.types import Group, StopReason, Task

TASKS = [Task('flight', 'train', i, {'level': i % 3 + 1}) for i in range(12)]


def order(seed=0):
  return curriculum.PassRate(TASKS, seed, 'flight')


def group(level, *rewards, reason=StopReason.DONE):
  task = TASKS[level - 1]
  return Group(
    task,
    tuple(
      made.append_only([2], reward=float(r), task=task, stop_reason=reason)
      for r in rewards
    ),
  )


def test_what_is_always_solved_is_drawn_seldom():
  one = order()
  row = one.learn([group(1, 0, 1), group(2, 1, 1), group(2, 1, 1)])
  # 0.5 + 0.3 * (1 - 0.5) = 0.65; level 3 was not played.
  assert one.state() == {'1': 0.5, '2': 0.65, '3': 0.5}
  for _ in range(40):
    row = one.learn([group(2, 1, 1)])
  # p (1 - p) of 0.25, 0, 0.25: 0.2 / 3 each, and 0.8 / 2 for two of them.
  assert one.shares() == pytest.approx({1: 7 / 15, 2: 1 / 15, 3: 7 / 15}, 1e-4)
  assert row['curriculum/share_2'] == one.shares()[2]
  assert row['curriculum/pass_2'] == pytest.approx(1.0, abs=1e-5)
  levels = collections.Counter(
    TASKS[i].data['level'] for i in one.take(0, 3000)
  )
  assert 150 < levels[2] < 250  # 200 expected, standard deviation 14
  assert set(one.take(0, 3000)) == set(range(12))


def test_all_alike_where_nothing_varies():
  one = order()
  one.restore({'1': 1.0, '2': 0.0, '3': 1.0})
  assert one.shares() == pytest.approx({1: 1 / 3, 2: 1 / 3, 3: 1 / 3})


def test_a_draw_depends_on_seed_place_and_rates_alone():
  one, two = order(), order()
  assert one.take(4, 6) == [*one.take(4, 2), *two.take(6, 4)]
  assert one.take(0, 20) != order(seed=1).take(0, 20)
  one.learn([group(1, 1, 1, 1), group(2, 0, 1)])
  two.restore(json.loads(json.dumps(one.state())))
  assert one.take(0, 50) == two.take(0, 50)
  assert one.take(0, 50) != order().take(0, 50)


def test_failures_of_infrastructure_say_nothing_of_a_level():
  one = order()
  one.learn([group(1, 0, 0, reason=StopReason.ENV_ERROR)])
  assert one.state()['1'] == 0.5


def test_hosts_count_together(monkeypatch):
  theirs = [[2, 3, 4], [1, 0, 2]]
  monkeypatch.setattr(distributed, 'exchange', lambda mine: [mine, theirs])
  one = order()
  one.learn([group(1, 1, 1)])
  # Level 1: 2 of 4. Level 2: 0.5 + 0.3 * (3 / 4 - 0.5).
  assert one.state() == {'1': 0.5, '2': pytest.approx(0.575), '3': 0.5}


def test_one_level_is_an_error_and_none_is_every_task_once():
  config = config_lib.default()
  alike = [Task('flight', 'train', i, {}) for i in range(5)]
  plain = curriculum.make(config, alike)
  assert plain.take(3, 9) == selection.task_order(5, config.seed, 3, 9)
  assert plain.learn([]) == plain.state() == {}
  config.env.curriculum = 'pass_rate'
  with pytest.raises(ValueError, match='have level 1'):
    curriculum.make(config, alike)


def test_grids_say_how_far_it_is():
  rows = ['S..', '...', '..G']  # 4 moves
  assert frozen_lake.FrozenLakeEnv.level({'rows': rows}) == 2
  board = {'rows': ['....', '....', '....', '...G'], 'box': [3, 1]}
  # Two pushes; one step more from above.
  assert sokoban.SokobanEnv.level({**board, 'player': [3, 0]}) == 1
  assert sokoban.SokobanEnv.level({**board, 'player': [2, 0]}) == 2
