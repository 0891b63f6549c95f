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
  rows: list[list[int]] = []
  order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
  for index in order[:1]:
    if lengths[index] > row_length:
      raise ValueError(
        f'item {index} of {lengths[index]} tokens does not fit '
        f'row_length={row_length}'
      )
  _fit(lengths, order, row_length, rows, grows=True)
  return sorted(sorted(row) for row in rows)


def pack_pieces(
  lengths: Sequence[int], piece_lengths: Sequence[int], num_rows: int
) -> list[list[tuple[int, int]]]:
  """Packs whole items into rows, some of which are cut into shorter pieces.

  Rows come in blocks of `num_rows`, and all rows of a block are cut alike: the
  block is one array of so many tokens, whatever the length of its pieces. Long
  items come first; what room they leave is filled with shorter ones before a
  block of shorter pieces is begun.

  Args:
    lengths: of the items, each in 1..piece_lengths[0].
    piece_lengths: descending; the first is a row's, the others divide it. The
      one alone gives the rows of `pack`.
    num_rows: of a block.

  Returns:
    For each row (start, index) of its items, by start; no item crosses the end
    of a piece. Rows fill whole blocks, so that the last ones may be empty.

  Raises:
    ValueError: an item longer than a row.
  """
  whole = piece_lengths[0]
  left = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
  out = []
  for piece, shorter in zip(piece_lengths, (*piece_lengths[1:], 0)):
    must = sorted(i for i in left if lengths[i] > shorter)
    packed = pack([lengths[i] for i in must], piece)
    pieces = [[must[i] for i in members] for members in packed]
    in_row = whole // piece
    pieces += [[] for _ in range(-len(pieces) % (in_row * num_rows))]
    left = _fit(lengths, left[len(must) :], piece, pieces, grows=False)
    for first in range(0, len(pieces), in_row):
      row = []
      for i, members in enumerate(pieces[first : first + in_row]):
        start = i * piece
        for index in sorted(members):
          row.append((start, index))
          start += lengths[index]
      out.append(row)
  return out


def _fit(
  lengths: Sequence[int],
  order: Sequence[int],
  row_length: int,
  rows: list[list[int]],
  *,
  grows: bool,
) -> list[int]:
  """Puts items into the fullest row with room, in this order.

  Args:
    lengths: of all items.
    order: indices of those to put.
    row_length: capacity of a row.
    rows: indices of what they hold already; changed.
    grows: whether a row is added where none has room.

  Returns:
    The items that found no room, in order.
  """
  # (room, row), sorted
  room = [row_length - sum(lengths[i] for i in row) for row in rows]
  open_rows = sorted((left, row) for row, left in enumerate(room) if left)
  over = []
  for index in order:
    length = lengths[index]
    at = bisect.bisect_left(open_rows, (length, -1))
    if at < len(open_rows):
      left, row = open_rows.pop(at)
    elif grows:
      left, row = row_length, len(rows)
      rows.append([])
    else:
      over.append(index)
      continue
    rows[row].append(index)
    if left > length:
      bisect.insort(open_rows, (left - length, row))
  return over
