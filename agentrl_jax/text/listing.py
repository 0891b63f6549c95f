"""How does a prompt write the schema of a tool? As JSON, or in tags."""

import json
from collections.abc import Collection, Mapping
from typing import Any


def as_json(schema: Mapping[str, Any], indent: int | None = None) -> str:
  """Returns a schema as JSON, every character as it is.

  Args:
    schema: of a tool, in the OpenAI function style.
    indent: spaces of a level, None = one line.
  """
  return json.dumps(schema, ensure_ascii=False, indent=indent)


def as_tags(schema: Mapping[str, Any], indent: int | None = None) -> str:
  """Returns a schema in Qwen3-Coder's tags, one a line.

  What has no tag of its own stands under its key: lists and objects as JSON,
  all else as Python prints it, for so does the template it was trained with.

  Args:
    schema: of a tool, in the OpenAI function style or its `function` alone.
    indent: for JSON; nothing is indented here.
  """
  del indent
  function = schema.get('function', schema)
  parameters = function.get('parameters')
  properties = _mapping(_mapping(parameters).get('properties'))
  lines = ['<function>', f'<name>{function["name"]}</name>']
  lines += _described(function)
  lines += ['<parameters>']
  for name, fields in properties.items():
    fields = _mapping(fields)
    lines += ['<parameter>', f'<name>{name}</name>']
    lines += [f'<type>{fields["type"]}</type>'] if 'type' in fields else []
    lines += _described(fields)
    lines += _others(fields, ('name', 'type', 'description'))
    lines += ['</parameter>']
  lines += _others(_mapping(parameters), ('type', 'properties'))
  lines += ['</parameters>']
  known = ('type', 'name', 'description', 'parameters')
  lines += _others(function, known)
  return '\n'.join([*lines, '</function>'])


# Name -> (schema, indent) -> text.
LISTINGS = {'json': as_json, 'tags': as_tags}


def _mapping(value: Any) -> Mapping[str, Any]:
  """A JSON schema may be a boolean: it has no fields."""
  return value if isinstance(value, Mapping) else {}


def _described(fields: Mapping[str, Any]) -> list[str]:
  if 'description' not in fields:
    return []
  return [f'<description>{str(fields["description"]).strip()}</description>']


def _others(fields: Mapping[str, Any], known: Collection[str]) -> list[str]:
  lines = []
  for key, value in fields.items():
    if key in known:
      continue
    if isinstance(value, Mapping | list | tuple):
      value = as_json(value)
    lines.append(f'<{key}>{value}</{key}>')
  return lines
