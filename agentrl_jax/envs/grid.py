"""What do grid worlds share? Cells, four moves, and a view as text.

A view has one line a row and a space between cells, so that a small tokenizer
holds a cell as a token. Rows count from the top. A move off the grid or into a
wall changes nothing and shows the same view: states recur, which anchors need.
"""

import collections
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from agentrl_jax.envs import base, scripted

MOVES = {'up': (-1, 0), 'down': (1, 0), 'left': (0, -1), 'right': (0, 1)}
TOOLS = (
  base.function(
    'move',
    'Moves one cell.',
    required=['direction'],
    direction={'type': 'string', 'enum': list(MOVES)},
  ),
)
Cell = tuple[int, int]


def shift(cell: Cell, direction: str) -> Cell:
  """The neighbouring cell, which may lie off the grid."""
  down, right = MOVES[direction]
  return cell[0] + down, cell[1] + right


def find(rows: Iterable[str], letter: str) -> Cell:
  """The first cell with a letter.

  Raises:
    ValueError: there is none.
  """
  for i, row in enumerate(rows):
    if letter in row:
      return i, row.index(letter)
  raise ValueError(f'no {letter!r} in the grid')


def render(rows: Iterable[str], marks: Mapping[Cell, str]) -> str:
  """The grid as text, some cells overwritten."""
  return '\n'.join(
    ' '.join(marks.get((i, j), letter) for j, letter in enumerate(row))
    for i, row in enumerate(rows)
  )


def distances(
  starts: Iterable[Hashable],
  neighbours: Callable[[Hashable], Iterable[Hashable]],
) -> dict[Hashable, int]:
  """Breadth-first search: moves from the nearest start to what is reached."""
  found = dict.fromkeys(starts, 0)
  queue = collections.deque(found)
  while queue:
    state = queue.popleft()
    for other in neighbours(state):
      if other not in found:
        found[other] = found[state] + 1
        queue.append(other)
  return found


class GridEnv(scripted.ScriptedEnv):
  """A world of moves; a subclass gives `_view()` and `_enter(direction)`."""

  tools = TOOLS
  demonstrated_turns = 12

  def state_key(self) -> str | None:
    """The view, and the last reply where that was something else."""
    view = self._view()
    return view if self._last in ('', view) else f'{view}\n{self._last}'

  def call_move(self, arguments: Mapping[str, Any]) -> str:
    """Moves, if nothing stands in the way; shows the view."""
    self._enter(arguments['direction'])
    return self._view()

  def _view(self) -> str:
    raise NotImplementedError

  def _enter(self, direction: str) -> None:
    raise NotImplementedError
