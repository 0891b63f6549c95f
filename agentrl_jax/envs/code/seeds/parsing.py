"""Text with a grammar."""


def balanced(text):
  """Whether brackets open and close in order.

  >>> balanced('a(b[c]{d})')
  True
  >>> balanced('([)]')
  False
  >>> balanced('((')
  False
  >>> balanced('')
  True
  >>> balanced(')(')
  False
  """
  closing = {')': '(', ']': '[', '}': '{'}
  stack = []
  for letter in text:
    if letter in '([{':
      stack.append(letter)
    elif letter in closing and (not stack or stack.pop() != closing[letter]):
      return False
  return not stack


def tokens(text):
  """Splits a formula into numbers, names and signs.

  >>> tokens('12+ab*(3)')
  ['12', '+', 'ab', '*', '(', '3', ')']
  >>> tokens(' 7 ')
  ['7']
  >>> tokens('a1 - 20')
  ['a1', '-', '20']
  """
  out, index = [], 0
  while index < len(text):
    letter = text[index]
    if letter.isspace():
      index += 1
      continue
    end = index + 1
    if letter.isalnum():
      while end < len(text) and text[end].isalnum():
        end += 1
    out.append(text[index:end])
    index = end
  return out


def calculate(text):
  """Value of a formula of numbers, + - * and parentheses.

  >>> calculate('2+3*4')
  14
  >>> calculate('(2+3)*4')
  20
  >>> calculate('10-2-3')
  5
  >>> calculate('2*(3-(4-5))')
  8
  """
  left = tokens(text)

  def expression():
    value = product()
    while left and left[0] in '+-':
      if left.pop(0) == '+':
        value += product()
      else:
        value -= product()
    return value

  def product():
    value = atom()
    while left and left[0] == '*':
      left.pop(0)
      value *= atom()
    return value

  def atom():
    token = left.pop(0)
    if token == '(':
      value = expression()
      left.pop(0)
      return value
    return int(token)

  return expression()


def postfix(text):
  """Value of a formula with its signs behind.

  >>> postfix('3 4 + 2 *')
  14
  >>> postfix('9 4 -')
  5
  >>> postfix('2 3 4 * +')
  14
  >>> postfix('8')
  8
  """
  stack = []
  for token in text.split():
    if token in ('+', '-', '*'):
      right, left = stack.pop(), stack.pop()
      if token == '+':
        stack.append(left + right)
      elif token == '-':
        stack.append(left - right)
      else:
        stack.append(left * right)
    else:
      stack.append(int(token))
  return stack[-1]


def fields(line):
  """Cells of a line with commas; quotes keep commas.

  >>> fields('a,b,c')
  ['a', 'b', 'c']
  >>> fields('a,"b,c",d')
  ['a', 'b,c', 'd']
  >>> fields(',')
  ['', '']
  >>> fields('x')
  ['x']
  """
  cells, cell, quoted = [], '', False
  for letter in line:
    if letter == '"':
      quoted = not quoted
    elif letter == ',' and not quoted:
      cells.append(cell)
      cell = ''
    else:
      cell += letter
  cells.append(cell)
  return cells


def query(text):
  """Names and values of 'a=1&b=2', a later one wins.

  >>> query('a=1&b=2')
  {'a': '1', 'b': '2'}
  >>> query('a=1&a=3&c')
  {'a': '3', 'c': ''}
  >>> query('')
  {}
  """
  found = {}
  for part in text.split('&'):
    name, _, value = part.partition('=')
    if name:
      found[name] = value
  return found


def version(text):
  """Numbers of 'v1.20.3' for comparing; what is no number ends it.

  >>> version('v1.20.3')
  (1, 20, 3)
  >>> version('2.0rc1')
  (2,)
  >>> version('1.x.3')
  (1,)
  >>> version('')
  ()
  """
  numbers = []
  for part in text.lstrip('v').split('.'):
    if not part.isdigit():
      break
    numbers.append(int(part))
  return tuple(numbers)


def matches(pattern, text):
  """Whether '?' (a letter) and '*' (any letters) match a text.

  >>> matches('a*c', 'abbc')
  True
  >>> matches('a?c', 'ac')
  False
  >>> matches('*', '')
  True
  >>> matches('a*b*', 'acbd')
  True
  >>> matches('ab', 'abc')
  False
  """
  if not pattern:
    return not text
  if pattern[0] == '*':
    rest = pattern[1:]
    return any(matches(rest, text[i:]) for i in range(len(text) + 1))
  if not text or pattern[0] not in ('?', text[0]):
    return False
  return matches(pattern[1:], text[1:])
