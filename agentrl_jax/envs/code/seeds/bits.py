"""Numbers as bits and bytes."""


def ones(number):
  """How many bits are set.

  >>> ones(13)
  3
  >>> ones(0)
  0
  >>> ones(255)
  8
  """
  found = 0
  while number > 0:
    found += number & 1
    number >>= 1
  return found


def reverse(number, width):
  """Bits of a number back to front.

  >>> reverse(1, 4)
  8
  >>> reverse(6, 4)
  6
  >>> reverse(3, 8)
  192
  """
  out = 0
  for _ in range(width):
    out = (out << 1) | (number & 1)
    number >>= 1
  return out


def checksum(text):
  """Weighted sum of letters modulo 97.

  >>> checksum('abc')
  8
  >>> checksum('')
  0
  >>> checksum('acb') == checksum('abc')
  False
  """
  total = 0
  for place, letter in enumerate(text, 1):
    total = (total + place * ord(letter)) % 97
  return total


def luhn(digits):
  """Whether the last digit of a card number is right.

  >>> luhn('79927398713')
  True
  >>> luhn('79927398710')
  False
  >>> luhn('18')
  True
  >>> luhn('0')
  True
  """
  total = 0
  for place, digit in enumerate(reversed(digits)):
    value = int(digit)
    if place % 2 == 1:
      value *= 2
      if value > 9:
        value -= 9
    total += value
  return total % 10 == 0


def gray(number):
  """Gray code, of which neighbours differ by one bit.

  >>> [gray(n) for n in range(5)]
  [0, 1, 3, 2, 6]
  >>> gray(10)
  15
  """
  return number ^ (number >> 1)


def hexdump(data, width):
  """Bytes in rows of hexadecimal numbers.

  >>> hexdump([0, 15, 255], 2)
  ['00 0f', 'ff']
  >>> hexdump([], 4)
  []
  >>> hexdump([16, 32, 48, 64], 4)
  ['10 20 30 40']
  """
  rows = []
  for start in range(0, len(data), width):
    cells = []
    for byte in data[start : start + width]:
      digits = '0123456789abcdef'
      cells.append(digits[byte // 16] + digits[byte % 16])
    rows.append(' '.join(cells))
  return rows


def varint(number):
  """Seven bits a byte, lowest first, 128 added where more follow.

  >>> varint(1)
  [1]
  >>> varint(300)
  [172, 2]
  >>> varint(0)
  [0]
  >>> varint(128)
  [128, 1]
  """
  out = []
  while number >= 128:
    out.append(number % 128 + 128)
    number //= 128
  out.append(number)
  return out


def unvarint(data):
  """Number of such bytes.

  >>> unvarint([172, 2])
  300
  >>> unvarint([5])
  5
  >>> unvarint([128, 1])
  128
  """
  number, shift = 0, 0
  for byte in data:
    number += (byte % 128) << shift
    shift += 7
    if byte < 128:
      break
  return number
