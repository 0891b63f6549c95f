"""Can an agent cross a frozen lake without falling in? Exact values are known.

Maps are drawn, with a way across. On slippery ice a move goes to either side
instead with probability `slip` in all, as in Gymnasium's FrozenLake (there
2/3), which is where a policy with the best odds is not the shortest way.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base, grid, scripted

TASK_DEFAULTS = {
  'size': 4,  # cells a side, 3-8
  'holes': 0.25,  # P(a cell is a hole), before maps without a way are redrawn
  'slip': 0.0,  # P(a move goes to one of its two sides instead)
}
_SIDES = {
  'up': ('left', 'right'),
  'down': ('right', 'left'),
  'left': ('down', 'up'),
  'right': ('up', 'down'),
}


def generate(
  seed: int,
  *,
  size: int = TASK_DEFAULTS['size'],
  holes: float = TASK_DEFAULTS['holes'],
  slip: float = TASK_DEFAULTS['slip'],
) -> dict[str, Any]:
  """Draws a map with a way from S to G.

  Returns:
    `rows` of S (start), G (goal), O (hole) and '.' (ice); `slip`, and `seed`
    where there is slip: the noise depends on it.
  """
  if not 3 <= size <= 8:
    raise ValueError(f'size={size}: a lake has 3-8 cells a side')
  if not 0 <= holes <= 0.6:
    raise ValueError(f'holes={holes}: give a probability of 0-0.6')
  if not 0 <= slip <= 1:
    raise ValueError(f'slip={slip}: give a probability')
  draw = random.Random(seed)
  cells = [(i, j) for i in range(size) for j in range(size)]
  while True:
    letters = {cell: 'O' if draw.random() < holes else '.' for cell in cells}
    start, goal = draw.sample(cells, 2)
    letters[start], letters[goal] = 'S', 'G'
    rows = [''.join(letters[i, j] for j in range(size)) for i in range(size)]
    if distances(rows).get(start, 0) >= 2:
      break
  data = {'rows': rows, 'slip': slip}
  return {**data, 'seed': seed} if slip else data


def distances(rows: Sequence[str]) -> dict[grid.Cell, int]:
  """Fewest moves to the goal, of every cell that has a way without slip."""

  def dry(cell):
    around = (_step(rows, cell, direction) for direction in grid.MOVES)
    return (other for other in around if rows[other[0]][other[1]] != 'O')

  return grid.distances([grid.find(rows, 'G')], dry)


def values(
  rows: Sequence[str], *, slip: float = 0.0, gamma: float = 1.0
) -> dict[grid.Cell, float]:
  """Computes optimal state values by value iteration.

  V(s) = max_a Σ_s' P(s'|s, a) (r(s') + γ V(s')), r = 1 at the goal; holes and
  the goal end the episode and are worth 0. With slip 0, V = γ^(moves - 1).

  Args:
    rows: of the map.
    slip: probability that a move goes to one of its sides, half each.
    gamma: discount a move, (0, 1].

  Returns:
    Value of each cell, to about 1e-8 (for γ = 1 the least fixed point: the
    highest probability of ever arriving).
  """
  found = {(i, j): 0.0 for i, row in enumerate(rows) for j in range(len(row))}
  going = [cell for cell in found if rows[cell[0]][cell[1]] not in 'GO']
  ways = {cell: outcomes(rows, cell, slip) for cell in going}
  while True:
    change = 0.0
    for cell in going:
      best = max(
        sum(odds * (reward + gamma * found[to]) for odds, to, reward in way)
        for way in ways[cell].values()
      )
      change = max(change, abs(best - found[cell]))
      found[cell] = best
    if change < 1e-10:
      return found


def outcomes(
  rows: Sequence[str], cell: grid.Cell, slip: float = 0.0
) -> dict[str, list[tuple[float, grid.Cell, float]]]:
  """Lists (probability, next cell, reward) of each direction."""
  there = {}
  for direction in grid.MOVES:
    to = _step(rows, cell, direction)
    there[direction] = to, float(rows[to[0]][to[1]] == 'G')
  found = {}
  for direction, (side, other) in _SIDES.items():
    found[direction] = [(1 - slip, *there[direction])]
    if slip:
      found[direction] += [(slip / 2, *there[way]) for way in (side, other)]
  return found


def _step(rows: Sequence[str], cell: grid.Cell, direction: str) -> grid.Cell:
  """Where a move goes that does not slip."""
  i, j = grid.shift(cell, direction)
  return (i, j) if 0 <= i < len(rows) and 0 <= j < len(rows) else cell


def _ranks(task: types.Task) -> dict[grid.Cell, dict[str, float]]:
  """How good each direction is: by odds of arriving, then by distance."""
  rows, slip = task.data['rows'], task.data['slip']
  near, ranks = distances(rows), {}
  worth = values(rows, slip=slip) if slip else dict.fromkeys(near, 0.0)
  for cell in worth:
    ranks[cell] = {}
    for direction, way in outcomes(rows, cell, slip).items():
      odds = sum(p * (reward + worth.get(to, 0.0)) for p, to, reward in way)
      far = near.get(way[0][1], len(worth))
      ranks[cell][direction] = (round(odds, 9) if slip else 0.0) - 1e-6 * far
  return ranks


class FrozenLakeEnv(grid.GridEnv):
  """Cross from @ to G; a hole ends the episode.

  Args:
    shared_noise: whether the members of a group slip at the same moves.
  """

  system = 'You cross a frozen lake with tools.'
  task_defaults = TASK_DEFAULTS
  generate = staticmethod(generate)
  disjoint_splits = True  # small maps are few
  markov_keys = True  # of an instance: False where the ice is slippery
  # A detour: any direction, holes among them, goes another way.
  rates = {'wander': 0.5, 'malformed': 0.01}
  card = base.Card(
    observation='the whole map: @ you, G goal, O hole',
    action='move(direction)',
    reward='1 at the goal',
    termination='goal, hole, final answer',
    oracle='value iteration; below 1 only where the ice is slippery',
    state_key='the view; Markov without slip',
  )

  def __init__(self, *, shared_noise: bool = False):
    super().__init__()
    self._shared_noise = shared_noise

  @classmethod
  def oracle_value(cls, task: types.Task) -> float:
    """Exact odds of arriving by the best policy, without a limit of turns."""
    rows, slip = task.data['rows'], task.data['slip']
    return values(rows, slip=slip)[grid.find(rows, 'S')] if slip else 1.0

  @staticmethod
  def level(data: Mapping[str, Any]) -> int:
    """By the shortest way: 2-3 moves are 1, 4-5 are 2, and so on."""
    return distances(data['rows'])[grid.find(data['rows'], 'S')] // 2

  @staticmethod
  def script(
    task: types.Task, agent: scripted.Agent, prompt: str
  ) -> scripted.Script:
    """Takes the best direction wherever it stands."""
    ranks, size = _ranks(task), len(task.data['rows'])
    view = prompt
    while True:
      lines = [line.split() for line in view.splitlines()[-size:]]
      here = ranks[grid.find(lines, '@')]
      best = max(here, key=here.get)
      if agent.errs('wander'):
        best = agent.draw.choice(list(grid.MOVES))
      view = yield scripted.call('move', direction=best)

  def _start(self, task: types.Task, sample: int) -> str:
    self._rows = list(task.data['rows'])
    self._slip = task.data['slip']
    self.markov_keys = not self._slip
    self._cell = grid.find(self._rows, 'S')
    noise = task.data.get('seed', 0), 0 if self._shared_noise else sample
    self._noise = random.Random(f'slip {noise}')
    return f'Reach G, avoid O.\n{self._view()}'

  def _view(self) -> str:
    rows = [row.replace('S', '.') for row in self._rows]
    return grid.render(rows, {self._cell: '@'})

  def _enter(self, direction: str) -> None:
    if self._slip and self._noise.random() < self._slip:
      direction = self._noise.choice(_SIDES[direction])
    self._cell = _step(self._rows, self._cell, direction)
    self._done = self._rows[self._cell[0]][self._cell[1]] in 'GO'

  def _judge(self, text: str) -> float:
    del text
    return float(self._rows[self._cell[0]][self._cell[1]] == 'G')
