"""Whole numbers."""


def divisors(number):
  """All numbers that divide a number, in order.

  >>> divisors(12)
  [1, 2, 3, 4, 6, 12]
  >>> divisors(16)
  [1, 2, 4, 8, 16]
  >>> divisors(13)
  [1, 13]
  >>> divisors(1)
  [1]
  """
  low, high = [], []
  candidate = 1
  while candidate * candidate <= number:
    if number % candidate == 0:
      low.append(candidate)
      if candidate * candidate < number:
        high.append(number // candidate)
    candidate += 1
  return low + high[::-1]


def primes(limit):
  """Primes up to a limit.

  >>> primes(20)
  [2, 3, 5, 7, 11, 13, 17, 19]
  >>> primes(2)
  [2]
  >>> primes(1)
  []
  >>> primes(30)[-1]
  29
  """
  marked = [False] * (limit + 1)
  found = []
  for number in range(2, limit + 1):
    if marked[number]:
      continue
    found.append(number)
    for multiple in range(number * number, limit + 1, number):
      marked[multiple] = True
  return found


def factor(number):
  """Prime factors with their powers.

  >>> factor(60)
  [(2, 2), (3, 1), (5, 1)]
  >>> factor(49)
  [(7, 2)]
  >>> factor(17)
  [(17, 1)]
  >>> factor(1)
  []
  """
  factors, candidate = [], 2
  while candidate * candidate <= number:
    power = 0
    while number % candidate == 0:
      number //= candidate
      power += 1
    if power > 0:
      factors.append((candidate, power))
    candidate += 1
  if number > 1:
    factors.append((number, 1))
  return factors


def gcd(first, second):
  """Largest common divisor.

  >>> gcd(12, 18)
  6
  >>> gcd(7, 13)
  1
  >>> gcd(0, 5)
  5
  >>> gcd(48, 36)
  12
  """
  while second != 0:
    first, second = second, first % second
  return abs(first)


def digits(number, base):
  """Digits of a number in a base, highest first.

  >>> digits(10, 2)
  [1, 0, 1, 0]
  >>> digits(255, 16)
  [15, 15]
  >>> digits(0, 7)
  [0]
  >>> digits(345, 10)
  [3, 4, 5]
  """
  if number == 0:
    return [0]
  out = []
  while number > 0:
    out.append(number % base)
    number //= base
  return out[::-1]


def roman(number):
  """Writes 1 to 3999 in Roman numerals.

  >>> roman(1994)
  'MCMXCIV'
  >>> roman(8)
  'VIII'
  >>> roman(40)
  'XL'
  >>> roman(3999)
  'MMMCMXCIX'
  """
  values = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
  letters = ('M', 'CM', 'D', 'CD', 'C', 'XC')
  letters += ('L', 'XL', 'X', 'IX', 'V', 'IV', 'I')
  out = ''
  for value, letter in zip(values, letters):
    while number >= value:
      out += letter
      number -= value
  return out


def collatz(number):
  """Steps until halving and 3n+1 reach 1.

  >>> collatz(6)
  8
  >>> collatz(1)
  0
  >>> collatz(27)
  111
  """
  steps = 0
  while number > 1:
    if number % 2 == 0:
      number = number // 2
    else:
      number = 3 * number + 1
    steps += 1
  return steps


def is_perfect(number):
  """Whether the smaller divisors add up to the number.

  >>> is_perfect(28)
  True
  >>> is_perfect(12)
  False
  >>> is_perfect(6)
  True
  >>> is_perfect(1)
  False
  """
  return number > 1 and sum(divisors(number)[:-1]) == number
