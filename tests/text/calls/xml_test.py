"""Locks: Qwen3-Coder's notation, its values with and without a schema."""

import pytest

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
    ('True', None, 'True'),
    ('None', 'null', None),
    ('\n\nx\n\n', 'string', '\nx\n'),
    ('{"a": 1', 'object', '{"a": 1'),  # left for validation to refuse
    ('NaN', 'number', 'NaN'),
    ('[' * 100_000, 'array', '[' * 100_000),
  ],
)
def test_values(text, kind, value):
  assert one(text, kind) == value


def test_strings_that_would_be_read_otherwise_are_quoted():
  for text in ('5', '"a"', 'null', '\nx', '</parameter>', '</tool_call>', ''):
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
