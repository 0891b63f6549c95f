"""Locks every rule on a single field, whatever fields there are."""

import math
import re

import pytest

from agentrl_jax import config, validation


def faults(field, value):
  """Faults of the default config with one field changed."""
  c = config.default()
  *path, last = field.split('.')
  node = c
  for part in path:
    node = node[part]
  with node.ignore_type():
    node[last] = value
  return validation.faults(c, config.flatten(c))


def told(found, field, text):
  """How many of the faults say this of the field, whatever its value."""
  pattern = rf'config\.{re.escape(field)}=\S+: {re.escape(text)}.*'
  return sum(bool(re.fullmatch(pattern, fault)) for fault in found)


def test_the_default_has_no_fault():
  c = config.default()
  assert validation.faults(c, config.flatten(c), num_devices=1) == []


@pytest.mark.parametrize('field', validation._CHOICES)
def test_a_choice_lists_what_is_allowed(field):
  choices = sorted(validation._CHOICES[field])
  found = faults(field, 'nonsense')
  want = f'not one of {", ".join(choices)}'
  assert told(found, field, want) == 1
  near = choices[0] + choices[0][-1]
  (fault,) = faults(field, near)
  assert fault.endswith(f'(did you mean {choices[0]!r}?)')


@pytest.mark.parametrize('field', validation._AT_LEAST)
def test_a_lower_bound_is_told_and_reached(field):
  low = validation._AT_LEAST[field]
  for value in (low - 1, math.nan):
    assert told(faults(field, value), field, f'must be >= {low}') == 1
  assert not told(faults(field, low), field, 'must be >=')


@pytest.mark.parametrize('field', validation._POSITIVE)
def test_a_positive_field_is_above_zero_and_in_bounds(field):
  high = validation._POSITIVE[field]
  for value in (0.0, -1.0, math.nan):
    assert told(faults(field, value), field, 'must be > 0') == 1
  if math.isfinite(high):
    above = high * 1.5
    text = f'must be > 0 and <= {high}'
    assert told(faults(field, above), field, text) == 1
    assert not told(faults(field, high), field, 'must be > 0')


def test_every_rule_is_about_a_field_that_exists():
  known = config.flatten(config.default())
  for rules in (
    validation._CHOICES,
    validation._AT_LEAST,
    validation._POSITIVE,
  ):
    assert set(rules) <= set(known)


@pytest.mark.parametrize(
  'part, good',
  [
    (('outcome', 1.0), True),
    (['outcome', 2], True),
    (('outcome',), False),
    (('outcome', '1'), False),
    ((1.0, 'outcome'), False),
    ('ab', False),
    (('outcome', float('nan')), False),
    (('length', 1.0, {'budget': 9, 'buffer': 3}), True),
    (('length', 1.0, 9), False),
    (('length', 1.0, {}, {}), False),
  ],
)
def test_a_reward_part_is_a_name_a_weight_and_maybe_options(part, good):
  assert validation.is_part(part) is good


def test_an_unknown_field_names_the_nearest():
  known = ('train.rows', 'train.epochs', 'seed')
  assert validation.unknown('train.row', known) == (
    'config.train.row: unknown field; did you mean config.train.rows?'
  )
  assert validation.unknown('zzz', known) == 'config.zzz: unknown field'
