"""Where a text is cut, what is said instead, and that it fits."""

import pytest

from agentrl_jax import types
from agentrl_jax.rollout import truncation

Message = types.Message


@pytest.mark.parametrize(
  'text, size, head, missing',
  [
    ('abcdefgh', 3, 'abc', 5),
    ('abcdefgh', 0, '', 8),
    ('ab<br/>cd', 1, 'a', 8),
    ('ab<br/>cd', 2, 'ab', 7),
    ('ab<br/>cd', 3, 'ab', 7),  # inside the tag: before it
    ('ab<br/>cd', 6, 'ab', 7),
    ('ab<br/>cd', 7, 'ab<br/>', 2),  # the tag is whole
    ('x<|end|>y', 5, 'x', 8),
    ('1 < 2 and 3', 5, '1 < 2', 6),  # no tag
    ('a<b', 2, 'a<', 1),  # never closed
    ('<a><b>', 4, '<a>', 3),
  ],
)
def test_the_cut_and_the_note(text, size, head, missing):
  expected = f'{head} [... {missing} characters cut]'
  assert truncation.cut(text, size) == expected


def letters(messages):
  """A token a character, and two around each message."""
  return sum(len(m.content) + 2 for m in messages)


def fitted(*texts, room):
  given = tuple(Message('tool', text) for text in texts)
  return truncation.fit(given, letters, room)


def test_as_much_as_fits_is_kept():
  # 2 around it, 34 of the text, 24 of the note
  (message,) = fitted('x' * 100, room=60)
  note = ' [... 66 characters cut]'
  assert message == Message('tool', 'x' * 34 + note)
  assert letters([message]) == 60


def test_the_longest_is_cut_first_and_the_order_stays():
  short, long, last = fitted('a' * 9, 'b' * 90, 'c' * 8, room=70)
  assert (short.content, last.content) == ('a' * 9, 'c' * 8)
  assert long.content.startswith('bb') and 'characters cut' in long.content
  assert letters([short, long, last]) == 70


def test_the_next_follows_where_one_is_not_enough():
  one, two = fitted('a' * 90, 'b' * 60, room=60)
  assert one.content == ' [... 90 characters cut]'
  assert two.content.startswith('b') and letters([one, two]) == 60


@pytest.mark.parametrize(
  'texts, room', [(('x' * 100,), 20), (('x' * 10,), 5), ((), 5)]
)
def test_what_cannot_fit(texts, room):
  assert fitted(*texts, room=room) is None


def test_a_long_text_is_searched_in_few_steps():
  asked = []

  def count(messages):
    asked.append(len(messages[0].content))
    return len(messages[0].content)

  truncation.fit((Message('user', 'x' * 10**6),), count, 64)
  assert len(asked) < 15 and max(asked) < 2000


def test_messages_that_lost_something_are_counted():
  before = [Message('tool', 'a'), Message('tool', 'b')]
  assert truncation.num_cut(before, before) == 0
  assert truncation.num_cut(before, [before[0], Message('tool', '')]) == 1
