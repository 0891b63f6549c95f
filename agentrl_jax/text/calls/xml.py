"""Qwen3-Coder: tags around the call, the function and each parameter.

    <tool_call>
    <function=search>
    <parameter=city>
    Xian
    </parameter>
    </function>
    </tool_call>

A value is bare text, or JSON where that is what the text is; True, False and
None go by their Python names, as the published template prints them. A string
that would be read as something else is written as a JSON string, so that every
call round-trips; with a schema, bare text goes to a string parameter as it is.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.text import chat
from agentrl_jax.text.calls import common, hermes

_FUNCTION = re.compile(r'\s*<function=([^<>\n]*)>')
_PARAMETER = re.compile(r'\s*<parameter=([^<>\n]*)>')
_CLOSE = '</function>'
_CLOSE_PARAMETER = '</parameter>'
_MARKS = ('<parameter=', _CLOSE_PARAMETER, '<function=', _CLOSE)
_PYTHON = {'True': True, 'False': False, 'None': None}


def find(text: str, style: chat.Style) -> int:
  """Returns where the calls begin, -1 if there are none.

  Raises:
    common.MalformedCall: a call ends that never began.
  """
  start = hermes.find(text, style)
  bare = text.find('<function=')
  if bare >= 0 and (start < 0 or bare < start):
    raise common.MalformedCall('the tool_call tag is missing')
  return start


def read(
  text: str,
  start: int,
  style: chat.Style,
  schemas: Sequence[Mapping[str, Any]],
) -> list[types.ToolCall]:
  """Reads all calls from `start` on.

  Args:
    text: completion.
    start: as `find` says.
    style: whose `call` literals are the outer tags.
    schemas: of the tools, in the OpenAI function style: say which values are
      strings; may be empty.

  Raises:
    common.MalformedCall: says what is wrong with the first bad one.
  """
  return common.read_tagged(
    text,
    start,
    hermes.tags(style),
    lambda start: _read_function(text, start, schemas),
    unclosed='the closing tool_call tag is missing',
  )


def render(
  calls: Sequence[types.ToolCall], style: chat.Style, prose: str = ''
) -> str:
  """Writes calls after the prose, tags included.

  Raises:
    ValueError: arguments are not JSON, or a name does not fit into a tag.
  """
  body = style.call_separator.join(_render(call, style) for call in calls)
  return common.joined(prose, body, style.call_separator, style)


def usage(style: chat.Style) -> str:
  """Says how a call looks."""
  del style
  return (
    'Write <function=TOOL><parameter=NAME>VALUE</parameter></function> '
    'between tool_call tags.'
  )


def faulty(style: chat.Style) -> tuple[str, ...]:
  """Returns texts with the usual faults."""
  opening, closing = hermes.tags(style)
  parameter = '<parameter=f>f</parameter>'
  return (
    opening,
    f'{opening}f{closing}',
    f'<function=f>{_CLOSE}',
    closing,
    f'{opening}<function=>{_CLOSE}{closing}',
    f'{opening}<function=f>f{_CLOSE}{closing}',
    f'{opening}<function=f><parameter=f>f{_CLOSE}{closing}',
    f'{opening}<function=f>{parameter}{parameter}{_CLOSE}{closing}',
    f'{opening}<function=f>{_CLOSE}',
    f'{opening}<function=f>{_CLOSE}{closing} f',
  )


def _read_function(
  text: str, start: int, schemas: Sequence[Mapping[str, Any]]
) -> tuple[types.ToolCall, int]:
  head = _FUNCTION.match(text, start)
  if head is None:
    if not text[start:].strip():
      raise common.MalformedCall('the call is cut off')
    raise common.MalformedCall('a function tag must come first')
  name = head[1].strip()
  if not name:
    raise common.MalformedCall('the tool name is missing')
  properties = _properties(name, schemas)
  arguments: dict[str, Any] = {}
  start = head.end()
  while entry := _PARAMETER.match(text, start):
    key, start = entry[1].strip(), entry.end()
    end = text.find(_CLOSE_PARAMETER, start)
    # A value may hold any text but the tag that ends it.
    if end < 0:
      raise common.MalformedCall(f'parameter {common.quoted(key)} never ends')
    if key in arguments:
      raise common.MalformedCall(f'parameter {common.quoted(key)} given twice')
    arguments[key] = _value(text[start:end], properties.get(key))
    start = end + len(_CLOSE_PARAMETER)
  start = common.skip_space(text, start)
  if not text.startswith(_CLOSE, start):
    if start == len(text):
      raise common.MalformedCall('the call is cut off')
    raise common.MalformedCall(
      'only parameter tags may stand in a function, and its end tag'
    )
  return types.ToolCall(name, arguments), start + len(_CLOSE)


def _properties(
  name: str, schemas: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
  for schema in schemas:
    function = schema.get('function', schema)
    if function['name'] == name:
      given = function.get('parameters')
      given = given.get('properties') if isinstance(given, Mapping) else None
      return given if isinstance(given, Mapping) else {}
  return {}


def _value(text: str, schema: Mapping[str, Any] | None) -> Any:
  text = text.removeprefix('\n').removesuffix('\n')
  try:
    value = _PYTHON[text] if text in _PYTHON else common.loads(text)
  except (ValueError, RecursionError):
    return text
  kinds = _kinds(schema)
  return text if 'string' in kinds and _kind(value) not in kinds else value


def _kinds(schema: Any) -> set[str]:
  """Types that a parameter may have; none where its schema does not say."""
  if not isinstance(schema, Mapping):
    return set()
  told = schema.get('type') or ()
  kinds = {told} if isinstance(told, str) else set(told)
  for part in (*(schema.get('anyOf') or ()), *(schema.get('oneOf') or ())):
    kinds |= _kinds(part)
  return kinds | {'integer'} if 'number' in kinds else kinds


def _kind(value: Any) -> str:
  """The JSON schema type of a JSON value."""
  if isinstance(value, int) and not isinstance(value, bool):
    return 'integer'
  return 'array' if isinstance(value, list) else common.json_type(value)


def _render(call: types.ToolCall, style: chat.Style) -> str:
  opening, closing = hermes.tags(style)
  lines = [opening, f'<function={_fitting(call.name)}>']
  for key, value in common.checked(call).items():
    lines += [f'<parameter={_fitting(key)}>']
    lines += [_written(value, style), _CLOSE_PARAMETER]
  return style.call_separator.join([*lines, _CLOSE, closing])


def _written(value: Any, style: chat.Style) -> str:
  marks = (*style.specials, *_MARKS)
  if isinstance(value, str) and _may_stand_bare(value, marks):
    return value
  if value is None or isinstance(value, bool):
    return str(value)
  return common.escaped(common.dumps(value), marks)


def _may_stand_bare(text: str, marks: Sequence[str]) -> bool:
  """Whether a string would be read as itself."""
  if text in _PYTHON or text.startswith('\n') or text.endswith('\n'):
    return False
  try:
    common.loads(text)
  except (ValueError, RecursionError):
    return not any(mark in text for mark in marks)
  return False


def _fitting(name: str) -> str:
  if not name or name != name.strip() or any(c in '<>\n' for c in name):
    raise ValueError(f'{name!r} does not fit into a tag: no <, > or new line')
  return name
