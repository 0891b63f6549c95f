"""Llama 3: the message is `{"name": "f", "parameters": {...}}` and no more.

Several calls are parted by a semicolon. Prose may stand on lines before them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.text import chat
from agentrl_jax.text.calls import common

_KEYS = ('parameters', 'arguments', 'args')
_TAG = '<|python_tag|>'
# A message that begins with a brace is meant as a call, whatever is in it.
find = common.finder(
  r'\A\s*(?:<\|python_tag\|>)?\s*\{|^[ \t]*<\|python_tag\|>'
  r'|^[ \t]*\{\s*"name"'
)


def read(
  text: str,
  start: int,
  style: chat.Style,
  schemas: Sequence[Mapping[str, Any]],
) -> list[types.ToolCall]:
  """Reads all calls from `start` on.

  Raises:
    common.MalformedCall: says what is wrong with the first bad one.
  """
  del style, schemas
  start = common.skip_space(text, start)
  if text.startswith(_TAG, start):
    start += len(_TAG)
  calls = []
  while True:
    value, start = common.read_json(text, start)
    calls.append(common.as_call(value, _KEYS))
    start = common.skip_space(text, start)
    if text.startswith(';', start):
      start = common.skip_space(text, start + 1)
      if start == len(text):
        return calls
    elif start == len(text):
      return calls
    elif not text.startswith('{', start):
      raise common.MalformedCall('text after a call')


def render(
  calls: Sequence[types.ToolCall], style: chat.Style, prose: str = ''
) -> str:
  """Writes calls on a line of their own after the prose.

  Raises:
    ValueError: arguments are not JSON.
  """
  body = '; '.join(
    common.dumps({'name': call.name, 'parameters': common.checked(call)})
    for call in calls
  )
  body = common.escaped(body, style.specials)
  return common.joined(prose, body, '\n', style)


def usage(style: chat.Style) -> str:
  """Says how a call looks."""
  del style
  return 'Write {"name":"TOOL","parameters":{...}} and nothing after it.'


def faulty(style: chat.Style) -> tuple[str, ...]:
  """Returns texts with the usual faults."""
  del style
  return (
    '{"name":',
    '{"name":"f"} f',
    '{"name":f}',
    '{f}',
    '{}',
    '{"name":"f","parameters":"f"}',
    '{"name":"f","f":"f"}',
  )
