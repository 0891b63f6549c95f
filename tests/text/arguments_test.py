"""Locks: which arguments are refused, and the words for each fault."""

import time
from typing import Literal

import pytest

from agentrl_jax import types
from agentrl_jax.envs import flight
from agentrl_jax.text import arguments, tools

SCHEMA = {
  'properties': {
    'text': {'type': 'string'},
    'count': {'type': 'integer'},
    'share': {'type': 'number', 'minimum': 0},
    'sure': {'type': 'boolean'},
    'many': {'type': 'array', 'items': {'type': 'integer'}},
    'more': {'type': 'object', 'additionalProperties': {'type': 'string'}},
    'side': {'type': 'string', 'enum': ['left', 'right']},
    'level': {'enum': [1, None]},
    'stops': {
      'anyOf': [
        {'type': 'array', 'items': {'type': 'string'}},
        {'type': 'null'},
      ]
    },
  },
  'required': ['text'],
}


def validate(given, schema=SCHEMA):
  return tools.validate_call(types.ToolCall('f', given), {'f': schema})


@pytest.mark.parametrize(
  'given, problem',
  [
    ({'text': 'a'}, ''),
    ({'text': 'a', 'count': 1, 'share': 0.5, 'sure': True, 'many': []}, ''),
    ({'text': 'a', 'more': {}, 'side': 'left', 'share': 2}, ''),
    ({'text': 'a', 'stops': None, 'level': None}, ''),
    ({}, 'missing argument text'),
    ({'count': 'x', 'other': 1}, 'missing argument text'),
    ({'text': 1}, 'text must be of type string'),
    ({'text': None}, 'text must be of type string'),
    ({'text': '\ud800'}, 'text must be plain text'),
    ({'text': 'a', 'more': {'x': '\udfff'}}, 'more must be plain text'),
    ({'text': 'a', 'count': True}, 'count must be of type integer'),
    ({'text': 'a', 'count': 1.0}, 'count must be of type integer'),
    ({'text': 'a', 'share': False}, 'share must be of type number'),
    ({'text': 'a', 'side': 'up'}, 'side must be one of left, right'),
    ({'text': 'a', 'level': 2}, 'level must be one of 1, null'),
    ({'text': 'a', 'many': [1, 'x']}, 'many[1] must be of type integer'),
    ({'text': 'a', 'more': {'x': 1}}, 'more.x must be of type string'),
    ({'text': 'a', 'stops': 3}, 'stops must be of type array or null'),
    ({'text': 'a', 'stops': ['b', 3]}, 'stops[1] must be of type string'),
    (
      {'text': 'a', 'share': -1},
      'share: -1 is less than the minimum of 0',
    ),
    (['text'], 'arguments must be an object'),
  ],
)
def test_each_fault_in_words(given, problem):
  assert validate(given) == problem


def test_an_unknown_argument_is_refused_with_those_allowed():
  problem = validate({'text': 'a', 'txt': 1})
  assert problem.startswith('unknown argument txt; allowed: text, count,')
  assert validate({'a': 1}, {'additionalProperties': True}) == ''
  nested = {'properties': {'x': {'type': 'object', 'required': ['y']}}}
  assert validate({'x': {}}, nested) == 'missing argument y of x'


def test_an_unknown_tool_is_told_with_those_known():
  call = types.ToolCall('g' * 100)
  problem = tools.validate_call(call, {'f': {}, 'h': {}})
  assert problem == f'unknown tool {"g" * 57}...; tools: f, h'


def test_what_the_agent_wrote_is_quoted_in_part():
  for given in ({'x' * 10_000: 1}, {'text': 'a', 'share': -(10**4000)}):
    assert len(validate(given)) < 250


def test_depth_is_no_exception():
  deep = []
  for _ in range(100_000):
    deep = [deep]
  assert validate({'x': deep}, {'properties': {'x': {}}}) == (
    'arguments are nested too deeply'
  )
  while deep:  # a list this deep is not freed in one go everywhere
    deep = deep[0]


def test_no_schema_is_a_fault_of_the_environment():
  with pytest.raises(ValueError, match="tool 'f' are no JSON schema"):
    validate({'x': 1}, {'properties': {'x': {'type': 'text'}}})


def test_a_schema_of_a_function_validates_its_calls():
  def book(flight: str, seat: Literal['window', 'aisle'] = 'aisle') -> str:
    """Books."""
    return flight + seat

  schema = tools.schema_from_function(book)['function']['parameters']
  assert validate({'flight': 'CA1'}, schema) == ''
  assert validate({'flight': 'CA1', 'seat': 'roof'}, schema) == (
    'seat must be one of window, aisle'
  )


def test_a_schema_is_compiled_once(monkeypatch):
  schema = {'properties': {'once': {'type': 'string'}}}
  for made in (schema, dict(schema)):
    validate({'once': 'a'}, made)
  monkeypatch.setattr(arguments, '_validator', None)
  assert validate({'once': 1}, schema) == 'once must be of type string'


def test_a_call_of_the_flight_environment_costs_microseconds():
  schemas = {
    tool['function']['name']: tool['function']['parameters']
    for tool in flight.FlightEnv.tools
  }
  call = types.ToolCall('check_seat', {'flight': 'CA1501'})
  best = float('inf')
  for _ in range(20):
    start = time.perf_counter()
    for _ in range(50):
      assert tools.validate_call(call, schemas) == ''
    best = min(best, (time.perf_counter() - start) / 50)
  assert best < 200e-6  # 15 us on an idle core; compiling anew takes 2 ms
