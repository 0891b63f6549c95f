"""Locks packing: whole items, no row too long, the same every time."""

import numpy as np
import pytest

from agentrl_jax import packing


def test_by_hand():
  # 6, 5, 4, 3, 2 into rows of 8: 6 and 2; 5 and 3; 4.
  assert packing.pack([3, 6, 4, 2, 5], 8) == [[0, 4], [1, 3], [2]]


def test_best_fit_takes_the_fullest_row():
  # 7 and 5 open rows of 10; 3 fits both and goes to the 7.
  assert packing.pack([5, 7, 3], 10) == [[0], [1, 2]]


@pytest.mark.parametrize('seed', range(5))
def test_every_item_once_and_no_row_too_long(seed):
  draws = np.random.default_rng(seed)
  lengths = draws.integers(1, 65, 200).tolist()
  rows = packing.pack(lengths, 64)
  assert sorted(i for row in rows for i in row) == list(range(200))
  totals = [sum(lengths[i] for i in row) for row in rows]
  assert max(totals) <= 64
  assert all(row == sorted(row) for row in rows) and rows == sorted(rows)
  # No two rows could be one; fuller than first come, first served.
  assert sum(sorted(totals)[:2]) > 64
  assert len(rows) <= 1.1 * sum(lengths) / 64 + 1
  assert rows == packing.pack(lengths, 64)


def test_pieces_by_hand():
  # 7 fills a row of 8 but for 1, where the 1 goes. The others fit into halves:
  # 3, 3, 2, 4 of at most 4 tokens, two a row.
  assert packing.pack_pieces([7, 3, 3, 2, 1, 4], (8, 4), 1) == [
    [(0, 0), (7, 4)],
    [(0, 1), (4, 2)],
    [(0, 3), (4, 5)],
  ]
  # Blocks of two rows: the 6 opens one, whose other row takes 4, 3 and 1, not
  # needing a block of halves; the last 3 does, 2 joins the 6.
  assert packing.pack_pieces([3, 6, 4, 2, 1, 3], (8, 4, 2), 2) == [
    [(0, 1), (6, 3)],
    [(0, 0), (3, 2), (7, 4)],
    [(0, 5)],
    [],
  ]


@pytest.mark.parametrize('seed', range(5))
def test_no_item_crosses_the_end_of_its_piece(seed):
  draws = np.random.default_rng(seed)
  lengths = [*draws.integers(30, 65, 6), *draws.integers(1, 17, 200)]
  num_rows = int(draws.integers(1, 4))
  rows = packing.pack_pieces(lengths, (64, 32, 16), num_rows)
  assert sorted(i for row in rows for _, i in row) == list(range(206))
  assert len(rows) % num_rows == 0
  found = []
  for block in range(0, len(rows), num_rows):
    members = sum(rows[block : block + num_rows], [])
    longest = max(lengths[i] for _, i in members)
    piece = next(n for n in (16, 32, 64) if longest <= n)
    for start, i in members:
      assert start // piece == (start + lengths[i] - 1) // piece
    found.append(piece)
  assert found == sorted(found, reverse=True) and len(set(found)) > 1
  for row in rows:
    ends = [start + lengths[i] for start, i in row]
    assert all(a <= b for a, (b, _) in zip(ends, row[1:]))
  # One length gives the rows of `pack`, and never more than one block fewer.
  whole = packing.pack_pieces(lengths, (64,), num_rows)
  assert [[i for _, i in row] for row in whole if row] == packing.pack(
    lengths, 64
  )
  assert len(rows) <= len(whole) + 2 * num_rows


def test_ends_of_the_range():
  assert packing.pack_pieces([], (4, 2), 3) == []
  with pytest.raises(ValueError, match='item 1 of 5 tokens.*row_length=4'):
    packing.pack_pieces([4, 5], (4, 2), 1)
  assert packing.pack([], 4) == []
  assert packing.pack([4, 4], 4) == [[0], [1]]
  with pytest.raises(ValueError, match='item 1 of 5 tokens.*row_length=4'):
    packing.pack([4, 5], 4)
