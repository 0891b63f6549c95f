"""Boards are solvable in the moves promised, and pushes obey the rules."""

import collections

import pytest

from agentrl_jax import types
from agentrl_jax.envs import contract, grid, scripted, sokoban


def test_contract():
  contract.check_env('sokoban', num_tasks=2)


DATA = {
  'rows': ['....', '..G.', '#...', '....'],
  'player': [1, 0],
  'box': [1, 1],
}
TASK = types.Task('sokoban', 'test', 0, DATA)


def play(*directions):
  env = sokoban.SokobanEnv()
  views = [env.reset(TASK).messages[0].content]
  for direction in directions:
    result = env.step(scripted.call('move', direction=direction))
    views.append(result.observation.messages[0].content)
  return views, result


def test_a_push_onto_the_goal():
  views, result = play('right')
  assert views == [
    'Push B onto G.\n. . . .\n@ B G .\n# . . .\n. . . .',
    '. . . .\n. @ * .\n# . . .\n. . . .',
  ]
  assert (result.reward, result.done) == (1.0, True)


def test_walls_stop_players_and_boxes():
  views, _ = play('down')  # a wall below
  assert views[1] == '. . . .\n@ B G .\n# . . .\n. . . .'
  stuck = ('up', 'right', 'down', 'down', 'down')
  views, result = play(*stuck)  # pushed to the lower edge, then no further
  assert views[-1] == views[-2] == '. . . .\n. . G .\n# @ . .\n. B . .'
  assert not result.done


def test_a_player_on_the_goal_shows_it():
  views, _ = play('up', 'right', 'right', 'down')
  assert views[-1] == '. . . .\n. B + .\n# . . .\n. . . .'


def forward(rows, state):
  """Moves to solve it, by search forwards: another way to the same number."""
  goal = grid.find(rows, 'G')
  queue, seen = collections.deque([(state, 0)]), {state}
  while queue:
    state, moves = queue.popleft()
    if state[1] == goal:
      return moves
    for direction in grid.MOVES:
      after = sokoban.enter(rows, state, direction)
      if after not in seen:
        seen.add(after)
        queue.append((after, moves + 1))
  return None


def test_search_backwards_agrees_with_search_forwards():
  for seed in range(10):
    rows = sokoban.generate(seed, walls=5)['rows']
    found = sokoban.solve(rows)
    cells = [(i, j) for i in range(4) for j in range(4) if rows[i][j] != '#']
    for player in cells:
      for box in cells:
        if player != box and box != grid.find(rows, 'G'):
          assert forward(rows, (player, box)) == found.get((player, box))


def test_tasks_take_the_moves_that_were_asked_for():
  lengths = set()
  for seed in range(60):
    data = sokoban.generate(seed, min_moves=4, max_moves=6)
    state = tuple(data['player']), tuple(data['box'])
    lengths.add(sokoban.solve(data['rows'])[state])
  assert lengths == {4, 5, 6}


def test_the_oracle_is_optimal():
  for seed in range(20):
    task = types.Task('sokoban', 'test', seed, sokoban.generate(seed))
    env, agent = sokoban.SokobanEnv(), sokoban.SokobanEnv.oracle(task)
    messages, reward = scripted.play(env, task, agent)
    state = tuple(task.data['player']), tuple(task.data['box'])
    assert reward == 1.0
    played = sum(message.role == 'assistant' for message in messages)
    assert played == sokoban.solve(task.data['rows'])[state]


@pytest.mark.parametrize(
  'options', [{'walls': 6}, {'min_moves': 0}, {'min_moves': 9}]
)
def test_impossible_options_are_errors(options):
  with pytest.raises(ValueError, match='give 0-5|1 <= min <= max'):
    sokoban.generate(0, **options)
