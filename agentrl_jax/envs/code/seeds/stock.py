"""A store room: {item: number}."""


def receive(stock, delivery):
  """Stock after a delivery; the old one stays as it was.

  >>> receive({'nut': 3}, {'nut': 2, 'bolt': 1})
  {'nut': 5, 'bolt': 1}
  >>> receive({}, {})
  {}
  """
  after = dict(stock)
  for item, number in delivery.items():
    after[item] = after.get(item, 0) + number
  return after


def ship(stock, order):
  """Stock after an order, None if something is short.

  >>> ship({'nut': 3, 'bolt': 1}, {'nut': 2})
  {'nut': 1, 'bolt': 1}
  >>> ship({'nut': 1}, {'nut': 2})
  >>> ship({'nut': 2}, {'nut': 2})
  {}
  >>> ship({'nut': 2}, {'screw': 1}) is None
  True
  """
  after = dict(stock)
  for item, number in order.items():
    if after.get(item, 0) < number:
      return None
    after[item] -= number
    if after[item] == 0:
      del after[item]
  return after


def low(stock, limits, default):
  """What has fallen below its limit, and by how much.

  >>> low({'nut': 3, 'bolt': 9}, {'bolt': 10}, 5)
  [('bolt', 1), ('nut', 2)]
  >>> low({'nut': 5}, {}, 5)
  []
  """
  short = []
  for item in sorted(stock):
    missing = limits.get(item, default) - stock[item]
    if missing > 0:
      short.append((item, missing))
  return short


def pack(sizes, room):
  """Puts sizes into boxes, each into the first that has room.

  >>> pack([4, 3, 2, 1], 5)
  [[4, 1], [3, 2]]
  >>> pack([5, 5], 5)
  [[5], [5]]
  >>> pack([], 5)
  []
  """
  boxes = []
  for size in sizes:
    for box in boxes:
      if sum(box) + size <= room:
        box.append(size)
        break
    else:
      boxes.append([size])
  return boxes


def best_load(weights, values, limit):
  """Highest value of things that weigh at most limit together.

  >>> best_load([2, 3, 4], [3, 4, 5], 5)
  7
  >>> best_load([5], [10], 4)
  0
  >>> best_load([1, 1, 1], [1, 2, 3], 2)
  5
  """
  best = [0] * (limit + 1)
  for weight, value in zip(weights, values):
    for room in range(limit, weight - 1, -1):
      best[room] = max(best[room], best[room - weight] + value)
  return best[limit]


def oldest(batches, number):
  """Takes a number of pieces, oldest (day, pieces) batches first.

  >>> oldest([(3, 5), (1, 2)], 4)
  [(1, 2), (3, 2)]
  >>> oldest([(1, 2)], 2)
  [(1, 2)]
  >>> oldest([(2, 1), (1, 9)], 3)
  [(1, 3)]
  """
  taken = []
  for day, pieces in sorted(batches):
    if number <= 0:
      break
    used = min(pieces, number)
    taken.append((day, used))
    number -= used
  return taken


def invoice(order, prices, free_from):
  """Sum of an order and its postage, 5 below free_from.

  >>> invoice({'nut': 3}, {'nut': 2}, 10)
  (6, 5)
  >>> invoice({'nut': 5}, {'nut': 2}, 10)
  (10, 0)
  >>> invoice({}, {}, 10)
  (0, 0)
  """
  total = 0
  for item, number in order.items():
    total += prices[item] * number
  postage = 5 if 0 < total < free_from else 0
  return total, postage
