"""Which sequences share a row? First fit, longest first, always the same."""

from collections.abc import Sequence


def first_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
  """Packs items into rows; each row lists indices in ascending order.

  Longest first, each into the first row with room; ties by index. Rows come
  out ordered by their first item.

  Args:
    lengths: of the items, each in 1..capacity.
    capacity: of a row.

  Raises:
    ValueError: an item does not fit a row.
  """
  order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
  rows: list[list[int]] = []
  room: list[int] = []
  first_open = 0  # rows before this one are full
  for i in order:
    if lengths[i] > capacity:
      raise ValueError(f'item {i}: {lengths[i]} does not fit {capacity}')
    for r in range(first_open, len(rows)):
      if room[r] >= lengths[i]:
        break
    else:
      r = len(rows)
      rows.append([])
      room.append(capacity)
    rows[r].append(i)
    room[r] -= lengths[i]
    while first_open < len(rows) and room[first_open] == 0:
      first_open += 1
  return sorted((sorted(row) for row in rows), key=lambda row: row[0])
