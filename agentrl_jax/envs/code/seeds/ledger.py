"""Accounts and money in cents."""


def total(entries, account):
  """Balance of an account from (from, to, cents) entries.

  >>> total([('ann', 'bob', 500), ('bob', 'eve', 200)], 'bob')
  300
  >>> total([('ann', 'bob', 500)], 'ann')
  -500
  >>> total([], 'ann')
  0
  """
  balance = 0
  for source, target, cents in entries:
    if source == account:
      balance -= cents
    if target == account:
      balance += cents
  return balance


def money(cents):
  """Writes cents with thousands and two decimals.

  >>> money(123456)
  '1,234.56'
  >>> money(5)
  '0.05'
  >>> money(-2500)
  '-25.00'
  >>> money(100000000)
  '1,000,000.00'
  """
  sign = '-' if cents < 0 else ''
  whole, rest = divmod(abs(cents), 100)
  text = str(whole)
  groups = []
  while len(text) > 3:
    groups.append(text[-3:])
    text = text[:-3]
  groups.append(text)
  return sign + ','.join(groups[::-1]) + '.' + str(rest).rjust(2, '0')


def split(cents, people):
  """Parts that differ by at most a cent and add up.

  >>> split(100, 3)
  [34, 33, 33]
  >>> split(10, 5)
  [2, 2, 2, 2, 2]
  >>> split(1, 2)
  [1, 0]
  """
  share, rest = divmod(cents, people)
  parts = []
  for index in range(people):
    parts.append(share + 1 if index < rest else share)
  return parts


def change(cents, coins):
  """Fewest coins for an amount, -1 if it cannot be paid.

  >>> change(30, [1, 10, 25])
  3
  >>> change(7, [2, 4])
  -1
  >>> change(0, [5])
  0
  >>> change(11, [5, 2])
  4
  """
  best = [0] + [-1] * cents
  for amount in range(1, cents + 1):
    for coin in coins:
      if coin <= amount and best[amount - coin] >= 0:
        tried = best[amount - coin] + 1
        if best[amount] < 0 or tried < best[amount]:
          best[amount] = tried
  return best[cents]


def discount(cents, percent, cap):
  """Price after a discount of at most cap cents, rounded half up.

  >>> discount(1000, 10, 500)
  900
  >>> discount(10000, 50, 2000)
  8000
  >>> discount(999, 10, 500)
  899
  >>> discount(15, 10, 100)
  13
  """
  off = (cents * percent + 50) // 100
  return max(cents - min(off, cap), 0)


def interest(cents, rate, years):
  """Cents after years at rate percent, rounded down each year.

  >>> interest(10000, 10, 2)
  12100
  >>> interest(999, 5, 1)
  1048
  >>> interest(500, 3, 0)
  500
  """
  for _ in range(years):
    cents += cents * rate // 100
  return cents


def statement(entries):
  """Final balances by name, without what is zero.

  >>> statement([('ann', 'bob', 5), ('bob', 'eve', 5)])
  [('ann', -5), ('eve', 5)]
  >>> statement([('a', 'b', 3), ('b', 'a', 3)])
  []
  """
  names = set()
  for source, target, _ in entries:
    names.add(source)
    names.add(target)
  out = []
  for name in sorted(names):
    balance = total(entries, name)
    if balance != 0:
      out.append((name, balance))
  return out
