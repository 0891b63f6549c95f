"""What did the model ask for, and what exactly was wrong if nobody can tell?

Whatever the model wrote, `parse` returns: a malformed call is an error text
that goes back to the model as its observation, never an exception.
"""

import json
from collections.abc import Mapping
from typing import Any

from agentrl_jax import types
from agentrl_jax.text import chat, schemas

schema_from_function = schemas.from_function

_KEYS = frozenset(('name', 'args', 'arguments'))


def _refuse_constant(name: str) -> None:
  raise ValueError(f'{name} is not a JSON value')


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


class _MalformedCall(Exception):
  """Carries the error text out of the parser."""


def parse(text: str, style: str | chat.Style = 'tiny') -> types.ParseResult:
  """Splits a completion into prose and calls.

  Args:
    text: completion without its end token.
    style: a name in `STYLES` or a style; its `call` literals mark calls.

  Returns:
    `content` (prose before the first call), `calls` in order, and `error`: ''
    or one line that says what was wrong and how a call looks. With an error
    there are no calls: nothing is executed by halves. Never raises.
  """
  style = chat.style(style)
  opening, closing = _tags(style)
  start = text.find(opening)
  if start < 0:
    if closing in text:
      return _failed(text, style, 'closing tag without an opening one')
    return types.ParseResult(text)
  content = text[:start]
  if closing in content:
    return _failed(text, style, 'closing tag without an opening one')
  calls = []
  end = len(text)
  try:
    while start < end:
      if not text.startswith(opening, start):
        raise _MalformedCall('text after a call')
      call, start = _parse_one(text, start + len(opening), closing)
      calls.append(call)
      start = _skip_space(text, start)
  except _MalformedCall as e:
    return _failed(content, style, str(e))
  return types.ParseResult(content.rstrip(), tuple(calls))


def render_call(call: types.ToolCall, style: str | chat.Style = 'tiny') -> str:
  """Returns the call as the model would write it, tags included.

  `parse` gives the same call back. A `<` inside an argument is escaped where
  it could be read as a tag.

  Raises:
    ValueError: the arguments are not JSON.
  """
  style = chat.style(style)
  try:
    body = json.dumps(
      {'name': call.name, style.arguments: dict(call.arguments)},
      ensure_ascii=False,
      separators=style.json_separators,
      allow_nan=False,
    )
  except TypeError as e:
    raise ValueError(f'arguments of {call.name!r} are not JSON: {e}') from e
  if any(name in body for name in style.specials):
    body = body.replace('<', '\\u003c')
  return f'{style.call[0]}{body}{style.call[1]}'


def error_texts(style: str | chat.Style = 'tiny') -> tuple[str, ...]:
  """Returns what `parse` says of the usual faults.

  A tokenizer that has seen these a few times spends few tokens on them.
  """
  style = chat.style(style)
  opening, closing = _tags(style)
  call = f'{opening}{{"name":"f"}}{closing}'
  faulty = (
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
  return tuple(parse(text, style).error for text in faulty)


def as_call(call: types.ToolCall | Mapping[str, Any]) -> types.ToolCall:
  """Returns a call record from a record, {name, arguments} or OpenAI's form."""
  if isinstance(call, types.ToolCall):
    return call
  call = call.get('function', call)
  arguments = call.get('arguments', call.get('args', {}))
  if isinstance(arguments, str):
    arguments = json.loads(arguments)
  return types.ToolCall(call['name'], arguments)


def _parse_one(
  text: str, start: int, closing: str
) -> tuple[types.ToolCall, int]:
  """Parses the JSON and the closing tag; returns the call and what follows."""
  start = _skip_space(text, start)
  try:
    value, end = _DECODER.raw_decode(text, start)
  except json.JSONDecodeError as e:
    if e.pos >= len(text):
      raise _MalformedCall('the call is cut off') from e
    where = f'{e.msg[:1].lower()}{e.msg[1:]} at character {e.pos - start}'
    raise _MalformedCall(f'not JSON: {where}') from e
  except RecursionError as e:
    raise _MalformedCall('not JSON: nested too deeply') from e
  except ValueError as e:
    raise _MalformedCall(f'not JSON: {str(e)[:60]}') from e
  end = _skip_space(text, end)
  if not text.startswith(closing, end):
    if closing in text[end:]:
      raise _MalformedCall('not JSON: extra text after the object')
    raise _MalformedCall('the closing tag is missing')
  return _as_call(value), end + len(closing)


def _as_call(value: Any) -> types.ToolCall:
  if not isinstance(value, dict):
    raise _MalformedCall(f'a {_json_type(value)}, not an object')
  name = value.get('name')
  if not isinstance(name, str) or not name:
    raise _MalformedCall('the tool name is missing')
  if not value.keys() <= _KEYS:
    extra = sorted(value.keys() - _KEYS)[0]
    raise _MalformedCall(f'unknown key {json.dumps(extra)[:40]}')
  if len(value) == 3:
    raise _MalformedCall('args are given twice')
  arguments = value.get('args', value.get('arguments', {}))
  if not isinstance(arguments, dict):
    raise _MalformedCall(f'args are a {_json_type(arguments)}, not an object')
  return types.ToolCall(name, arguments)


def _json_type(value: Any) -> str:
  if value is None:
    return 'null'
  names = {bool: 'boolean', str: 'string', list: 'list', dict: 'object'}
  return names.get(type(value), 'number')


def _failed(content: str, style: chat.Style, what: str) -> types.ParseResult:
  error = (
    f'malformed call: {what}. Write {{"name":"TOOL","{style.arguments}":'
    '{...}} between tool_call tags.'
  )
  return types.ParseResult(content, (), error)


def _tags(style: chat.Style) -> tuple[str, str]:
  return style.call[0].strip(), style.call[1].strip()


def _skip_space(text: str, start: int) -> int:
  end = len(text)
  while start < end and text[start] in ' \t\r\n':
    start += 1
  return start
