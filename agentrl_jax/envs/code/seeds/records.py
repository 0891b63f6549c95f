"""Rows as dictionaries."""


def where(rows, **wanted):
  """Rows that have these values.

  >>> where([{'a': 1, 'b': 2}, {'a': 1, 'b': 3}], a=1, b=3)
  [{'a': 1, 'b': 3}]
  >>> where([{'a': 1}], c=1)
  []
  >>> where([{'a': 1}])
  [{'a': 1}]
  """
  found = []
  for row in rows:
    if all(row.get(name) == value for name, value in wanted.items()):
      found.append(row)
  return found


def group(rows, key):
  """Rows by the value of a key, rows without it under None.

  >>> group([{'a': 1, 'b': 2}, {'a': 1, 'b': 3}, {'b': 4}], 'a')
  {1: [{'a': 1, 'b': 2}, {'a': 1, 'b': 3}], None: [{'b': 4}]}
  >>> group([], 'a')
  {}
  """
  groups = {}
  for row in rows:
    value = row.get(key)
    if value not in groups:
      groups[value] = []
    groups[value].append(row)
  return groups


def join(left, right, key):
  """Rows of both that agree on a key, in the order of the left.

  >>> join([{'id': 1, 'a': 2}], [{'id': 1, 'b': 3}], 'id')
  [{'id': 1, 'a': 2, 'b': 3}]
  >>> join([{'id': 1}], [{'id': 2}], 'id')
  []
  """
  out = []
  for first in left:
    for second in right:
      if first[key] == second[key]:
        out.append({**first, **second})
  return out


def pluck(row, path, default=None):
  """A value deep inside, by a path with dots.

  >>> pluck({'a': {'b': [5, 6]}}, 'a.b.1')
  6
  >>> pluck({'a': 1}, 'a.b', 'none')
  'none'
  >>> pluck({'a': {'c': 3}}, 'a.c')
  3
  """
  for name in path.split('.'):
    if isinstance(row, dict) and name in row:
      row = row[name]
    elif isinstance(row, list) and name.isdigit() and int(name) < len(row):
      row = row[int(name)]
    else:
      return default
  return row


def update(old, new):
  """Merges dictionaries, those inside as well.

  >>> update({'a': {'b': 1, 'c': 2}}, {'a': {'b': 5}})
  {'a': {'b': 5, 'c': 2}}
  >>> update({'a': 1}, {'a': {'b': 2}})
  {'a': {'b': 2}}
  >>> update({}, {'x': 1})
  {'x': 1}
  """
  out = dict(old)
  for name, value in new.items():
    if isinstance(value, dict) and isinstance(out.get(name), dict):
      out[name] = update(out[name], value)
    else:
      out[name] = value
  return out


def changes(old, new):
  """What was added, removed and changed, by name.

  >>> changes({'a': 1, 'b': 2}, {'b': 3, 'c': 4})
  (['c'], ['a'], ['b'])
  >>> changes({'a': 1}, {'a': 1})
  ([], [], [])
  """
  added = sorted(name for name in new if name not in old)
  removed = sorted(name for name in old if name not in new)
  both = [name for name in old if name in new and old[name] != new[name]]
  return added, removed, sorted(both)


def table(rows):
  """Rows as lines with columns of one width, names on top.

  >>> table([{'id': 1, 'name': 'ann'}, {'id': 22, 'name': 'bo'}])
  ['id name', '1  ann', '22 bo']
  >>> table([])
  []
  """
  if not rows:
    return []
  names = list(rows[0])
  lines = [names] + [[str(row.get(name, '')) for name in names] for row in rows]
  widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
  out = []
  for line in lines:
    cells = [cell.ljust(width) for cell, width in zip(line, widths)]
    out.append(' '.join(cells).rstrip())
  return out


def top(rows, key, number):
  """The rows with the highest values, highest first.

  >>> top([{'v': 3}, {'v': 9}, {'v': 5}], 'v', 2)
  [{'v': 9}, {'v': 5}]
  >>> top([{'v': 1}], 'v', 3)
  [{'v': 1}]
  >>> top([], 'v', 1)
  []
  """
  ordered = sorted(rows, key=lambda row: row[key], reverse=True)
  return ordered[:number]
