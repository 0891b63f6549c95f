"""Numbers about numbers."""


def mean(values):
  """Average, 0 of nothing.

  >>> mean([1, 2, 3, 4])
  2.5
  >>> mean([])
  0
  >>> mean([7])
  7.0
  """
  if not values:
    return 0
  return sum(values) / len(values)


def median(values):
  """The middle value, or the average of the two in the middle.

  >>> median([3, 1, 2])
  2
  >>> median([4, 1, 3, 2])
  2.5
  >>> median([5])
  5
  """
  ordered = sorted(values)
  middle = len(ordered) // 2
  if len(ordered) % 2 == 1:
    return ordered[middle]
  return (ordered[middle - 1] + ordered[middle]) / 2


def mode(values):
  """The commonest value, the smallest of equals.

  >>> mode([1, 2, 2, 3])
  2
  >>> mode([3, 1, 3, 1])
  1
  >>> mode([9])
  9
  """
  counts = {}
  for value in values:
    counts[value] = counts.get(value, 0) + 1
  best = None
  for value in sorted(counts):
    if best is None or counts[value] > counts[best]:
      best = value
  return best


def moving(values, width):
  """Sums of windows.

  >>> moving([1, 2, 3, 4], 2)
  [3, 5, 7]
  >>> moving([1, 2], 3)
  []
  >>> moving([5, 1, 1], 1)
  [5, 1, 1]
  """
  if width > len(values):
    return []
  total = sum(values[:width])
  sums = [total]
  for index in range(width, len(values)):
    total += values[index] - values[index - width]
    sums.append(total)
  return sums


def histogram(values, size):
  """How many values lie in each bin [k size, (k + 1) size).

  >>> histogram([1, 2, 5, 7, 11], 5)
  [(0, 2), (5, 2), (10, 1)]
  >>> histogram([], 5)
  []
  >>> histogram([10, 3], 10)
  [(0, 1), (10, 1)]
  """
  bins = {}
  for value in values:
    start = value // size * size
    bins[start] = bins.get(start, 0) + 1
  return sorted(bins.items())


def ranks(scores):
  """Places, best score first; equals share a place.

  >>> ranks([10, 30, 20])
  [3, 1, 2]
  >>> ranks([5, 5, 1])
  [1, 1, 3]
  >>> ranks([])
  []
  """
  places = []
  for score in scores:
    places.append(1 + sum(other > score for other in scores))
  return places


def clip(values, low, high):
  """Values moved into a range.

  >>> clip([1, 5, 9], 2, 8)
  [2, 5, 8]
  >>> clip([], 0, 1)
  []
  >>> clip([-1, 0], 0, 3)
  [0, 0]
  """
  return [max(low, min(value, high)) for value in values]


def deltas(values):
  """Rises between neighbours, and how many there are in a row at most.

  >>> deltas([1, 3, 4, 2])
  ([2, 1, -2], 2)
  >>> deltas([5])
  ([], 0)
  >>> deltas([3, 2, 1])
  ([-1, -1], 0)
  """
  steps, best, run = [], 0, 0
  for before, after in zip(values, values[1:]):
    steps.append(after - before)
    run = run + 1 if after > before else 0
    best = max(best, run)
  return steps, best
