"""Which texts are alike, without comparing many?

Two ratios are offered. The share of a longest common subsequence, 2 L / T: L
characters of it, T in both texts. And difflib's, 2 M / T: M characters in
matching blocks. Blocks follow each other in both texts, so that M is at most L,
and L at most the characters in common: all of them, or the frequent ones beside
a subsequence of the others. Each bound costs a fraction of the next; what they
leave is decided, for difflib, by the blocks themselves, found as difflib finds
them, until the answer is certain.

The characters outside a longest common subsequence are a distance, d = T - 2 L:
a text near one cluster is far from those that this one is far from, unasked
(|d(a, c) - d(a, b)| <= d(b, c)).
"""

import bisect
import collections
from collections.abc import Sequence

import numpy as np
from rapidfuzz import distance, process

# Characters by code point; what shares a bin counts as equal. Frequent ones
# have bins of their own, behind the others'.
_BINS, _POINTS = 64, 4096
_ONES = np.ones(2 * _BINS, np.float32)
_LESS = 1 - 1e-9  # a hair below the threshold: rounding rules nothing out


class Clusters:
  """Texts, each with the first earlier one that it is alike to.

  By the share of a longest common subsequence, `rapidfuzz`'s
  `Indel.normalized_similarity`.

  Args:
    threshold: ratio from which two texts are alike.
  """

  def __init__(self, threshold: float):
    self._threshold = threshold
    self._known: dict[str, int] = {}
    self._firsts: list[str] = []
    self._counts = np.zeros((8, 2 * _BINS), np.float32)
    self._lengths = np.zeros(8, np.int64)
    self._others: list[str] = []  # the firsts without frequent characters
    self._frequent: dict[int, None] = {}  # as str.translate takes them
    self._bins = np.arange(_POINTS) % _BINS
    # [i, j]: first members i and j are at least so far apart.
    self._apart = np.zeros((8, 8), np.int32)

  def find(self, text: str) -> int:
    """Returns the text's cluster: 0, 1, ... in order of first members.

    It is the first cluster whose first member has a ratio at or above the
    threshold to the text, or a new one.
    """
    if text not in self._known:
      self._known[text] = self._search(text)
    return self._known[text]

  def _search(self, text: str) -> int:
    num = len(self._firsts)
    if not num:
      self._frequent = _frequent(text)
      for point in self._frequent:
        self._bins[point % _POINTS] = _BINS + point % _BINS
    counts, others = self._count(text), text.translate(self._frequent)
    totals = self._lengths[:num] + len(text)
    furthest = totals * (1 - self._threshold * _LESS)
    common = np.minimum(self._counts[:num], counts)
    apart = totals - 2 * (common @ _ONES).astype(np.int64)  # at least
    places = np.flatnonzero(apart <= furthest)
    if len(places) > 1:
      # Edited from one that is known, it is mostly made of the same characters.
      pivot = places[(apart[places] / totals[places]).argmin()]
      shared = distance.LCSseq.similarity(self._firsts[pivot], text)
      far = totals[pivot] - 2 * shared
      np.maximum(apart, self._apart[pivot, :num] - far, out=apart)
      apart[pivot] = far
      places = np.flatnonzero(apart <= furthest)
    if len(places):
      shared = _subsequences(others, [self._others[i] for i in places.tolist()])
      shared += (common[places, _BINS:] @ _ONES[_BINS:]).astype(np.int64)
      apart[places] = totals[places] - 2 * shared
      places = places[apart[places] <= furthest[places]]
    if len(places):
      shared = _subsequences(text, [self._firsts[i] for i in places.tolist()])
      apart[places] = totals[places] - 2 * shared
      places = places[apart[places] <= furthest[places]]
    # Of those that are left the subsequence is known: 2 L / T.
    ratios = (totals - apart)[places] / totals[places]
    found = self._decide(text, places.tolist(), ratios.tolist())
    if found is None:
      self._add(text, others, counts, apart)
      return num
    return found

  def _decide(
    self, text: str, places: Sequence[int], ratios: Sequence[float]
  ) -> int | None:
    """Returns the first cluster that takes the text, if one does.

    Args:
      text: what is sought.
      places: clusters that may, in order.
      ratios: shares of the longest common subsequences.
    """
    del text
    pairs = zip(places, ratios, strict=True)
    return next((i for i, ratio in pairs if ratio >= self._threshold), None)

  def _count(self, text: str) -> np.ndarray:
    """Counts characters by bin."""
    points = np.frombuffer(text.encode('utf-32-le', 'surrogatepass'), np.uint32)
    bins = self._bins[points & (_POINTS - 1)]
    return np.bincount(bins, minlength=2 * _BINS).astype(np.float32)

  def _add(
    self,
    text: str,
    others: str,
    counts: np.ndarray,
    apart: np.ndarray,
  ) -> None:
    num, size = len(self._firsts), len(self._counts)
    if num == size:
      self._counts = np.pad(self._counts, ((0, size), (0, 0)))
      self._lengths = np.pad(self._lengths, (0, size))
      self._apart = np.pad(self._apart, (0, size))
    self._firsts.append(text)
    self._others.append(others)
    self._counts[num], self._lengths[num] = counts, len(text)
    self._apart[num, :num] = self._apart[:num, num] = apart


class Blocks(Clusters):
  """The same by difflib's `SequenceMatcher(None, first, text).ratio()`.

  A long common subsequence is not enough: from 200 characters on, difflib looks
  for no match at a character that is more than a hundredth of the text, so that
  many texts which differ a little have to be compared block by block.
  """

  def _decide(
    self, text: str, places: Sequence[int], ratios: Sequence[float]
  ) -> int | None:
    del ratios
    index = _rare(text) if places else {}
    for i in places:
      if _alike(self._firsts[i], text, index, self._threshold):
        return i
    return None


def _subsequences(text: str, others: Sequence[str]) -> np.ndarray:
  """Returns the lengths of longest common subsequences with other texts."""
  scorer = distance.LCSseq.similarity
  return process.cdist([text], others, scorer=scorer, dtype=np.int64)[0]


def _frequent(text: str) -> dict[int, None]:
  """Returns the most frequent characters, which make up half of a text."""
  found, covered = {}, 0
  for letter, count in collections.Counter(text).most_common():
    if covered >= len(text) / 2:
      break
    found[ord(letter)] = None
    covered += count
  return found


def _rare(text: str) -> dict[str, list[int]]:
  """Returns `SequenceMatcher(b=text).b2j`: places of characters that count."""
  most = len(text) // 100 + 1 if len(text) >= 200 else len(text)
  index = {}
  for letter, count in collections.Counter(text).items():
    if count <= most:
      at, places = -1, []
      for _ in range(count):
        at = text.index(letter, at + 1)
        places.append(at)
      index[letter] = places
  return index


def _alike(
  a: str, b: str, index: dict[str, list[int]], threshold: float
) -> bool:
  """Returns SequenceMatcher(None, a, b).ratio() >= threshold.

  Args:
    a, b: texts, not both empty.
    index: `_rare` of b.
    threshold: in (0, 1].
  """
  total = len(a) + len(b)
  starts = [i for i, c in enumerate(a) if c in index]
  rows = [(i, index[a[i]]) for i in starts]
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
