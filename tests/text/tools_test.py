"""Locks: what counts as a call, what each fault is called, no exceptions."""

import json
from typing import Literal

import hypothesis
import pytest
from hypothesis import strategies as st

from agentrl_jax import types
from agentrl_jax.text import chat, tools

OPEN, CLOSE = '<tool_call>', '</tool_call>'


def wrapped(body):
  return f'{OPEN}{body}{CLOSE}'


def test_a_call_in_both_spellings():
  for key in ('args', 'arguments'):
    result = tools.parse(wrapped(f'{{"name":"f","{key}":{{"a":1}}}}'), 'tiny')
    assert result == types.ParseResult('', (types.ToolCall('f', {'a': 1}),))


def test_prose_parallel_calls_and_space():
  second = wrapped('{"name":"g","args":{"x":[null]}}')
  text = f' I look.\n{OPEN}\n{{"name": "f"}}\n{CLOSE}\n{second}\n'
  result = tools.parse(text, 'chatml')
  assert result.content == ' I look.'
  assert result.error == ''
  assert [call.name for call in result.calls] == ['f', 'g']
  assert result.calls[1].arguments == {'x': [None]}


def test_no_call_is_an_answer():
  for text in ('', 'Done.', '{"name":"f"}', 'a < b'):
    assert tools.parse(text, 'tiny') == types.ParseResult(text)


FAULTS = {
  f'{OPEN}{{"name":"f","args":{{': 'cut off',
  f'{OPEN}{{"name":"f"': 'cut off',
  OPEN: 'cut off',
  f'{OPEN}{{"name":"f"}}': 'closing tag is missing',
  wrapped('{"name":"f"}') + ' and more': 'text after a call',
  wrapped('{"name":"f"}') + OPEN: 'cut off',
  CLOSE: 'without an opening',
  CLOSE + wrapped('{"name":"f"}'): 'without an opening',
  wrapped('{"name":"f",}'): 'not JSON: ',
  wrapped("{'name':'f'}"): 'at character 1',
  wrapped('f(x=1)'): 'expecting value at character 0',
  wrapped('{"name":"f"} x'): 'extra text after the object',
  wrapped('{"name":"f","args":{"x":NaN}}'): 'NaN is not',
  wrapped('[1]'): 'a list, not an object',
  wrapped('null'): 'a null, not an object',
  wrapped('{"args":{}}'): 'tool name is missing',
  wrapped('{"name":7}'): 'tool name is missing',
  wrapped('{"name":"f","args":[1]}'): 'args are a list',
  wrapped('{"name":"f","args":"{}"}'): 'args are a string',
  wrapped('{"name":"f","id":1}'): 'unknown key "id"',
  wrapped('{"name":"f","args":{},"arguments":{}}'): 'twice',
  OPEN + '[' * 100_000: 'nested too deeply',
  OPEN + '{"name":"f","args":{"x":' + '9' * 5000 + '}}' + CLOSE: 'not JSON',
}


@pytest.mark.parametrize('text', FAULTS, ids=lambda text: text[:40])
def test_each_fault_says_what_was_wrong_and_how_it_should_look(text):
  result = tools.parse('Hm. ' + text, 'tiny')
  assert FAULTS[text] in result.error
  assert '{"name":"TOOL","args":{...}}' in result.error
  assert '\n' not in result.error
  assert result.calls == ()


def test_one_bad_call_executes_none():
  text = wrapped('{"name":"f"}') + wrapped('{"name":')
  assert tools.parse(text, 'tiny').calls == ()


json_values = st.recursive(
  st.none()
  | st.booleans()
  | st.integers(-(2**53), 2**53)
  | st.floats(allow_nan=False, allow_infinity=False)
  | st.text()
  | st.sampled_from([OPEN, CLOSE, '<|end|>', '<|im_end|>']),
  lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
  ),
  max_leaves=6,
)
calls = st.builds(
  types.ToolCall,
  st.text(min_size=1),
  st.dictionaries(st.text(), json_values, max_size=3),
)


@hypothesis.given(
  st.lists(calls, min_size=1, max_size=3), st.sampled_from(sorted(chat.STYLES))
)
@hypothesis.settings(deadline=None)
def test_well_formed_calls_round_trip(made, style):
  rendered = [tools.render_call(call, style) for call in made]
  text = chat.style(style).call_separator.join(rendered)
  result = tools.parse(text, style)
  assert result.error == ''
  assert list(result.calls) == made
  for one in rendered:
    inside = one.removeprefix(OPEN).removesuffix(CLOSE)
    assert not any(name in inside for name in chat.style(style).specials)


pieces = st.one_of(
  st.text(max_size=8),
  st.sampled_from(
    [OPEN, CLOSE, '{"name":"f","args":{', '}}', '"', ':', '\\', '\ud800']
  ),
)


@hypothesis.given(
  st.lists(pieces, max_size=10), st.sampled_from(sorted(chat.STYLES))
)
@hypothesis.settings(deadline=None, max_examples=300)
def test_nothing_crashes_the_parser(parts, style):
  result = tools.parse(''.join(parts), style)
  assert not (result.error and result.calls)


def test_render_is_compact_and_refuses_what_is_not_json():
  call = types.ToolCall('f', {'a': 'é'})
  assert tools.render_call(call) == wrapped('{"name":"f","args":{"a":"é"}}')
  assert tools.render_call(call, 'chatml') == wrapped(
    '\n{"name": "f", "arguments": {"a": "é"}}\n'
  )
  for value in ({1}, float('nan')):
    with pytest.raises(ValueError):
      tools.render_call(types.ToolCall('f', {'a': value}))


def search(
  origin: str,
  sort: Literal['price', 'time'] = 'price',
  stops: list[int] | None = None,
  *,
  direct: bool = False,
) -> str:
  """Finds flights.

  Only today's.

  Args:
    origin: a city, such
      as Xian.
    sort: order of the rows.
  """
  return origin


def test_schema_from_function():
  schema = tools.schema_from_function(search)
  assert schema == {
    'type': 'function',
    'function': {
      'name': 'search',
      'description': "Finds flights.\n\nOnly today's.",
      'parameters': {
        'type': 'object',
        'properties': {
          'origin': {'type': 'string', 'description': 'a city, such as Xian.'},
          'sort': {
            'type': 'string',
            'enum': ['price', 'time'],
            'description': 'order of the rows.',
          },
          'stops': {
            'anyOf': [
              {'type': 'array', 'items': {'type': 'integer'}},
              {'type': 'null'},
            ]
          },
          'direct': {'type': 'boolean'},
        },
        'required': ['origin'],
      },
    },
  }
  json.dumps(schema)


def test_schema_refuses_what_it_cannot_say():
  def bad(x: complex):
    """Does things."""

  with pytest.raises(ValueError, match="'x'"):
    tools.schema_from_function(bad)


def test_error_texts_cover_the_usual_faults():
  texts = tools.error_texts('tiny')
  assert len(set(texts)) == len(texts) >= 6
  assert all(text.startswith('malformed call: ') for text in texts)
