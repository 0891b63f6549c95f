"""What does a Python function look like to a model? Its JSON schema."""

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_SCALARS = {
  str: 'string',
  int: 'integer',
  float: 'number',
  bool: 'boolean',
  type(None): 'null',
}


def from_function(function: Callable) -> dict[str, Any]:
  """Builds a tool schema from annotations and a Google-style docstring.

  Parameters without a default are required; a `Literal` is an enum, `X | None`
  an `anyOf`; `Args:` gives the descriptions.

  Args:
    function: every parameter annotated with str, int, float, bool, None,
      list, dict, Literal, a union of these, or Any.

  Returns:
    {'type': 'function', 'function': {name, description, parameters}}.

  Raises:
    ValueError: a parameter whose type has no schema; names it.
  """
  name = function.__name__
  hints = typing.get_type_hints(function)
  about, arguments = _docstring(inspect.getdoc(function) or '')
  properties, required = {}, []
  for parameter in inspect.signature(function).parameters.values():
    at = f'{name}: parameter {parameter.name!r}'
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
      raise ValueError(f'{at}: a tool takes a fixed set of parameters')
    if parameter.name not in hints:
      raise ValueError(f'{at} has no annotation')
    schema = _schema(hints[parameter.name], at)
    if parameter.name in arguments:
      schema['description'] = arguments[parameter.name]
    properties[parameter.name] = schema
    if parameter.default is parameter.empty:
      required.append(parameter.name)
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


def _schema(hint: Any, at: str) -> dict[str, Any]:
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if hint is Any:
    return {}
  if hint in _SCALARS:
    return {'type': _SCALARS[hint]}
  if origin is typing.Literal:
    kinds = {type(value) for value in args}
    schema: dict[str, Any] = {'enum': list(args)}
    if len(kinds) == 1:
      schema = {'type': _SCALARS[kinds.pop()], **schema}
    return schema
  if origin in (typing.Union, types.UnionType):
    return {'anyOf': [_schema(arg, at) for arg in args]}
  kind = origin or hint
  if isinstance(kind, type) and issubclass(kind, Mapping):
    value = _schema(args[1], at) if args else {}
    return {
      'type': 'object',
      **({'additionalProperties': value} if args else {}),
    }
  if isinstance(kind, type) and issubclass(kind, Sequence):
    return {
      'type': 'array',
      **({'items': _schema(args[0], at)} if args else {}),
    }
  raise ValueError(
    f'{at}: {hint} has no JSON schema; use str, int, float, bool, None, list, '
    'dict, Literal, a union of these, or Any'
  )


def _docstring(text: str) -> tuple[str, dict[str, str]]:
  """Returns what stands before the first section, and the `Args:` entries."""
  parts = re.split(r'^(Args|Returns|Raises|Yields):\s*$', text, flags=re.M)
  sections = dict(zip(parts[1::2], parts[2::2]))
  arguments: dict[str, str] = {}
  name = ''
  for line in sections.get('Args', '').splitlines():
    entry = re.match(r'(?: {2}| {4})(\w+)(?: \(.*?\))?: *(.*)$', line)
    if entry:
      name = entry[1]
      arguments[name] = entry[2].strip()
    elif name and line.strip():
      arguments[name] = f'{arguments[name]} {line.strip()}'.strip()
  return parts[0].strip(), arguments
