"""Which byte strings earn a slot in a small vocabulary?

Ordinary BPE spends a slot on every intermediate merge: `B`, `Be`, `Bei`, ...
before `Beijing` exists. Here one slot buys whichever saves the most tokens on
the training text: a merge of two neighbours, or a whole pre-token ("atom": a
city, a flight id, a JSON template) taken as it stands. The model is read with
`ignore_merges`, so an atom is one token exactly where it is a whole pre-token,
and inside a longer word its letters merge as always.
"""

import heapq
from collections import Counter
from collections.abc import Mapping

# Value atoms stand alone so that a value is the same token wherever it occurs;
# whatever lies between two atoms (a template) is one pre-token. A time or a
# longer number in a table takes its leading space along: one token a column.
# Each character is matched by some alternative: `findall` partitions the text.
PATTERN = (
  r'[A-Z]{2}[0-9]{3,4}'  # flight id
  r'| ?[0-9]{1,2}:[0-9]{2}'  # time
  r'| ?[0-9]{3,4}'
  r'|[0-9]{1,2}'
  r'|[A-Z][a-z]+'  # capitalised word
  r'|[A-Z]+'
  # Template; leaves a last space to the time or number that takes it along.
  r'|(?:[^A-Z0-9 ]+| (?![0-9]{3}|[0-9]{1,2}:[0-9]{2}))+'
)


def byte_characters() -> list[str]:
  """Returns the printable character that stands for each of the 256 bytes.

  The table of byte-level BPE (Radford et al., 2019), as in `tokenizers`.
  """
  printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
  table, shift = [], 0
  for byte in range(256):
    if byte in printable:
      table.append(chr(byte))
    else:
      table.append(chr(256 + shift))
      shift += 1
  return table


def learn(
  chunks: Mapping[str, int],
  *,
  budget: int,
  min_count: int = 2,
  min_share: float = 1e-4,
) -> tuple[list[str], list[tuple[str, str]]]:
  """Chooses tokens greedily, one slot at a time, by tokens saved.

  A merge of neighbours (a, b) saves as many tokens as the pair occurs; a whole
  chunk of count c that now takes n tokens saves c·(n − 1). Merges that later
  choices left without use are given back.

  Args:
    chunks: pre-token (in byte characters) -> how often it occurs.
    budget: number of tokens that may be added to the 256 bytes.
    min_count: pairs and chunks that occur less often are left alone.
    min_share: a token must save this share of the number of pre-tokens.

  Returns:
    (tokens in order of choice, merges in order of application); deterministic.
  """
  state = _State(chunks, min_count)
  floor = max(1.0, min_share * sum(chunks.values()))
  tokens: dict[str, None] = {}
  merges: list[tuple[str, str]] = []
  while True:
    while len(tokens) < budget:
      pair, pair_gain = state.best_pair()
      chunk, chunk_gain = state.best_chunk()
      if max(pair_gain, chunk_gain) < floor:
        break
      if chunk_gain >= pair_gain:
        tokens[chunk] = None
        state.retire(chunk)
      else:
        tokens[''.join(pair)] = None
        merges.append(pair)
        state.merge(pair)
    used, merges = _needed(merges, state.used())
    if used.issuperset(tokens):
      return list(tokens), merges
    tokens = {token: None for token in tokens if token in used}


def _needed(
  merges: list[tuple[str, str]], used: set[str]
) -> tuple[set[str], list[tuple[str, str]]]:
  """Returns the tokens and merges without which `used` cannot be built."""
  kept = []
  for pair in reversed(merges):
    if ''.join(pair) in used:
      kept.append(pair)
      used.update(pair)
  return used, kept[::-1]


class _State:
  """Chunks as symbol lists, with pair counts kept up to date.

  Both heaps are lazy: an entry counts only if it tells the current gain.
  """

  def __init__(self, chunks: Mapping[str, int], min_count: int):
    self.min_count = min_count
    self.counts = dict(chunks)
    self.symbols = {chunk: list(chunk) for chunk in sorted(chunks)}
    self.pair_counts: Counter = Counter()
    self.pair_chunks: dict[tuple[str, str], set[str]] = {}
    for chunk in self.symbols:
      self._count(chunk, 1)
    self.pair_heap = [(-n, pair) for pair, n in self.pair_counts.items()]
    self.chunk_heap = [(-self._gain(c), c) for c in self.symbols]
    heapq.heapify(self.pair_heap)
    heapq.heapify(self.chunk_heap)

  def best_pair(self) -> tuple[tuple[str, str], int]:
    while self.pair_heap:
      gain, pair = self.pair_heap[0]
      if -gain == self.pair_counts[pair] >= self.min_count:
        return pair, -gain
      heapq.heappop(self.pair_heap)
    return ('', ''), 0

  def best_chunk(self) -> tuple[str, int]:
    while self.chunk_heap:
      gain, chunk = self.chunk_heap[0]
      if -gain == self._gain(chunk) and self.counts[chunk] >= self.min_count:
        return chunk, -gain
      heapq.heappop(self.chunk_heap)
    return '', 0

  def used(self) -> set[str]:
    """Returns the symbols that the chunks now consist of."""
    return {symbol for symbols in self.symbols.values() for symbol in symbols}

  def retire(self, chunk: str) -> None:
    """Takes a chunk that is now one token out of the statistics."""
    touched = self._count(chunk, -1)
    self.symbols[chunk] = [chunk]
    self._push(touched)

  def merge(self, pair: tuple[str, str]) -> None:
    touched: set[tuple[str, str]] = set()
    for chunk in sorted(self.pair_chunks[pair]):
      touched |= self._count(chunk, -1)
      self.symbols[chunk] = _merged(self.symbols[chunk], pair)
      touched |= self._count(chunk, 1)
      heapq.heappush(self.chunk_heap, (-self._gain(chunk), chunk))
    self._push(touched)

  def _gain(self, chunk: str) -> int:
    return self.counts[chunk] * (len(self.symbols[chunk]) - 1)

  def _count(self, chunk: str, sign: int) -> set[tuple[str, str]]:
    symbols, count = self.symbols[chunk], sign * self.counts[chunk]
    pairs = set()
    for pair in zip(symbols, symbols[1:]):
      self.pair_counts[pair] += count
      pairs.add(pair)
    for pair in pairs:
      members = self.pair_chunks.setdefault(pair, set())
      members.add(chunk) if sign > 0 else members.discard(chunk)
    return pairs

  def _push(self, pairs: set[tuple[str, str]]) -> None:
    for pair in pairs:
      if self.pair_counts[pair] > 0:
        heapq.heappush(self.pair_heap, (-self.pair_counts[pair], pair))


def _merged(symbols: list[str], pair: tuple[str, str]) -> list[str]:
  merged, i = [], 0
  while i < len(symbols):
    if tuple(symbols[i : i + 2]) == pair:
      merged.append(pair[0] + pair[1])
      i += 2
    else:
      merged.append(symbols[i])
      i += 1
  return merged
