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


def test_ends_of_the_range():
  assert packing.pack([], 4) == []
  assert packing.pack([4, 4], 4) == [[0], [1]]
  with pytest.raises(ValueError, match='item 1 of 5 tokens.*row_length=4'):
    packing.pack([4, 5], 4)
