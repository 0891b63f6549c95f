"""Small work on text."""


def title(text):
  """Capitalises each word but small ones inside.

  >>> title('the lord of the rings')
  'The Lord of the Rings'
  >>> title('a tale of two cities')
  'A Tale of Two Cities'
  >>> title('of mice and men')
  'Of Mice and Men'
  >>> title('')
  ''
  """
  small = ('of', 'the', 'and', 'a', 'in')
  words = []
  for index, word in enumerate(text.split()):
    if index > 0 and word in small:
      words.append(word)
    else:
      words.append(word[:1].upper() + word[1:])
  return ' '.join(words)


def wrap(text, width):
  """Breaks text into lines of at most width letters, between words.

  >>> wrap('one two three four', 9)
  ['one two', 'three', 'four']
  >>> wrap('one two three four', 8)
  ['one two', 'three', 'four']
  >>> wrap('abc de f', 4)
  ['abc', 'de f']
  >>> wrap('', 5)
  []
  """
  lines, line = [], ''
  for word in text.split():
    if line and len(line) + 1 + len(word) > width:
      lines.append(line)
      line = word
    else:
      line = (line + ' ' + word).strip()
  if line:
    lines.append(line)
  return lines


def is_palindrome(text):
  """Whether letters and digits read the same backwards.

  >>> is_palindrome('Never odd or even')
  True
  >>> is_palindrome('Hello')
  False
  >>> is_palindrome('a1 b1')
  False
  >>> is_palindrome('12 a 21')
  True
  >>> is_palindrome('')
  True
  """
  kept = [letter.lower() for letter in text if letter.isalnum()]
  left, right = 0, len(kept) - 1
  while left < right:
    if kept[left] != kept[right]:
      return False
    left += 1
    right -= 1
  return True


def count(text):
  """Words by how often they occur, most often first, then by name.

  >>> count('b a b c a b')
  [('b', 3), ('a', 2), ('c', 1)]
  >>> count('x y')
  [('x', 1), ('y', 1)]
  >>> count('Up up')
  [('up', 2)]
  """
  found = {}
  for word in text.lower().split():
    found[word] = found.get(word, 0) + 1
  return sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))


def caesar(text, shift):
  """Moves letters along the alphabet, others stay.

  >>> caesar('abc xyz', 2)
  'cde zab'
  >>> caesar('Hello', 13)
  'Uryyb'
  >>> caesar('cde', -2)
  'abc'
  """
  out = ''
  for letter in text:
    if 'a' <= letter <= 'z':
      out += chr((ord(letter) - 97 + shift) % 26 + 97)
    elif 'A' <= letter <= 'Z':
      out += chr((ord(letter) - 65 + shift) % 26 + 65)
    else:
      out += letter
  return out


def squeeze(text):
  """Writes runs of a letter as letter and number.

  >>> squeeze('aaabcc')
  'a3bc2'
  >>> squeeze('abc')
  'abc'
  >>> squeeze('')
  ''
  >>> squeeze('zzzz')
  'z4'
  """
  out, index = '', 0
  while index < len(text):
    end = index
    while end < len(text) and text[end] == text[index]:
      end += 1
    length = end - index
    out += text[index] + (str(length) if length > 1 else '')
    index = end
  return out


def common(first, second):
  """Longest beginning that two words share.

  >>> common('flower', 'flow')
  'flow'
  >>> common('dog', 'cat')
  ''
  >>> common('interval', 'internet')
  'inter'
  """
  size = 0
  while size < min(len(first), len(second)) and first[size] == second[size]:
    size += 1
  return first[:size]
