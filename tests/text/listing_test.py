"""Locks: how tools are written, and that the exported Jinja agrees."""

import functools
import json

import hypothesis
import pytest
from hypothesis import strategies as st

from agentrl_jax.text import jinja, listing, templates


def tool(**parameters):
  about = {'name': 'f', 'description': ' Does <it>.\n'}
  return {
    'type': 'function',
    'function': {**about, 'parameters': parameters, 'strict': True},
  }


def test_json_keeps_every_character():
  assert listing.as_json({'a': ['é', '<']}) == '{"a": ["é", "<"]}'
  assert listing.as_json({'a': 1}, 4) == '{\n    "a": 1\n}'


def test_tags_by_hand():
  side = {'description': 'é', 'enum': ['é', 1], 'type': 'string', 'name': 'x'}
  schema = tool(
    type='object',
    required=['side'],
    properties={'side': side, 'n': {'default': None, 'type': ['null']}},
    additionalProperties=False,
  )
  # The template's own keys come first; what follows keeps its order.
  assert listing.as_tags(schema).splitlines() == [
    '<function>',
    '<name>f</name>',
    '<description>Does <it>.</description>',
    '<parameters>',
    '<parameter>',
    '<name>side</name>',
    '<type>string</type>',
    '<description>é</description>',
    '<enum>["é", 1]</enum>',
    '</parameter>',
    '<parameter>',
    '<name>n</name>',
    "<type>['null']</type>",
    '<default>None</default>',
    '</parameter>',
    '<required>["side"]</required>',
    '<additionalProperties>False</additionalProperties>',
    '</parameters>',
    '<strict>True</strict>',
    '</function>',
  ]
  assert listing.as_tags(schema['function']) == listing.as_tags(schema)


def test_what_says_nothing_is_listed_by_name():
  empty = '<function>\n<name>f</name>\n<parameters>\n</parameters>\n</function>'
  for parameters in ({}, {'parameters': True}, {'parameters': {}}):
    assert listing.as_tags({'name': 'f', **parameters}) == empty
  schema = {'name': 'f', 'parameters': {'properties': {'x': True}}}
  assert '<parameter>\n<name>x</name>\n</parameter>' in listing.as_tags(schema)


@functools.cache
def template():
  jinja2 = pytest.importorskip('jinja2')
  sandbox = pytest.importorskip('jinja2.sandbox')
  environment = sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, undefined=jinja2.Undefined
  )
  environment.filters['tojson'] = functools.partial(
    json.dumps, ensure_ascii=False
  )
  return environment.from_string(jinja.TEMPLATES['qwen3_coder'])


values = st.recursive(
  st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
  lambda inner: (
    st.lists(inner, max_size=2)
    | st.dictionaries(st.text(max_size=5), inner, max_size=2)
  ),
  max_leaves=4,
)
# Names of methods of a dict are what a template finds before its keys.
keys = st.sampled_from(['type', 'description', 'name', 'enum', 'default', 'é'])
fields = st.dictionaries(keys, values, max_size=5)
schemas = st.fixed_dictionaries(
  {'name': st.text(max_size=5)},
  optional={
    'description': values,
    'strict': values,
    'parameters': st.fixed_dictionaries(
      {},
      optional={
        'type': st.just('object'),
        'properties': st.dictionaries(st.text(max_size=5), fields, max_size=3),
        'required': values,
        'description': values,
      },
    ),
  },
)


@hypothesis.given(st.lists(schemas, min_size=1, max_size=2))
@hypothesis.settings(deadline=None, max_examples=100)
def test_the_exported_jinja_lists_the_same(functions):
  shown = templates.shown('qwen3_coder', functions)
  text = template().render(
    messages=[{'role': 'system', 'content': ''}], tools=functions
  )
  assert text == f'<|im_start|>system\n{shown}<|im_end|>\n'
