"""Locks: ReAct's lines, and that a model does not observe for itself."""

import pytest

from agentrl_jax import types
from agentrl_jax.text import tools

STYLE = 'tiny+react'
F, G = types.ToolCall('f', {'a': 'b\nc'}), types.ToolCall('g')


def test_thought_and_actions():
  text = (
    'Thought: I look first.\n'
    'Action: f\nAction Input: {"a": "b\\nc"}\n\n'
    'Action:g\nAction Input:\n{\n}\n'
  )
  assert tools.parse(text, STYLE) == types.ParseResult(
    'Thought: I look first.', (F, G)
  )


def test_calls_are_written_below_the_prose():
  assert tools.written('Thought: so.', [F, G], STYLE) == (
    'Thought: so.\nAction: f\nAction Input: {"a":"b\\nc"}\n'
    'Action: g\nAction Input: {}'
  )


def test_an_answer_is_no_action():
  for text in ('Final Answer: 5', 'The Action: none', 'Actions: f'):
    assert tools.parse(text, STYLE) == types.ParseResult(text)


CALL = 'Action: f\nAction Input: {}'
FAULTS = {
  'Action: f': 'the "Action Input:" line is missing',
  'Action:\nAction Input: {}': 'the tool name is missing',
  'Action Input: {}': 'no "Action:" line comes first',
  'Action: f\nAction Input: {"a"': 'cut off',
  'Action: f\nAction Input: {a}': 'not JSON: ',
  'Action: f\nAction Input: [1]': 'args are a list',
  f'{CALL}\nObservation: sunny': 'an observation is not yours to write',
  f'{CALL}\nFinal Answer: 5': 'text after a call',
  f'{CALL}\nAction: g': 'the "Action Input:" line is missing',
}


@pytest.mark.parametrize('text', FAULTS)
def test_each_fault_says_what_was_wrong(text):
  result = tools.parse(text, STYLE)
  assert FAULTS[text] in result.error
  assert 'Write "Action: TOOL"' in result.error
  assert result.calls == ()


def test_names_that_no_line_holds_are_refused():
  for name in ('', ' f', 'a\nb', 'a<tool_call>'):
    with pytest.raises(ValueError, match='does not fit'):
      tools.render_call(types.ToolCall(name), STYLE)
