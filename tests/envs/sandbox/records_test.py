"""What an agent is shown is bounded, printable and says what went wrong."""

import pytest

from agentrl_jax.envs.sandbox import records


def result(output='', status=0, reason='', dropped=(), **limits):
  made = records.Limits(**limits)
  return records.Result(status, reason, output, {}, dropped, made)


@pytest.mark.parametrize(
  'text, shown',
  [
    ('a\r\nb\n', 'a\nb'),
    ('\x1b[31mred\x1b[0m', 'red'),
    ('\x1b]0;title\x07x', 'x'),
    ('\x1b]8;;http://a\x1b\\x', 'x'),
    ('a\x00b\x08c\x7f', 'a\\x00b\\x08c\\x7f'),
    ('\u202etxt', '\\u202etxt'),  # turns the direction of what follows
    ('\x1b', '\\x1b'),
    ('tab\tis kept', 'tab\tis kept'),
  ],
)
def test_terminals_get_nothing_to_obey(text, shown):
  assert records.printable(text) == shown


def test_the_middle_is_cut_with_a_note():
  # 30 characters: 20 of the head, 10 of the tail, 70 between them.
  text = 'a' * 50 + 'b' * 50
  expected = 'a' * 20 + '\n[70 characters cut]\n' + 'b' * 10
  assert records.shorten(text, 30) == expected
  assert records.shorten('short', 30) == 'short'


def test_what_went_wrong_is_told():
  assert result('x\n').text() == 'x'
  assert result('x', 2).text() == 'x\n[exit 2]'
  assert result('', -9).text() == '[signal 9]'
  assert 'more than 256 MB' in result('', -9, 'memory').text()
  assert (
    'more than 3 processes' in result('', 1, 'processes', processes=3).text()
  )
  assert result('', 0, '', ['a (a link)']).text() == '[not kept: a (a link)]'
  for reason in records.REASONS:
    assert result('', None, reason).text().startswith('[ended: ')


def test_only_a_good_end_is_ok():
  assert result().ok
  assert not result(status=1).ok
  assert not result(status=None, reason='wall').ok
  assert not result(reason='files').ok


@pytest.mark.parametrize(
  'limits', [{'wall_s': 0}, {'processes': -1}, {'file_kb': True}]
)
def test_limits_are_above_zero(limits):
  with pytest.raises(ValueError, match=next(iter(limits))):
    records.Limits(**limits)
