"""What do all notations of calls share? JSON, and words for what is wrong."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.text import chat

_SHOWN = 40  # characters of the agent's own text quoted back


class MalformedCall(Exception):
  """Carries what is wrong with a call out of a parser."""


def _refuse_constant(name: str) -> None:
  raise ValueError(f'{name} is not a JSON value')


def _finite(text: str) -> float:
  value = float(text)
  if not math.isfinite(value):
    raise ValueError(f'{text[:_SHOWN]} is too large')
  return value


_STRICT = dict(parse_constant=_refuse_constant, parse_float=_finite)
_DECODER = json.JSONDecoder(**_STRICT)


def finder(pattern: str) -> Callable[[str, chat.Style], int]:
  """Returns the `find` of a notation whose calls begin where a pattern does.

  Args:
    pattern: regular expression, `^` and `$` at every line.
  """
  start = re.compile(pattern, re.MULTILINE)

  def find(text: str, style: chat.Style) -> int:
    """Returns where the calls begin, -1 if there are none."""
    del style
    found = start.search(text)
    return found.start() if found else -1

  return find


def read_tagged(
  text: str,
  start: int,
  tags: tuple[str, str],
  read_one: Callable[[int], tuple[Any, int]],
  *,
  unclosed: str,
) -> list[Any]:
  """Reads what stands between tags, one pair after the other, to the end.

  Args:
    text: completion.
    start: of the first opening tag.
    tags: opening and closing.
    read_one: from behind an opening tag to (what was read, where it ends).
    unclosed: what is wrong where the closing tag is missing.

  Raises:
    MalformedCall: says what is wrong with the first bad one.
  """
  opening, closing = tags
  out = []
  while start < len(text):
    if not text.startswith(opening, start):
      raise MalformedCall('text after a call')
    one, start = read_one(start + len(opening))
    start = skip_space(text, start)
    if not text.startswith(closing, start):
      raise MalformedCall(unclosed)
    out.append(one)
    start = skip_space(text, start + len(closing))
  return out


def refuse_surrogates(calls: Sequence[types.ToolCall]) -> None:
  """Raises MalformedCall if a call holds half of a surrogate pair."""
  try:
    for call in calls:
      dumps([call.name, dict(call.arguments)]).encode('utf-8')
  except UnicodeEncodeError as e:
    raise MalformedCall('an escape is half of a surrogate pair') from e


def loads(text: str) -> Any:
  """Returns the JSON value that all of a text is.

  Raises:
    ValueError: it is none, NaN and infinities included.
    RecursionError: nested too deeply.
  """
  return json.loads(text, **_STRICT)


def dumps(value: Any, separators: tuple[str, str] = (', ', ': ')) -> str:
  """Returns a value as JSON, every character as it is.

  Raises:
    TypeError, ValueError: it is not JSON.
  """
  return json.dumps(
    value, ensure_ascii=False, separators=separators, allow_nan=False
  )


def read_json(text: str, start: int) -> tuple[Any, int]:
  """Reads one JSON value inside a text; returns it and where it ends.

  Raises:
    MalformedCall: says what is wrong, and where.
  """
  start = skip_space(text, start)
  try:
    return _DECODER.raw_decode(text, start)
  except json.JSONDecodeError as e:
    if e.pos >= len(text):
      raise MalformedCall('the call is cut off') from e
    where = f'{e.msg[:1].lower()}{e.msg[1:]} at character {e.pos - start}'
    raise MalformedCall(f'not JSON: {where}') from e
  except RecursionError as e:
    raise MalformedCall('not JSON: nested too deeply') from e
  except ValueError as e:
    raise MalformedCall(f'not JSON: {str(e)[:60]}') from e


def as_call(value: Any, keys: Sequence[str]) -> types.ToolCall:
  """Returns the call that a JSON object names.

  Args:
    value: any JSON.
    keys: names that the arguments may go by.

  Raises:
    MalformedCall: it names none.
  """
  if not isinstance(value, dict):
    raise MalformedCall(f'a {json_type(value)}, not an object')
  name = value.get('name')
  if not isinstance(name, str) or not name:
    raise MalformedCall('the tool name is missing')
  arguments = {}
  given = False
  for key, part in value.items():
    if key == 'name':
      continue
    if key not in keys:
      raise MalformedCall(f'unknown key {quoted(key)}')
    if given:
      raise MalformedCall('args are given twice')
    arguments, given = part, True
  return types.ToolCall(name, as_arguments(arguments))


def as_arguments(value: Any) -> dict[str, Any]:
  """Returns arguments if they are an object.

  Raises:
    MalformedCall: they are not.
  """
  if not isinstance(value, dict):
    raise MalformedCall(f'args are a {json_type(value)}, not an object')
  return value


def checked(call: types.ToolCall) -> Mapping[str, Any]:
  """Returns the arguments of a call that is to be written.

  Raises:
    ValueError: they are not JSON.
  """
  arguments = dict(call.arguments)
  try:
    dumps(arguments)
  except TypeError as e:
    raise ValueError(f'arguments of {call.name!r} are not JSON: {e}') from e
  return arguments


def escaped(body: str, specials: Sequence[str], code: str = '\\u003c') -> str:
  """Writes `<` by its code where a string could be read as a special token."""
  if any(name in body for name in specials):
    return body.replace('<', code)
  return body


def joined(prose: str, body: str, separator: str, style: chat.Style) -> str:
  """Puts calls behind prose; the end of a reasoning parts them by itself."""
  if style.prose_separator is not None:
    prose, separator = prose.strip(), style.prose_separator
  if not prose or (style.think and prose.endswith(style.think[1])):
    return prose + body
  return prose + separator + body


def quoted(text: str) -> str:
  """Quotes what the agent wrote, shortened, on one line."""
  return json.dumps(text)[:_SHOWN]


def json_type(value: Any) -> str:
  """Returns what JSON calls the type of a value."""
  if value is None:
    return 'null'
  names = {bool: 'boolean', str: 'string', list: 'list', dict: 'object'}
  return names.get(type(value), 'number')


def skip_space(text: str, start: int) -> int:
  """Returns where the next character that is no white space stands."""
  end = len(text)
  while start < end and text[start] in ' \t\r\n':
    start += 1
  return start
