"""Functions are taken out of modules with what they need and no more."""

import doctest
import importlib.util

import pytest

from agentrl_jax.envs.code import items

TEXT = '''"""A module."""
import math
import os
from package import other

SCALE = 2
UNUSED = 3


def double(x):
  """Doubles.

  >>> double(2)
  4
  >>> x = 3
  >>> double(
  ...   x)
  6
  """
  return x * SCALE


def root(x):
  """Root of twice.

  >>> root(2)
  2.0
  """
  return math.sqrt(double(x))


def foreign(x):
  """Needs what is not here.

  >>> foreign(1)
  1
  """
  return other(x)


def silent(x):
  """No examples."""
  return x
'''


@pytest.fixture
def found(tmp_path):
  (tmp_path / 'module.py').write_text(TEXT)
  return {
    item.function: item for item in items.of_module(tmp_path / 'module.py')
  }


def test_what_needs_others_or_has_no_examples_is_left_out(found):
  assert set(found) == {'double', 'root'}


def test_an_item_is_the_function_and_what_it_needs(found):
  assert found['double'].text == (
    'SCALE = 2\n\ndef double(x):\n  """Doubles."""\n  return x * SCALE\n'
  )
  text = found['root'].text
  assert text.startswith('import math\n\nSCALE = 2\n\ndef double')
  assert 'UNUSED' not in text
  assert '>>>' not in text
  names = {}
  exec(text, names)
  assert names['root'](8) == 4.0


def test_cases_are_examples_after_what_stands_before(found):
  assert found['double'].cases == (
    ('', 'double(2)'),
    ('x = 3\n', 'double(\n  x)'),
  )
  assert found['root'].name == 'module.root'


def test_a_prefix_keeps_names_apart(tmp_path):
  (tmp_path / 'json.py').write_text(TEXT)
  (item, *_) = items.of_module(tmp_path / 'json.py', prefix='package')
  assert item.module == 'package_json'


@pytest.mark.parametrize('path', sorted(items.SEEDS.glob('[a-z]*.py')), ids=str)
def test_the_examples_of_the_seeds_hold(path):
  spec = importlib.util.spec_from_file_location(f'seed_{path.stem}', path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  result = doctest.testmod(module)
  assert result.failed == 0
  assert result.attempted >= 10
