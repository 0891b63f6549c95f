"""Lakes have a way across, and their exact values are right."""

import pytest

from agentrl_jax import types
from agentrl_jax.envs import contract, frozen_lake, grid, scripted


@pytest.mark.parametrize('options', [{}, {'slip': 0.5}])
def test_contract(options):
  contract.check_env('frozen_lake', num_tasks=2, turns=8, **options)


ROWS = ['S.G', '.OO', '...']
STRAIT = ['OOO', 'S.G', 'OOO']


def play(*directions, rows=ROWS, slip=0.0, sample=0):
  env = frozen_lake.FrozenLakeEnv()
  task = types.Task('frozen_lake', 'test', 0, {'rows': rows, 'slip': slip})
  views = [env.reset(task, sample=sample).messages[0].content]
  for direction in directions:
    result = env.step(scripted.call('move', direction=direction))
    views.append(result.observation.messages[0].content)
  return views, result, env


def test_a_walk_to_the_letter():
  views, result, _ = play('down', 'left', 'up', 'right', 'right')
  assert views == [
    'Reach G, avoid O.\n@ . G\n. O O\n. . .',
    '. . G\n@ O O\n. . .',
    '. . G\n@ O O\n. . .',  # the edge: nothing moves
    '@ . G\n. O O\n. . .',
    '. @ G\n. O O\n. . .',
    '. . @\n. O O\n. . .',
  ]
  assert (result.reward, result.done) == (1.0, True)


def test_a_hole_ends_the_episode():
  _, result, _ = play('right', 'down')
  assert (result.reward, result.done) == (0.0, True)


def test_states_recur_whatever_led_there():
  """A detour and a bump lead back to the first anchor."""
  keys = [play(*way)[2].state_key() for way in (('up',), ('right', 'left'))]
  assert keys[0] == keys[1] == '@ . G\n. O O\n. . .'


def test_values_without_slip_are_powers_of_gamma():
  found = frozen_lake.values(ROWS, gamma=0.5)
  assert found[0, 1] == 1.0  # one move away
  assert found[0, 0] == 0.5
  assert found[1, 0] == 0.25
  assert found[2, 2] == 0.5**5  # left, left, up, up, right, right
  assert found[1, 1] == 0.0  # a hole


def test_slippery_values_by_hand():
  """Right works with 0.6, else a hole: 0.6 next to the goal, 0.36 before."""
  found = frozen_lake.values(STRAIT, slip=0.4)
  assert found[1, 1] == pytest.approx(0.6, abs=1e-8)
  assert found[1, 0] == pytest.approx(0.36, abs=1e-8)


def test_along_an_edge_slipping_is_the_safe_way():
  """Up bumps into the edge or slips sideways, never into a hole: V = 1."""
  found = frozen_lake.values(['S.G', 'OOO', 'OOO'], slip=0.4)
  assert found[0, 0] == pytest.approx(1.0, abs=1e-6)


def test_the_exact_value_is_what_the_oracle_reaches():
  total = 0.0
  for seed in range(400):
    data = {'rows': STRAIT, 'slip': 0.4, 'seed': seed}
    task = types.Task('frozen_lake', 'test', 0, data)
    env = frozen_lake.FrozenLakeEnv()
    agent = frozen_lake.FrozenLakeEnv.oracle(task)
    total += scripted.play(env, task, agent)[1]
  assert total / 400 == pytest.approx(0.36, abs=0.072)  # 3 standard errors
  assert frozen_lake.FrozenLakeEnv.oracle_value(task) == pytest.approx(0.36)


def test_members_of_a_group_slip_apart_unless_told_otherwise():
  data = {'rows': ['S...', '....', '....', '...G'], 'slip': 1.0, 'seed': 1}
  task = types.Task('frozen_lake', 'test', 0, data)

  def views(shared):
    seen = set()
    for sample in range(8):
      env = frozen_lake.FrozenLakeEnv(shared_noise=shared)
      env.reset(task, sample=sample)
      for _ in range(3):
        env.step(scripted.call('move', direction='down'))
      seen.add(env.state_key())
    return len(seen)

  assert views(True) == 1 < views(False)


def test_every_map_has_a_way():
  for seed in range(200):
    rows = frozen_lake.generate(seed, holes=0.6)['rows']
    near = frozen_lake.distances(rows)
    assert near[grid.find(rows, 'S')] >= 2


@pytest.mark.parametrize('options', [{'size': 9}, {'holes': 0.9}, {'slip': 2}])
def test_impossible_options_are_errors(options):
  with pytest.raises(ValueError, match='3-8|0-0.6|a probability'):
    frozen_lake.generate(0, **options)
