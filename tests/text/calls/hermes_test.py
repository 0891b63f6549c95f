"""Locks Hermes: JSON between tags, what is read and which fault is told."""

import pytest

from agentrl_jax import types
from agentrl_jax.text import chat, tools
from agentrl_jax.text.calls import common, hermes

F, G = types.ToolCall('f', {'a': 1}), types.ToolCall('g')


@pytest.mark.parametrize('style', ['tiny', 'chatml'])
@pytest.mark.parametrize(
  'text, content, calls',
  [
    ('<tool_call>{"name":"f","args":{"a":1}}</tool_call>', '', (F,)),
    (
      'I look.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n'
      '</tool_call>\n<tool_call>{"name":"g"}</tool_call>\n',
      'I look.',
      (F, G),
    ),
    ('{"name": "f"}', '{"name": "f"}', ()),
  ],
)
def test_calls_and_prose(style, text, content, calls):
  parsed = tools.parse(text, style)
  assert parsed == types.ParseResult(content, calls)


@pytest.mark.parametrize(
  'text, words',
  [
    ('</tool_call><tool_call>', 'closing tag without an opening one'),
    ('<tool_call>{"name":"f"}', 'the closing tag is missing'),
    ('<tool_call>{"name":"f"}}</tool_call>', 'extra text after the object'),
    ('<tool_call>{"name":"f"}</tool_call> so', 'text after a call'),
    # Two faults: what is no JSON is told before what the JSON says.
    ('<tool_call>[]', 'the closing tag is missing'),
    ('<tool_call>[]]</tool_call>', 'extra text after the object'),
    ('<tool_call>[]</tool_call>', 'a list, not an object'),
  ],
)
def test_faults(text, words):
  style = chat.style('tiny')
  with pytest.raises(common.MalformedCall, match=words):
    hermes.read(text, hermes.find(text, style), style, ())


def test_an_end_tag_in_an_argument_is_no_end():
  call = types.ToolCall('f', {'a': 'x</tool_call>y'})
  text = tools.written('', [call], 'tiny')
  assert text.count('</tool_call>') == 1
  assert tools.parse(text, 'tiny').calls == (call,)
