"""Locks what all notations share: strict JSON, and words for what is wrong."""

import pytest

from agentrl_jax import types
from agentrl_jax.text import chat
from agentrl_jax.text.calls import common

TINY = chat.style('tiny')


@pytest.mark.parametrize('text', ['NaN', '-Infinity', '1e999', '[1,]', ''])
def test_only_json_is_read(text):
  with pytest.raises(ValueError):
    common.loads(text)


def test_a_value_inside_a_text_ends_where_it_ends():
  assert common.read_json('x \n{"a": [1]} y', 1) == ({'a': [1]}, 13)


@pytest.mark.parametrize(
  'text, words',
  [
    ('{"a": ', 'the call is cut off'),
    ('{a}', 'not JSON: expecting property name .* at character 1'),
    ('[' * 100_000, 'nested too deeply'),
    ('[1e999]', 'not JSON: 1e999 is too large'),
    ('[NaN]', 'not JSON: NaN is not a JSON value'),
  ],
)
def test_what_is_wrong_is_said_and_where(text, words):
  with pytest.raises(common.MalformedCall, match=words):
    common.read_json(text, 0)


@pytest.mark.parametrize(
  'value, words',
  [
    ([], 'a list, not an object'),
    ({}, 'the tool name is missing'),
    ({'name': 3}, 'the tool name is missing'),
    ({'name': 'f', 'x': {}}, 'unknown key "x"'),
    ({'name': 'f', 'args': {}, 'arguments': {}}, 'args are given twice'),
    ({'name': 'f', 'args': None}, 'args are a null, not an object'),
    ({'name': 'f', 'args': True}, 'args are a boolean, not an object'),
    ({'name': 'f', 'args': 1.5}, 'args are a number, not an object'),
  ],
)
def test_an_object_that_names_no_call(value, words):
  with pytest.raises(common.MalformedCall, match=words):
    common.as_call(value, ('args', 'arguments'))


def test_half_of_a_surrogate_pair_is_refused():
  call = types.ToolCall('f', {'a': ['\ud83d']})
  with pytest.raises(common.MalformedCall, match='surrogate'):
    common.refuse_surrogates([call])
  common.refuse_surrogates([types.ToolCall('f', {'a': '\U0001f600'})])


def test_a_special_token_in_a_string_is_written_by_its_code():
  body = common.dumps({'a': '<|end|>'})
  escaped = common.escaped(body, ['<|end|>'])
  assert '<|end|>' not in escaped and common.loads(escaped) == {'a': '<|end|>'}
  assert common.escaped('{"a": "<b>"}', ['<|end|>']) == '{"a": "<b>"}'


def test_calls_begin_where_a_pattern_does_on_any_line():
  find = common.finder('^GO ')
  assert find('a\nGO b', TINY) == 2 and find('a GO b', TINY) == -1


def test_tagged_parts_are_read_to_the_end():
  def digit(start):
    return int(text[start]), start + 1

  def read(text):
    return common.read_tagged(text, 1, ('<', '>'), digit, unclosed='open')

  text = 'x<1> \n<2 > '
  assert read(text) == [1, 2]
  for text, words in (('x<1>2', 'text after a call'), ('x<1<2>', 'open')):
    with pytest.raises(common.MalformedCall, match=words):
      read(text)
