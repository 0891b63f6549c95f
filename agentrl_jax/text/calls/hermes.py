"""Hermes: `<tool_call>{"name": "f", "arguments": {...}}</tool_call>`.

Qwen2.5 and Qwen3 write it too. The tags are the style's `call` literals.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.text import chat
from agentrl_jax.text.calls import common

_KEYS = ('args', 'arguments')


def find(text: str, style: chat.Style) -> int:
  """Returns where the calls begin, -1 if there are none.

  Raises:
    common.MalformedCall: a call ends that never began.
  """
  opening, closing = tags(style)
  start = text.find(opening)
  end = text.find(closing)
  if end >= 0 and (start < 0 or end < start):
    raise common.MalformedCall('closing tag without an opening one')
  return start


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
  del schemas
  closing = tags(style)[1]

  def read_one(start):
    value, end = common.read_json(text, start)
    end = common.skip_space(text, end)
    closed = text.startswith(closing, end)
    if not closed and closing in text[end:]:
      raise common.MalformedCall('not JSON: extra text after the object')
    # What is wrong first in the text is told first.
    return (common.as_call(value, _KEYS) if closed else None), end

  unclosed = 'the closing tag is missing'
  return common.read_tagged(
    text, start, tags(style), read_one, unclosed=unclosed
  )


def render(
  calls: Sequence[types.ToolCall], style: chat.Style, prose: str = ''
) -> str:
  """Writes calls after the prose, tags included.

  Raises:
    ValueError: arguments are not JSON.
  """
  body = style.call_separator.join(_render(call, style) for call in calls)
  return common.joined(prose, body, style.call_separator, style)


def usage(style: chat.Style) -> str:
  """Says how a call looks."""
  return (
    f'Write {{"name":"TOOL","{style.arguments}":{{...}}}} between tool_call '
    'tags.'
  )


def faulty(style: chat.Style) -> tuple[str, ...]:
  """Returns texts with the usual faults."""
  opening, closing = tags(style)
  call = f'{opening}{{"name":"f"}}{closing}'
  return (
    f'{opening}{{"name":',
    f'{opening}{{"name":"f"}}',
    f'{call} f',
    closing,
    f'{opening}{{"name":"f","args":{{}}{closing}',
    f'{opening}f{closing}',
    f'{opening}{{f}}{closing}',
    f'{opening}{{"name":"f"}}}}{closing}',
    f'{opening}[]{closing}',
    f'{opening}{{}}{closing}',
    f'{opening}{{"name":"f","args":"f"}}{closing}',
    f'{opening}{{"name":"f","f":"f"}}{closing}',
  )


def tags(style: chat.Style) -> tuple[str, str]:
  """Returns the style's tags around a call, without white space."""
  return style.call[0].strip(), style.call[1].strip()


def _render(call: types.ToolCall, style: chat.Style) -> str:
  arguments = common.checked(call)
  body = common.dumps(
    {'name': call.name, style.arguments: arguments}, style.json_separators
  )
  return style.call[0] + common.escaped(body, style.specials) + style.call[1]
