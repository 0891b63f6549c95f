"""Rules of small games."""


def winner(board):
  """Who has three in a row on a board of nine letters, '' for nobody.

  >>> winner('xxx.o.o..')
  'x'
  >>> winner('xo.xo..ox')
  'o'
  >>> winner('x.o.xo..x')
  'x'
  >>> winner('xoxoxoxox')
  'x'
  >>> winner('.........')
  ''
  """
  lines = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8)]
  lines += [(0, 4, 8), (2, 4, 6)]
  for a, b, c in lines:
    if board[a] != '.' and board[a] == board[b] == board[c]:
      return board[a]
  return ''


def bowling(rolls):
  """Score of a game of ten frames.

  >>> bowling([10] * 12)
  300
  >>> bowling([9, 0] * 10)
  90
  >>> bowling([5] * 21)
  150
  >>> bowling([10, 3, 4] + [0] * 16)
  24
  """
  score, index = 0, 0
  for _ in range(10):
    if rolls[index] == 10:
      score += 10 + rolls[index + 1] + rolls[index + 2]
      index += 1
    elif rolls[index] + rolls[index + 1] == 10:
      score += 10 + rolls[index + 2]
      index += 2
    else:
      score += rolls[index] + rolls[index + 1]
      index += 2
  return score


def hand(cards):
  """Value of a hand of blackjack; an ace is 11 while that fits.

  >>> hand(['A', 'K'])
  21
  >>> hand(['A', 'A', '9'])
  21
  >>> hand(['10', '5', 'Q'])
  25
  >>> hand([])
  0
  """
  total, aces = 0, 0
  for card in cards:
    if card == 'A':
      aces += 1
      total += 11
    elif card in ('K', 'Q', 'J'):
      total += 10
    else:
      total += int(card)
  while total > 21 and aces > 0:
    total -= 10
    aces -= 1
  return total


def guess(secret, word):
  """Marks letters: '=' in place, '+' elsewhere, '-' nowhere.

  >>> guess('crane', 'caner')
  '=++++'
  >>> guess('abc', 'xyz')
  '---'
  >>> guess('aab', 'aaa')
  '==-'
  >>> guess('abc', 'bca')
  '+++'
  """
  left = list(secret)
  marks = ['-'] * len(word)
  for place, letter in enumerate(word):
    if secret[place] == letter:
      marks[place] = '='
      left.remove(letter)
  for place, letter in enumerate(word):
    if marks[place] == '-' and letter in left:
      marks[place] = '+'
      left.remove(letter)
  return ''.join(marks)


def queens(columns):
  """Whether queens, one a row in these columns, leave each other alone.

  >>> queens([1, 3, 0, 2])
  True
  >>> queens([0, 1, 2, 3])
  False
  >>> queens([0, 2, 0])
  False
  >>> queens([])
  True
  """
  for row in range(len(columns)):
    for other in range(row):
      apart = abs(columns[row] - columns[other])
      if apart == 0 or apart == row - other:
        return False
  return True


def mines(rows):
  """Writes the number of mines '*' around each free place.

  >>> mines(['*.', '..'])
  ['*1', '11']
  >>> mines(['...', '.*.', '...'])
  ['111', '1*1', '111']
  >>> mines(['.'])
  ['0']
  """
  out = []
  for y, row in enumerate(rows):
    line = ''
    for x, cell in enumerate(row):
      near = 0
      for b in range(max(y - 1, 0), min(y + 2, len(rows))):
        for a in range(max(x - 1, 0), min(x + 2, len(row))):
          near += rows[b][a] == '*'
      line += '*' if cell == '*' else str(near)
    out.append(line)
  return out


def elo(own, other, points):
  """Rating after a game that gave points (2 won, 1 drawn, 0 lost).

  >>> elo(1500, 1500, 2)
  1516
  >>> elo(1500, 1500, 1)
  1500
  >>> elo(1600, 1400, 0)
  1576
  """
  gap = max(-400, min(other - own, 400))
  expected = 50 - gap * 50 // 400
  return own + 32 * (points * 50 - expected) // 100


def moves(position, size):
  """Squares that a knight reaches on a board, in order.

  >>> moves((0, 0), 8)
  [(1, 2), (2, 1)]
  >>> len(moves((3, 3), 8))
  8
  >>> moves((1, 1), 3)
  []
  """
  row, column = position
  found = []
  for down in (-2, -1, 1, 2):
    for right in (-2, -1, 1, 2):
      if abs(down) == abs(right):
        continue
      if 0 <= row + down < size and 0 <= column + right < size:
        found.append((row + down, column + right))
  return found
