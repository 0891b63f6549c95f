"""Which texts are as alike as difflib says, without asking it often?

difflib's ratio is 2 M / T: M characters in matching blocks, T in both texts.
Blocks follow each other in both texts, so that M is at most the length of the
longest common subsequence, and that at most the characters in common. Each
bound costs a fraction of the next; what they leave is decided by the blocks
themselves, found as difflib finds them, until the answer is certain.
"""

import bisect
import difflib
from collections.abc import Sequence

import numpy as np
from rapidfuzz import distance, process

_BINS = 128  # of characters by code point; what shares a bin counts as equal
_LESS = 1 - 1e-9  # a hair below the threshold: rounding rules nothing out


class Clusters:
  """Texts, each with the first earlier one that it is alike to.

  Args:
    threshold: difflib ratio from which two texts are alike.
  """

  def __init__(self, threshold: float):
    self._threshold = threshold
    self._known: dict[str, int] = {}
    self._firsts: list[str] = []
    self._counts = np.zeros((8, _BINS), np.int32)
    self._lengths = np.zeros(8, np.int64)

  def find(self, text: str) -> int:
    """Returns the text's cluster: 0, 1, ... in order of first members.

    It is the first cluster with `SequenceMatcher(None, first, text).ratio()`
    at or above the threshold, or a new one.
    """
    if text not in self._known:
      self._known[text] = self._search(text)
    return self._known[text]

  def _search(self, text: str) -> int:
    num, counts = len(self._firsts), _counts(text)
    totals = self._lengths[:num] + len(text)
    common = np.minimum(self._counts[:num], counts).sum(-1)
    places = np.flatnonzero(2.0 * common >= self._threshold * totals * _LESS)
    if len(places):
      common = process.cdist(
        [text],
        [self._firsts[i] for i in places],
        scorer=distance.LCSseq.similarity,
        score_cutoff=int(self._threshold * totals[places].min() * _LESS / 2),
      )[0]
      places = places[2.0 * common / totals[places] >= self._threshold]
    if len(places):
      index = difflib.SequenceMatcher(None, '', text).b2j
      for i in places.tolist():
        if _alike(self._firsts[i], text, index, self._threshold):
          return i
    self._add(text, counts)
    return num

  def _add(self, text: str, counts: np.ndarray) -> None:
    num = len(self._firsts)
    if num == len(self._counts):
      self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
      self._lengths = np.resize(self._lengths, 2 * num)
    self._firsts.append(text)
    self._counts[num], self._lengths[num] = counts, len(text)


def _counts(text: str) -> np.ndarray:
  points = np.frombuffer(text.encode('utf-32-le', 'surrogatepass'), np.uint32)
  return np.bincount(points % _BINS, minlength=_BINS)


def _alike(
  a: str, b: str, index: dict[str, list[int]], threshold: float
) -> bool:
  """Returns SequenceMatcher(None, a, b).ratio() >= threshold.

  Args:
    a, b: texts, not both empty.
    index: `SequenceMatcher.b2j` of b: places of the characters that count.
    threshold: in (0, 1].
  """
  total = len(a) + len(b)
  rows = [(i, index[c]) for i, c in enumerate(a) if c in index]
  starts = [i for i, _ in rows]
  gaps = [(0, len(a), 0, len(b))]
  matched, possible = 0, min(len(a), len(b))
  while gaps and 2.0 * matched / total < threshold:
    if 2.0 * (matched + possible) / total < threshold:
      return False
    gap = a_low, a_high, b_low, b_high = gaps.pop()
    low, high = (
      bisect.bisect_left(starts, a_low),
      bisect.bisect_left(starts, a_high),
    )
    i, j, size = _longest(a, b, rows[low:high], gap)
    possible -= min(a_high - a_low, b_high - b_low)
    if size:
      matched += size
      for side in (
        (a_low, i, b_low, j),
        (i + size, a_high, j + size, b_high),
      ):
        room = min(side[1] - side[0], side[3] - side[2])
        if room:
          gaps.append(side)
          possible += room
  return 2.0 * matched / total >= threshold


def _longest(
  a: str,
  b: str,
  rows: Sequence[tuple[int, list[int]]],
  gap: tuple[int, int, int, int],
) -> tuple[int, int, int]:
  """Returns `find_longest_match` of a gap: (place in a, place in b, size).

  The longest run of characters that count, the first of several, and what is
  equal on either side of it.
  """
  a_low, a_high, b_low, b_high = gap
  best_i, best_j, size = a_low, b_low, 0
  last, runs = -2, {}
  for i, places in rows:
    before, runs = runs if i == last + 1 else {}, {}
    last = i
    for j in places:
      if b_low <= j < b_high:
        run = runs[j] = before.get(j - 1, 0) + 1
        if run > size:
          best_i, best_j, size = i - run + 1, j - run + 1, run
  back = _common(a[a_low:best_i][::-1], b[b_low:best_j][::-1])
  ahead = _common(a[best_i + size : a_high], b[best_j + size : b_high])
  return best_i - back, best_j - back, back + size + ahead


def _common(a: str, b: str) -> int:
  """Returns the length of the common prefix, by halves."""
  low, high = 0, min(len(a), len(b))
  while low < high:
    middle = (low + high + 1) // 2
    if a[low:middle] == b[low:middle]:
      low = middle
    else:
      high = middle - 1
  return low
