"""Can an agent push a box onto a goal without getting it stuck?

Boards of 6x6 whose outer ring is wall (and not shown), one box. The start is
drawn among the states from which breadth-first search, run backwards from the
goal, finds a solution: every task is solvable, and its optimal length is known.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base, grid, scripted

SIDE = 4  # cells inside the ring of wall
TASK_DEFAULTS = {
  'walls': 3,  # at most, inside the ring, 0-5
  'min_moves': 3,  # of the optimal solution, >= 1
  'max_moves': 8,  # of the optimal solution
}
State = tuple[grid.Cell, grid.Cell]  # player, box


def generate(
  seed: int,
  *,
  walls: int = TASK_DEFAULTS['walls'],
  min_moves: int = TASK_DEFAULTS['min_moves'],
  max_moves: int = TASK_DEFAULTS['max_moves'],
) -> dict[str, Any]:
  """Draws a board and a start with an optimal solution of a given length.

  Returns:
    `rows` of '#' (wall), 'G' (goal) and '.', `player` and `box` [row, column].
  """
  if not 0 <= walls <= 5:
    raise ValueError(f'walls={walls}: give 0-5')
  if not 1 <= min_moves <= max_moves <= 20:
    raise ValueError(
      f'min_moves={min_moves}, max_moves={max_moves}: give 1 <= min <= max '
      '<= 20'
    )
  draw = random.Random(seed)
  cells = [(i, j) for i in range(SIDE) for j in range(SIDE)]
  for _ in range(1000):
    goal, *blocked = draw.sample(cells, 1 + draw.randint(0, walls))
    letters = {goal: 'G'} | dict.fromkeys(blocked, '#')
    rows = [
      ''.join(letters.get((i, j), '.') for j in range(SIDE))
      for i in range(SIDE)
    ]
    by_length = {}
    for state, left in solve(rows).items():
      if min_moves <= left <= max_moves:
        by_length.setdefault(left, []).append(state)
    if by_length:
      length = draw.choice(sorted(by_length))
      player, box = draw.choice(sorted(by_length[length]))
      return {'rows': rows, 'player': list(player), 'box': list(box)}
  raise ValueError(f'no board with {min_moves}-{max_moves} moves found')


def solve(rows: Sequence[str]) -> dict[State, int]:
  """Fewest moves to the goal from every state that has a solution."""
  goal = grid.find(rows, 'G')
  cells = ((i, j) for i in range(SIDE) for j in range(SIDE))
  free = {cell for cell in cells if _free(rows, cell)}
  solved = [(cell, goal) for cell in sorted(free - {goal})]
  return grid.distances(solved, lambda state: _before(free, state))


def enter(rows: Sequence[str], state: State, direction: str) -> State:
  """The state after a move; the same where something stands in the way."""
  player, box = state
  there = grid.shift(player, direction)
  if not _free(rows, there):
    return state
  if there != box:
    return there, box
  beyond = grid.shift(box, direction)
  return (there, beyond) if _free(rows, beyond) else state


def _free(rows: Sequence[str], cell: grid.Cell) -> bool:
  i, j = cell
  return 0 <= i < SIDE and 0 <= j < SIDE and rows[i][j] != '#'


def _before(free: set[grid.Cell], state: State) -> Iterator[State]:
  """States from which one move leads to a state: steps back, with a pull."""
  player, box = state
  for down, right in grid.MOVES.values():
    back = player[0] - down, player[1] - right
    if back in free and back != box:
      yield back, box
      if (player[0] + down, player[1] + right) == box:
        yield back, player


class SokobanEnv(grid.GridEnv):
  """Push B onto G. A box may get stuck; the episode goes on all the same."""

  system = 'You push boxes with tools.'
  task_defaults = TASK_DEFAULTS
  generate = staticmethod(generate)
  disjoint_splits = True
  markov_keys = True
  # A detour may get the box stuck; the script gives up then.
  rates = {'wander': 0.5, 'malformed': 0.01}
  card = base.Card(
    observation='the board within its outer wall: @ you, B box, G goal, # wall',
    action='move(direction)',
    reward='1 with the box on the goal',
    termination='solved, final answer',
    oracle='breadth-first search, optimal',
    state_key='the view; Markov',
  )

  @staticmethod
  def level(data: Mapping[str, Any]) -> int:
    """By the shortest solution: up to 2 moves are 1, 3-4 are 2, and so on."""
    state = tuple(data['player']), tuple(data['box'])
    return (solve(data['rows'])[state] + 1) // 2

  @staticmethod
  def script(
    task: types.Task, agent: scripted.Agent, prompt: str
  ) -> scripted.Script:
    """Moves on a shortest solution from wherever it stands."""
    del prompt  # moves are certain: it knows where it stands
    rows = task.data['rows']
    moves = solve(rows)
    state = tuple(task.data['player']), tuple(task.data['box'])
    while state in moves:
      after = {way: enter(rows, state, way) for way in grid.MOVES}
      best = min(after, key=lambda way: moves.get(after[way], 1000))
      if agent.errs('wander'):
        best = agent.draw.choice(list(grid.MOVES))
      yield scripted.call('move', direction=best)
      state = after[best]

  def _start(self, task: types.Task, sample: int) -> str:
    del sample
    self._rows = list(task.data['rows'])
    self._state = tuple(task.data['player']), tuple(task.data['box'])
    return f'Push B onto G.\n{self._view()}'

  def _view(self) -> str:
    player, box = self._state
    marks = {box: '*' if self._solved() else 'B'}
    on_goal = player == grid.find(self._rows, 'G')
    marks[player] = '+' if on_goal else '@'
    return grid.render(self._rows, marks)

  def _enter(self, direction: str) -> None:
    self._state = enter(self._rows, self._state, direction)
    self._done = self._solved()

  def _judge(self, text: str) -> float:
    del text
    return float(self._solved())

  def _solved(self) -> bool:
    return self._state[1] == grid.find(self._rows, 'G')
