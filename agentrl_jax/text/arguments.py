"""Do the arguments of a call fit the tool, and what is wrong if they do not?

JSON Schema (2020-12) by the `jsonschema` library, in words for the agent. The
library is imported with the first schema: nothing else of `text` needs it.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any

from agentrl_jax import types

_SHOWN = 60  # characters of the agent's own text quoted back
_MOST = 1024  # schemas kept compiled

# What is told first where several things are wrong.
_ORDER = ('required', 'additionalProperties', 'type', 'enum')

# id -> (schema, validator): the schema is kept so that its id stays its own.
_compiled: dict[int, tuple[Any, Any]] = {}


def validate_call(
  call: types.ToolCall, schemas: Mapping[str, Mapping[str, Any]]
) -> str:
  """Says what is wrong with a call, '' if nothing is.

  Args:
    call: what the agent asks for.
    schemas: tool name -> schema of its parameters. Parameters that it does not
      name are refused unless it says `additionalProperties`. An integer is
      written as one (1.0 is none), and text is text: no lone surrogates.

  Returns:
    One short sentence for the agent, or ''.

  Raises:
    ValueError: a schema is none; names the tool.
  """
  schema = schemas.get(call.name)
  if schema is None:
    known = ', '.join(schemas) or 'none'
    return f'unknown tool {_clip(call.name)}; tools: {known}'
  given = call.arguments
  if not isinstance(given, Mapping):
    return 'arguments must be an object'
  known = _compiled.get(id(schema))
  validator = known[1] if known else _compiled_now(call.name, schema)
  try:
    if validator.is_valid(given):
      return '' if _is_text(given) else _not_text(given)
    return _told(min(validator.iter_errors(given), key=_rank))
  except RecursionError:
    return 'arguments are nested too deeply'


def _compiled_now(name: str, schema: Mapping[str, Any]) -> Any:
  if len(_compiled) >= _MOST:
    _compiled.clear()
  # Environments that make their schemas anew share validators by the text.
  validator = _validator(name, json.dumps(schema))
  _compiled[id(schema)] = schema, validator
  return validator


@functools.lru_cache(_MOST)
def _validator(name: str, text: str) -> Any:
  import jsonschema

  base = jsonschema.Draft202012Validator
  checker = base.TYPE_CHECKER.redefine_many(
    {
      'integer': lambda _, x: isinstance(x, int) and not isinstance(x, bool),
      'array': lambda _, x: isinstance(x, list | tuple),
      'object': lambda _, x: isinstance(x, Mapping),
    }
  )
  schema = json.loads(text)
  whole = {'type': 'object', 'additionalProperties': False, **schema}
  try:
    base.check_schema(whole)
  except jsonschema.SchemaError as e:
    raise ValueError(
      f'the parameters of tool {name!r} are no JSON schema: {e.message}'
    ) from e
  return jsonschema.validators.extend(base, type_checker=checker)(whole)


def _rank(fault: Any) -> tuple[int, int]:
  known = fault.validator in _ORDER
  return (
    len(fault.absolute_path),
    _ORDER.index(fault.validator) if known else len(_ORDER),
  )


def _told(fault: Any) -> str:
  where = _path(fault.absolute_path)
  inside = f' of {where}' if where else ''
  if fault.validator == 'required':
    missing = [n for n in fault.validator_value if n not in fault.instance]
    return f'missing argument {missing[0]}{inside}'
  if fault.validator == 'additionalProperties':
    allowed = fault.schema.get('properties', {})
    extra = [name for name in fault.instance if name not in allowed]
    # With patterns, only the library knows which of them it is.
    if 'patternProperties' in fault.schema:
      return _clip(fault.message, 2 * _SHOWN)
    known = ', '.join(allowed) or 'none'
    return f'unknown argument {_clip(extra[0])}{inside}; allowed: {known}'
  if fault.validator == 'type':
    kinds = fault.validator_value
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return f'{where} must be of type {" or ".join(kinds)}'
  if fault.validator == 'enum':
    allowed = ', '.join(map(_plain, fault.validator_value))
    return f'{where} must be one of {allowed}'
  if fault.validator in ('anyOf', 'oneOf') and fault.context:
    # An alternative that fits but for something inside it was meant.
    deep = [part for part in fault.context if part.relative_path]
    if deep:
      return _told(min(deep, key=_rank))
    kinds = [part.get('type') for part in fault.validator_value]
    if all(isinstance(kind, str) for kind in kinds):
      return f'{where} must be of type {" or ".join(kinds)}'
  message = _clip(' '.join(fault.message.split()), 2 * _SHOWN)
  return f'{where or "arguments"}: {message}'


def _path(parts: Any) -> str:
  """Writes where a value stands: `stops[1].city`."""
  text = ''
  for part in parts:
    text += f'[{part}]' if isinstance(part, int) else f'.{_clip(part)}'
  return text.removeprefix('.')


def _is_text(value: Any) -> bool:
  """False where a lone surrogate stands, which no database or file takes."""
  if isinstance(value, str):
    return value.isascii() or not any(
      '\ud800' <= letter <= '\udfff' for letter in value
    )
  if isinstance(value, Mapping):
    return all(_is_text(k) and _is_text(v) for k, v in value.items())
  if isinstance(value, list | tuple):
    return all(map(_is_text, value))
  return True


def _not_text(given: Mapping[str, Any]) -> str:
  bad = [k for k, v in given.items() if not (_is_text(k) and _is_text(v))]
  return f'{_clip(bad[0])} must be plain text'


def _plain(value: Any) -> str:
  return value if isinstance(value, str) else json.dumps(value)


def _clip(text: Any, limit: int = _SHOWN) -> str:
  text = str(text)
  return text if len(text) <= limit else text[: limit - 3] + '...'
