"""Locks: Qwen3-Coder's notation, its values with and without a schema."""

import hypothesis
import pytest
from hypothesis import strategies as st

from agentrl_jax import types
from agentrl_jax.text import tools

STYLE = 'chatml+xml'
CODER = """I look.
<tool_call>
<function=search>
<parameter=city>
Xian
</parameter>
<parameter=stops>
[1, 2]
</parameter>
<parameter=note>
two
lines
</parameter>
</function>
</tool_call>"""


def test_a_call_as_the_model_writes_it():
  result = tools.parse(CODER, STYLE)
  call = types.ToolCall(
    'search', {'city': 'Xian', 'stops': [1, 2], 'note': 'two\nlines'}
  )
  assert result == types.ParseResult('I look.', (call,))
  assert tools.written('I look.', [call], STYLE) == CODER


@pytest.mark.parametrize(
  'parameters',
  [
    None,
    True,
    {'properties': None},
    {'properties': {'city': {'type': None, 'anyOf': None, 'oneOf': None}}},
  ],
)
def test_schemas_that_say_nothing_do_no_harm(parameters):
  schemas = [{'function': {'name': 'search', 'parameters': parameters}}]
  (call,) = tools.parse(CODER, STYLE, schemas).calls
  assert call.arguments['city'] == 'Xian' and call.arguments['stops'] == [1, 2]


def one(value, kind=None):
  text = (
    '<tool_call><function=f><parameter=x>'
    f'{value}</parameter></function></tool_call>'
  )
  schemas = []
  if kind:
    known = {'properties': {'x': {'type': kind}}}
    schemas = [{'function': {'name': 'f', 'parameters': known}}]
  return tools.parse(text, STYLE, schemas).calls[0].arguments['x']


@pytest.mark.parametrize(
  'text, kind, value',
  [
    ('5', None, 5),
    ('"5"', None, '5'),
    ('5', 'string', '5'),  # what a string parameter holds is text
    ('"5"', 'string', '5'),
    ('5', 'integer', 5),
    ('true', 'boolean', True),
    ('True', 'boolean', True),  # as the published template prints it
    ('True', None, True),
    ('True', 'string', 'True'),
    ('true', 'string', 'true'),
    ('None', ['string', 'null'], None),
    ('5', ['string', 'null'], '5'),  # what no other type takes is text
    ('5', ['string', 'integer'], 5),
    ('5', ['string', 'number'], 5),
    ('5.5', ['string', 'integer'], '5.5'),
    ('[]', ['string', 'array'], []),
    ('None', 'null', None),
    ('\n\nx\n\n', 'string', '\nx\n'),
    ('{"a": 1', 'object', '{"a": 1'),  # left for validation to refuse
    ('NaN', 'number', 'NaN'),
    ('[' * 100_000, 'array', '[' * 100_000),
  ],
)
def test_values(text, kind, value):
  assert one(text, kind) == value


def test_alternatives_are_types_too():
  either = {'anyOf': [{'type': 'string'}, {'oneOf': [{'type': 'boolean'}]}]}
  parameters = {'properties': {'x': either, 'y': True, 'z': either}}
  tool = {'function': {'name': 'f', 'parameters': parameters}}
  text = '<tool_call><function=f>{}</function></tool_call>'.format(
    '<parameter=x>5</parameter><parameter=y>5</parameter>'
    '<parameter=z>true</parameter>'
  )
  read = tools.parse(text, STYLE, [{'name': 'g'}, tool])
  assert read.calls[0].arguments == {'x': '5', 'y': 5, 'z': True}
  read = tools.parse(text, STYLE, [{'function': {'name': 'f'}}])
  assert read.calls[0].arguments == {'x': 5, 'y': 5, 'z': True}


def test_truth_and_nothing_go_by_their_python_names():
  call = types.ToolCall('f', {'a': True, 'b': None, 'c': 'None', 'd': [None]})
  written = tools.render_call(call, STYLE)
  assert [line for line in written.splitlines() if line[0] != '<'] == [
    *('True', 'None', '"None"', '[null]')
  ]
  assert tools.parse(written, STYLE).calls == (call,)


