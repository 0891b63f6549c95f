"""Locks: the schema of a function, type by type, and what has none."""

import enum
import json
from typing import Any, Literal, NotRequired, Optional, TypedDict

import pytest

from agentrl_jax.text import schemas


class Side(enum.Enum):
  LEFT = 'left'
  RIGHT = 'right'


class Leg(TypedDict):
  origin: str
  day: NotRequired[int]


def parameters(function):
  return schemas.from_function(function)['function']['parameters']


def search(
  origin: str,
  sort: Literal['price', 'time'] = 'price',
  stops: list[int] | None = None,
  *,
  direct: bool = False,
) -> str:
  """Finds flights.

  Only today's.

  Args:
    origin: a city, such
      as: Xian.
    sort (str, optional): order of the rows.
    direct:
      without stops.

  Returns:
    direct: rows.
  """
  return origin


def test_a_function_with_a_docstring():
  schema = schemas.from_function(search)
  assert schema == {
    'type': 'function',
    'function': {
      'name': 'search',
      'description': "Finds flights.\n\nOnly today's.",
      'parameters': {
        'type': 'object',
        'properties': {
          'origin': {'type': 'string', 'description': 'a city, such as: Xian.'},
          'sort': {
            'type': 'string',
            'enum': ['price', 'time'],
            'description': 'order of the rows.',
            'default': 'price',
          },
          'stops': {
            'anyOf': [
              {'type': 'array', 'items': {'type': 'integer'}},
              {'type': 'null'},
            ]
          },
          'direct': {
            'type': 'boolean',
            'description': 'without stops.',
            'default': False,
          },
        },
        'required': ['origin'],
      },
    },
  }
  json.dumps(schema)


@pytest.mark.parametrize(
  'hint, schema',
  [
    (float, {'type': 'number'}),
    (Any, {}),
    (Optional[str], {'anyOf': [{'type': 'string'}, {'type': 'null'}]}),  # noqa: UP045
    (list, {'type': 'array'}),
    (
      list[Side],
      {'type': 'array', 'items': {'type': 'string', 'enum': ['left', 'right']}},
    ),
    (dict, {'type': 'object'}),
    (
      dict[str, int],
      {'type': 'object', 'additionalProperties': {'type': 'integer'}},
    ),
    (Side, {'type': 'string', 'enum': ['left', 'right']}),
    (Literal[1, 'a', None], {'enum': [1, 'a', None]}),
    (Literal[Side.LEFT], {'type': 'string', 'enum': ['left']}),
    (tuple[int, ...], {'type': 'array', 'items': {'type': 'integer'}}),
    (
      tuple[int, str],
      {
        'type': 'array',
        'prefixItems': [{'type': 'integer'}, {'type': 'string'}],
        'minItems': 2,
        'maxItems': 2,
      },
    ),
    (
      Leg,
      {
        'type': 'object',
        'properties': {
          'origin': {'type': 'string'},
          'day': {'type': 'integer'},
        },
        'required': ['origin'],
        'additionalProperties': False,
      },
    ),
  ],
)
def test_types(hint, schema):
  def f(x):
    """Does."""

  f.__annotations__ = {'x': hint}
  assert parameters(f)['properties'] == {'x': schema}


def test_defaults_are_shown_where_they_are_json():
  def f(a: Side = Side.LEFT, b: Any = object(), c: int | None = None):  # noqa: B008
    """Does."""

  made = parameters(f)
  shown = {
    name: part.get('default') for name, part in made['properties'].items()
  }
  assert shown == {'a': 'left', 'b': None, 'c': None}
  assert made['required'] == []


def test_what_has_no_schema_is_named():
  def no_type(x: complex): ...

  def no_hint(x): ...

  def no_keys(x: dict[int, str]): ...

  def no_bytes(x: bytes): ...

  def no_name(x: int, /): ...

  def no_set(*x: int): ...

  def no_value(x: Literal[b'a']): ...

  def nothing(x: 'Nothing'): ...  # noqa: F821

  faults = {
    no_type: 'has no JSON schema',
    no_hint: 'has no annotation',
    no_keys: 'keys of a JSON object are str',
    no_bytes: 'has no JSON schema',
    no_name: 'called by names',
    no_set: 'fixed set of parameters',
    no_value: 'are no JSON values',
    nothing: "name 'Nothing' is not defined",
  }
  for function, fault in faults.items():
    with pytest.raises(ValueError, match=fault) as caught:
      schemas.from_function(function)
    assert function.__name__ in str(caught.value)
