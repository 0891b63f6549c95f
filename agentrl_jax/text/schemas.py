"""What does a Python function look like to a model? Its JSON schema."""

import enum
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

_SCALARS = {
  str: 'string',
  int: 'integer',
  float: 'number',
  bool: 'boolean',
  type(None): 'null',
}


_SECTION = re.compile(
  r'^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?|'
  r'Attributes):[ \t]*$',
  re.MULTILINE,
)
_ENTRY = re.compile(r'( *)\**(\w+)(?: *\(.*?\))?: *(.*)$')


def from_function(function: Callable) -> dict[str, Any]:
  """Builds a tool schema from annotations and a Google-style docstring.

  Parameters without a default are required, a default is shown if it is JSON
  and not None; a `Literal` and an `Enum` are an enum, `X | None` an `anyOf`;
  `Args:` gives the descriptions.

  Args:
    function: every parameter annotated with str, int, float, bool, None,
      list, tuple, dict, Literal, Enum, TypedDict, a union of these, or Any.

  Returns:
    {'type': 'function', 'function': {name, description, parameters}}.

  Raises:
    ValueError: a parameter whose type has no schema, or that cannot be given
      by name; names it.
  """
  name = function.__name__
  hints = _hints(function, name)
  about, arguments = _docstring(inspect.getdoc(function) or '')
  properties, required = {}, []
  for parameter in inspect.signature(function).parameters.values():
    at = f'{name}: parameter {parameter.name!r}'
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
      raise ValueError(f'{at}: a tool takes a fixed set of parameters')
    if parameter.kind is parameter.POSITIONAL_ONLY:
      raise ValueError(f'{at}: a tool is called by names; remove the "/"')
    if parameter.name not in hints:
      raise ValueError(f'{at} has no annotation')
    schema = _schema(hints[parameter.name], at)
    if parameter.name in arguments:
      schema['description'] = arguments[parameter.name]
    if parameter.default is parameter.empty:
      required.append(parameter.name)
    else:
      schema.update(_default(parameter.default))
    properties[parameter.name] = schema
  return {
    'type': 'function',
    'function': {
      'name': name,
      'description': about,
      'parameters': {
        'type': 'object',
        'properties': properties,
        'required': required,
      },
    },
  }


def _hints(given: Any, name: str) -> dict[str, Any]:
  try:
    return typing.get_type_hints(given)
  except NameError as e:
    raise ValueError(f'{name}: an annotation names nothing: {e}') from e


def _default(value: Any) -> dict[str, Any]:
  value = value.value if isinstance(value, enum.Enum) else value
  try:
    json.dumps(value, allow_nan=False)
  except (TypeError, ValueError):
    return {}
  return {} if value is None else {'default': value}


def _schema(hint: Any, at: str) -> dict[str, Any]:
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if hint is Any:
    return {}
  if hint in _SCALARS:
    return {'type': _SCALARS[hint]}
  if origin is typing.Literal:
    return _enum(args, at)
  if origin in (typing.Union, types.UnionType):
    return {'anyOf': [_schema(arg, at) for arg in args]}
  if typing.is_typeddict(hint):
    return _record(hint, at)
  kind = origin or hint
  if isinstance(kind, type):
    if issubclass(kind, enum.Enum):
      return _enum(list(kind), at)
    if issubclass(kind, Mapping):
      return _mapping(args, at)
    if issubclass(kind, tuple) and args and args[-1] is not ...:
      return {
        'type': 'array',
        'prefixItems': [_schema(arg, at) for arg in args],
        'minItems': len(args),
        'maxItems': len(args),
      }
    if issubclass(kind, Sequence) and not issubclass(kind, bytes | bytearray):
      items = {'items': _schema(args[0], at)} if args else {}
      return {'type': 'array', **items}
  raise ValueError(
    f'{at}: {hint} has no JSON schema; use str, int, float, bool, None, list, '
    'tuple, dict, Literal, Enum, TypedDict, a union of these, or Any'
  )


def _enum(members: Iterable[Any], at: str) -> dict[str, Any]:
  values = [m.value if isinstance(m, enum.Enum) else m for m in members]
  kinds = {type(value) for value in values}
  if not kinds <= _SCALARS.keys():
    raise ValueError(f'{at}: {values} are no JSON values; use str, int or None')
  kind = {'type': _SCALARS[kinds.pop()]} if len(kinds) == 1 else {}
  return {**kind, 'enum': values}


def _mapping(args: tuple[Any, ...], at: str) -> dict[str, Any]:
  if not args:
    return {'type': 'object'}
  if args[0] is not str:
    raise ValueError(f'{at}: keys of a JSON object are str, not {args[0]}')
  return {'type': 'object', 'additionalProperties': _schema(args[1], at)}


def _record(hint: Any, at: str) -> dict[str, Any]:
  fields = _hints(hint, at)
  return {
    'type': 'object',
    'properties': {
      name: _schema(field, f'{at}: field {name!r}')
      for name, field in fields.items()
    },
    'required': [name for name in fields if name in hint.__required_keys__],
    'additionalProperties': False,
  }


def _docstring(text: str) -> tuple[str, dict[str, str]]:
  """Returns what stands before the first section, and the `Args:` entries."""
  parts = _SECTION.split(text)
  sections = dict(zip(parts[1::2], parts[2::2]))
  names = ('Args', 'Arguments', 'Parameters')
  listed = next((sections[name] for name in names if name in sections), '')
  arguments: dict[str, str] = {}
  name, margin = '', None
  for line in listed.splitlines():
    entry = _ENTRY.match(line)
    # What stands further in than the first entry goes on with the one above.
    if entry and (margin is None or len(entry[1]) <= margin):
      margin = len(entry[1]) if margin is None else margin
      name = entry[2]
      arguments[name] = entry[3].strip()
    elif name and line.strip():
      arguments[name] = f'{arguments[name]} {line.strip()}'.strip()
  return parts[0].strip(), arguments