def test_strings_that_would_be_read_otherwise_are_quoted():
  for text in (
    '5',
    '"a"',
    'null',
    '\nx',
    '</parameter>',
    '</tool_call>',
    '',
    'True',
  ):
    call = types.ToolCall('f', {'x': text})
    written = tools.render_call(call, STYLE)
    assert written.count('</parameter>') == written.count('</tool_call>') == 1
    assert tools.parse(written, STYLE).calls == (call,)


FAULTS = {
  '<tool_call>': 'cut off',
  '<tool_call><function=f>': 'cut off',
  '<tool_call>{"name":"f"}</tool_call>': 'a function tag must come first',
  '<function=f></function>': 'the tool_call tag is missing',
  '<tool_call><function=></function></tool_call>': 'name is missing',
  '<tool_call><function=f></function>': 'closing tool_call tag is missing',
  '<tool_call><function=f><parameter=x>1</function></tool_call>': (
    'parameter "x" never ends'
  ),
  '<tool_call><function=f>1</function></tool_call>': 'only parameter tags',
  '<tool_call><function=f></function></tool_call> so': 'text after a call',
  '</tool_call>': 'without an opening one',
}


@pytest.mark.parametrize('text', FAULTS)
def test_each_fault_says_what_was_wrong(text):
  result = tools.parse(text, STYLE)
  assert FAULTS[text] in result.error
  assert '<function=TOOL>' in result.error
  assert result.calls == ()


def test_a_parameter_given_twice():
  part = '<parameter=x>1</parameter>'
  text = f'<tool_call><function=f>{part}{part}</function></tool_call>'
  assert '"x" given twice' in tools.parse(text, STYLE).error


def test_names_that_no_tag_holds_are_refused():
  for call in (
    types.ToolCall('a>b'),
    types.ToolCall(' f'),
    types.ToolCall('f', {'x\ny': 1}),
  ):
    with pytest.raises(ValueError, match='does not fit into a tag'):
      tools.render_call(call, STYLE)


values = st.recursive(
  st.none()
  | st.booleans()
  | st.integers(-(2**53), 2**53)
  | st.floats(allow_nan=False, allow_infinity=False)
  | st.text()
  | st.sampled_from(
    ['True', 'null', '5', '"a"', '</parameter>', '</function>']
  ),
  lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
  ),
  max_leaves=5,
)
KINDS = {
  type(None): 'null', bool: 'boolean', int: 'integer', float: 'number',
  str: 'string', list: 'array', dict: 'object',
}  # fmt: skip
made = st.dictionaries(st.sampled_from(['a', 'b', 'c']), values)


@hypothesis.given(made, st.sampled_from([STYLE, 'tiny+xml', 'qwen3_coder']))
@hypothesis.settings(deadline=None, max_examples=150)
def test_a_schema_that_fits_changes_no_value(arguments, style):
  """What a value is says its schema as well as its spelling, and they agree."""
  call = types.ToolCall('f', arguments)
  properties = {
    name: {'type': KINDS[type(value)]} for name, value in arguments.items()
  }
  tool = {'name': 'f', 'parameters': {'properties': properties}}
  text = tools.render_call(call, style)
  for schemas in ([], [tool], [{'type': 'function', 'function': tool}]):
    read = tools.parse(text, style, schemas)
    assert (read.error, read.calls) == ('', (call,))
    assert repr(read.calls[0].arguments) == repr(arguments)  # 1 is not True


@hypothesis.given(made, st.data())
@hypothesis.settings(deadline=None, max_examples=150)
def test_a_call_that_is_cut_is_none(arguments, data):
  text = tools.render_call(types.ToolCall('f', arguments), 'qwen3_coder')
  end = data.draw(st.integers(0, len(text) - 1))
  read = tools.parse(text[:end], 'qwen3_coder')
  assert read.calls == ()
  assert bool(read.error) == text[:end].startswith('<tool_call>')


@hypothesis.given(st.text())
@hypothesis.settings(deadline=None, max_examples=150)
def test_a_text_parameter_is_any_text_as_it_stands(value):
  """But for quotes around all of it, which are JSON, and the closing tag."""
  hypothesis.assume('</parameter>' not in value and not value.startswith('"'))
  assert one(f'\n{value}\n', 'string') == value
