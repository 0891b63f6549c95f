"""Which sequences share a row? Best fit, longest first, always the same."""

import bisect
from collections.abc import Sequence


def pack(lengths: Sequence[int], row_length: int) -> list[list[int]]:
  """Packs whole items into rows, each into the fullest row with room.

  Args:
    lengths: of the items, each in 1..row_length.
    row_length: capacity of a row.

  Returns:
    For each row the indices of its items, ascending; rows in the order of their
    first item. Deterministic.

  Raises:
    ValueError: an item longer than a row.
  """
  open_rows: list[tuple[int, int]] = []  # (room, row), sorted
  rows: list[list[int]] = []
  for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
    length = lengths[index]
    if length > row_length:
      raise ValueError(
        f'item {index} of {length} tokens does not fit row_length={row_length}'
      )
    at = bisect.bisect_left(open_rows, (length, -1))
    if at < len(open_rows):
      room, row = open_rows.pop(at)
    else:
      room, row = row_length, len(rows)
      rows.append([])
    rows[row].append(index)
    if room > length:
      bisect.insort(open_rows, (room - length, row))
  return sorted(sorted(row) for row in rows)
