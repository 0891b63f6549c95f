"""Locks how names in configs are resolved."""

import math

import pytest

from agentrl_jax import advantages, losses, tables


def test_known_names_and_dotted_names():
  assert tables.resolve({'a': 1}, 'a') == 1
  assert tables.resolve({}, 'math:sqrt') is math.sqrt
  for table in (advantages.ESTIMATORS, losses.LOSSES):
    for name, value in table.items():
      assert tables.resolve(table, name) is value


def test_unknown_names_list_the_known_and_the_nearest():
  with pytest.raises(ValueError, match=r"known: grpo, rloo; nearest: 'grpo'"):
    tables.resolve({'rloo': 1, 'grpo': 2}, 'gpro')
  with pytest.raises(ValueError, match='cannot import'):
    tables.resolve({}, 'math:no_such_thing')
  with pytest.raises(ValueError, match='cannot import'):
    tables.resolve({}, 'no_such_module:f')
