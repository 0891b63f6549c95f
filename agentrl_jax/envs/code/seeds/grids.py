"""Rows and columns."""

from collections import deque


def transpose(rows):
  """Columns as rows.

  >>> transpose([[1, 2, 3], [4, 5, 6]])
  [[1, 4], [2, 5], [3, 6]]
  >>> transpose([[7]])
  [[7]]
  >>> transpose([])
  []
  """
  if not rows:
    return []
  return [[row[column] for row in rows] for column in range(len(rows[0]))]


def spiral(rows):
  """Values from outside in, clockwise.

  >>> spiral([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
  [1, 2, 3, 6, 9, 8, 7, 4, 5]
  >>> spiral([[1, 2], [3, 4]])
  [1, 2, 4, 3]
  >>> spiral([[1, 2, 3]])
  [1, 2, 3]
  >>> spiral([[1], [2]])
  [1, 2]
  """
  out = []
  rows = [list(row) for row in rows]
  while rows:
    out += rows.pop(0)
    rows = [list(column) for column in zip(*rows)][::-1]
  return out


def neighbours(rows, row, column):
  """Sum of the up to eight values around a place.

  >>> neighbours([[1, 2, 3], [4, 5, 6], [7, 8, 9]], 1, 1)
  40
  >>> neighbours([[1, 2, 3], [4, 5, 6], [7, 8, 9]], 0, 0)
  11
  >>> neighbours([[1, 2, 3], [4, 5, 6], [7, 8, 9]], 2, 1)
  31
  """
  total = 0
  for down in (-1, 0, 1):
    for right in (-1, 0, 1):
      if down == 0 and right == 0:
        continue
      y, x = row + down, column + right
      if 0 <= y < len(rows) and 0 <= x < len(rows[0]):
        total += rows[y][x]
  return total


def shortest(rows, start, goal):
  """Steps from start to goal around '#', -1 if there is no way.

  >>> shortest(['..', '..'], (0, 0), (1, 1))
  2
  >>> shortest(['.#.', '.#.', '...'], (0, 0), (0, 2))
  6
  >>> shortest(['.#', '#.'], (0, 0), (1, 1))
  -1
  >>> shortest(['.'], (0, 0), (0, 0))
  0
  """
  waiting, seen = deque([(start, 0)]), {start}
  while waiting:
    (y, x), steps = waiting.popleft()
    if (y, x) == goal:
      return steps
    for place in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
      if not 0 <= place[0] < len(rows) or not 0 <= place[1] < len(rows[0]):
        continue
      if place not in seen and rows[place[0]][place[1]] != '#':
        seen.add(place)
        waiting.append((place, steps + 1))
  return -1


def islands(rows):
  """Number of groups of '#' that touch by their sides.

  >>> islands(['#.#', '#..', '..#'])
  3
  >>> islands(['##', '##'])
  1
  >>> islands(['..'])
  0
  >>> islands(['#.', '.#'])
  2
  """
  left = set()
  for y, row in enumerate(rows):
    for x, cell in enumerate(row):
      if cell == '#':
        left.add((y, x))
  number = 0
  while left:
    number += 1
    waiting = [left.pop()]
    while waiting:
      y, x = waiting.pop()
      for place in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
        if place in left:
          left.remove(place)
          waiting.append(place)
  return number


def live(rows):
  """One step of the game of life.

  >>> live(['...', '###', '...'])
  ['.#.', '.#.', '.#.']
  >>> live(['##', '##'])
  ['##', '##']
  >>> live(['#..', '...', '..#'])
  ['...', '...', '...']
  """
  out = []
  for y, row in enumerate(rows):
    line = ''
    for x, cell in enumerate(row):
      near = 0
      for b in range(max(y - 1, 0), min(y + 2, len(rows))):
        near += rows[b][max(x - 1, 0) : x + 2].count('#')
      if cell == '#':
        near -= 1
      line += '#' if near == 3 or (near == 2 and cell == '#') else '.'
    out.append(line)
  return out


def diagonals(rows):
  """Sums of both diagonals of a square.

  >>> diagonals([[1, 2], [3, 4]])
  (5, 5)
  >>> diagonals([[1, 2, 3], [4, 5, 6], [7, 8, 10]])
  (16, 15)
  """
  size = len(rows)
  down = sum(rows[i][i] for i in range(size))
  up = sum(rows[i][size - 1 - i] for i in range(size))
  return down, up
