"""Graphs as dictionaries of lists."""

import heapq


def reachable(graph, start):
  """Nodes that can be reached, in order of their names.

  >>> reachable({'a': ['b'], 'b': ['c'], 'd': ['a']}, 'a')
  ['a', 'b', 'c']
  >>> reachable({}, 'x')
  ['x']
  >>> reachable({'a': ['b'], 'b': ['a']}, 'b')
  ['a', 'b']
  """
  seen, waiting = {start}, [start]
  while waiting:
    node = waiting.pop()
    for other in graph.get(node, []):
      if other not in seen:
        seen.add(other)
        waiting.append(other)
  return sorted(seen)


def order(needs):
  """Tasks with what they need before them, names first; [] if impossible.

  >>> order({'c': ['a', 'b'], 'b': ['a'], 'a': []})
  ['a', 'b', 'c']
  >>> order({'a': ['b'], 'b': ['a']})
  []
  >>> order({'b': [], 'a': []})
  ['a', 'b']
  """
  done = []
  left = dict(needs)
  while left:
    ready = sorted(
      task for task, before in left.items() if all(b in done for b in before)
    )
    if not ready:
      return []
    done.append(ready[0])
    del left[ready[0]]
  return done


def cheapest(roads, start, goal):
  """Cost of the cheapest way, -1 if there is none.

  >>> cheapest({'a': {'b': 1, 'c': 5}, 'b': {'c': 2}}, 'a', 'c')
  3
  >>> cheapest({'a': {'b': 1}}, 'b', 'a')
  -1
  >>> cheapest({}, 'a', 'a')
  0
  >>> cheapest({'a': {'b': 4, 'c': 1}, 'c': {'b': 1}}, 'a', 'b')
  2
  """
  waiting, done = [(0, start)], set()
  while waiting:
    cost, node = heapq.heappop(waiting)
    if node == goal:
      return cost
    if node in done:
      continue
    done.add(node)
    for other, length in roads.get(node, {}).items():
      if other not in done:
        heapq.heappush(waiting, (cost + length, other))
  return -1


def has_cycle(graph):
  """Whether some node comes back to itself.

  >>> has_cycle({'a': ['b'], 'b': ['c'], 'c': ['a']})
  True
  >>> has_cycle({'a': ['b', 'c'], 'b': ['c'], 'c': []})
  False
  >>> has_cycle({'a': ['a']})
  True
  >>> has_cycle({})
  False
  """
  state = {}

  def visit(node):
    if state.get(node) == 'open':
      return True
    if state.get(node) == 'done':
      return False
    state[node] = 'open'
    found = any(visit(other) for other in graph.get(node, []))
    state[node] = 'done'
    return found

  return any(visit(node) for node in graph)


def groups(edges):
  """Connected nodes together, in order.

  >>> groups([(1, 2), (3, 4), (2, 5)])
  [[1, 2, 5], [3, 4]]
  >>> groups([])
  []
  >>> groups([(1, 1)])
  [[1]]
  """
  parent = {}

  def find(node):
    while parent.setdefault(node, node) != node:
      node = parent[node]
    return node

  for first, second in edges:
    a, b = find(first), find(second)
    if a != b:
      parent[max(a, b)] = min(a, b)
  found = {}
  for node in sorted(parent):
    found.setdefault(find(node), []).append(node)
  return [found[root] for root in sorted(found)]


def depth(tree):
  """Levels of a tree of (name, children) pairs.

  >>> depth(('a', []))
  1
  >>> depth(('a', [('b', []), ('c', [('d', [])])]))
  3
  """
  if not tree[1]:
    return 1
  return 1 + max(depth(child) for child in tree[1])


def path(tree, name):
  """Names from the root to a name, [] if it is not there.

  >>> path(('a', [('b', []), ('c', [('d', [])])]), 'd')
  ['a', 'c', 'd']
  >>> path(('a', []), 'a')
  ['a']
  >>> path(('a', [('b', [])]), 'z')
  []
  """
  if tree[0] == name:
    return [name]
  for child in tree[1]:
    found = path(child, name)
    if found:
      return [tree[0]] + found
  return []
