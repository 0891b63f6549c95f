"""Locks: Llama 3's bare JSON, where it begins and what parts the calls."""

import pytest

from agentrl_jax import types
from agentrl_jax.text import tools

F, G = types.ToolCall('f', {'a': 1}), types.ToolCall('g')


@pytest.mark.parametrize(
  'text, content, calls',
  [
    ('{"name": "f", "parameters": {"a": 1}}', '', (F,)),
    ('<|python_tag|>{"name": "f", "arguments": {"a": 1}}', '', (F,)),
    ('\n {"name": "g"} ; {"name":"f","args":{"a":1}};', '', (G, F)),
    ('{"name": "g"}\n{"name": "g"}', '', (G, G)),
    ('I look.\n{"name": "g"}', 'I look.', (G,)),
    ('Done: {"name": "g"}', 'Done: {"name": "g"}', ()),
    ('Done.\n{"a": 1}', 'Done.\n{"a": 1}', ()),
  ],
)
def test_calls_and_prose(text, content, calls):
  assert tools.parse(text, 'llama3') == types.ParseResult(content, calls)


def test_calls_as_the_template_writes_them():
  assert tools.written('', [F], 'llama3') == (
    '{"name": "f", "parameters": {"a": 1}}'
  )
  assert tools.written('So.', [F, G], 'llama3') == (
    'So.\n{"name": "f", "parameters": {"a": 1}}; '
    '{"name": "g", "parameters": {}}'
  )


FAULTS = {
  '{"name": "f"': 'cut off',
  '{"name": "f"} so': 'text after a call',
  '{"name": "f"};;': 'not JSON: expecting value at character 0',
  '{"price": 5}': 'the tool name is missing',
  "{'name': 'f'}": 'not JSON: ',
  '{"name": "f", "parameters": 5}': 'args are a number',
  '{"name": "f", "parameters": {}, "args": {}}': 'args are given twice',
  '<|python_tag|>f(a=1)': 'not JSON: ',
}


@pytest.mark.parametrize('text', FAULTS)
def test_each_fault_says_what_was_wrong(text):
  result = tools.parse(text, 'llama3')
  assert FAULTS[text] in result.error
  assert 'Write {"name":"TOOL","parameters":{...}}' in result.error
  assert result.calls == ()
