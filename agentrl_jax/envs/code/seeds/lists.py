"""Lists in and lists out."""


def chunks(items, size):
  """Cuts a list into pieces of a size; the last may be shorter.

  >>> chunks([1, 2, 3, 4, 5], 2)
  [[1, 2], [3, 4], [5]]
  >>> chunks([], 3)
  []
  >>> chunks([1, 2, 3], 5)
  [[1, 2, 3]]
  """
  out = []
  for start in range(0, len(items), size):
    out.append(items[start : start + size])
  return out


def merge(left, right):
  """Merges two sorted lists.

  >>> merge([1, 4, 6], [2, 3, 7])
  [1, 2, 3, 4, 6, 7]
  >>> merge([], [1])
  [1]
  >>> merge([1, 1], [1])
  [1, 1, 1]
  >>> merge([5], [1, 2])
  [1, 2, 5]
  """
  out, i, j = [], 0, 0
  while i < len(left) and j < len(right):
    if left[i] <= right[j]:
      out.append(left[i])
      i += 1
    else:
      out.append(right[j])
      j += 1
  return out + left[i:] + right[j:]


def search(items, wanted):
  """Index of a value in a sorted list, -1 if it is not there.

  >>> search([1, 3, 5, 7, 9], 7)
  3
  >>> search([1, 3, 5, 7, 9], 1)
  0
  >>> search([1, 3, 5, 7, 9], 4)
  -1
  >>> search([], 4)
  -1
  """
  low, high = 0, len(items) - 1
  while low <= high:
    middle = (low + high) // 2
    if items[middle] == wanted:
      return middle
    if items[middle] < wanted:
      low = middle + 1
    else:
      high = middle - 1
  return -1


def rotate(items, steps):
  """Moves a list to the right; what falls off comes in again.

  >>> rotate([1, 2, 3, 4], 1)
  [4, 1, 2, 3]
  >>> rotate([1, 2, 3, 4], -1)
  [2, 3, 4, 1]
  >>> rotate([1, 2, 3], 5)
  [2, 3, 1]
  >>> rotate([], 2)
  []
  """
  if not items:
    return []
  steps = steps % len(items)
  return items[len(items) - steps :] + items[: len(items) - steps]


def flatten(nested):
  """Takes lists out of lists, however deep.

  >>> flatten([1, [2, [3, []]], 4])
  [1, 2, 3, 4]
  >>> flatten([])
  []
  >>> flatten([[[5]], 6])
  [5, 6]
  """
  out = []
  for item in nested:
    if isinstance(item, list):
      out += flatten(item)
    else:
      out.append(item)
  return out


def best_run(items):
  """Largest sum of neighbours.

  >>> best_run([1, -2, 3, 4, -1, 2, -6])
  8
  >>> best_run([-3, -1, -2])
  -1
  >>> best_run([5])
  5
  >>> best_run([2, -1, 2])
  3
  """
  best = current = items[0]
  for item in items[1:]:
    current = max(item, current + item)
    best = max(best, current)
  return best


def unique(items):
  """Each value once, in the order of its first place.

  >>> unique([3, 1, 3, 2, 1])
  [3, 1, 2]
  >>> unique([])
  []
  >>> unique(['b', 'a', 'b'])
  ['b', 'a']
  """
  seen, out = set(), []
  for item in items:
    if item not in seen:
      seen.add(item)
      out.append(item)
  return out


def pairs(items, total):
  """Pairs of values that add up to a total, smaller one first.

  >>> pairs([1, 5, 3, 4, 2], 6)
  [(1, 5), (2, 4)]
  >>> pairs([3, 3], 6)
  [(3, 3)]
  >>> pairs([1, 2], 9)
  []
  """
  out = []
  items = sorted(items)
  left, right = 0, len(items) - 1
  while left < right:
    found = items[left] + items[right]
    if found == total:
      out.append((items[left], items[right]))
      left += 1
      right -= 1
    elif found < total:
      left += 1
    else:
      right -= 1
  return out


def insertion_sort(items):
  """Sorts a copy of a list, one value at a time.

  >>> insertion_sort([3, 1, 2])
  [1, 2, 3]
  >>> insertion_sort([])
  []
  >>> insertion_sort([2, 2, 1, 9, -4])
  [-4, 1, 2, 2, 9]
  """
  out = list(items)
  for index in range(1, len(out)):
    value = out[index]
    place = index
    while place > 0 and out[place - 1] > value:
      out[place] = out[place - 1]
      place -= 1
    out[place] = value
  return out
