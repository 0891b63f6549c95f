"""Locks every rule on a single field, whatever fields there are."""

import math
import re

import pytest

from agentrl_jax import bounds, config, validation


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


@pytest.mark.parametrize('field', bounds.CHOICES)
def test_a_choice_lists_what_is_allowed(field):
  choices = sorted(bounds.CHOICES[field])
  found = faults(field, 'nonsense')
  want = f'not one of {", ".join(choices)}'
  assert told(found, field, want) == 1
  near = choices[0] + choices[0][-1]
  (fault,) = faults(field, near)
  assert fault.endswith(f'(did you mean {choices[0]!r}?)')


@pytest.mark.parametrize('field', bounds.AT_LEAST)
def test_a_lower_bound_is_told_and_reached(field):
  low = bounds.AT_LEAST[field]
  for value in (low - 1, math.nan):
    assert told(faults(field, value), field, f'must be >= {low}') == 1
  assert not told(faults(field, low), field, 'must be >=')


@pytest.mark.parametrize('field', bounds.POSITIVE)
def test_a_positive_field_is_above_zero_and_in_bounds(field):
  high = bounds.POSITIVE[field]
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
    bounds.CHOICES,
    bounds.AT_LEAST,
    bounds.POSITIVE,
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


@pytest.mark.parametrize(
  'given, good',
  [
    ((0, 0, 0), True),
    ((4, 2, 8), True),
    ((4, 4, 1), True),
    ((4, 5, 8), False),
    ((4, 0, 8), False),
    ((4, 2, 0), False),
    ((0, 2, 8), False),
  ],
)
def test_experts_are_given_whole_or_not_at_all(given, good):
  c = config.default()
  names = 'num_experts', 'experts_per_token', 'd_expert'
  c.model.update(dict(zip(names, given)))
  found = validation.faults(c, config.flatten(c))
  assert len(found) == (not good)
  assert all(f'{given}: experts_per_token must be' in fault for fault in found)


def test_experts_divide_over_their_devices():
  c = config.default()
  c.model.update(dict(num_experts=6, experts_per_token=2, d_expert=8))
  c.mesh.expert = 4
  (fault,) = validation.faults(c, config.flatten(c), num_devices=4)
  assert fault == 'config.mesh.expert=4: must divide config.model.num_experts=6'
  c.mesh.data, c.mesh.expert = 2, 2
  assert not validation.faults(c, config.flatten(c), num_devices=4)


@pytest.mark.parametrize(
  'fields, hosts, words',
  [
    ({'distributed.coordinator': 'head'}, 1, 'HOST:PORT'),
    ({'distributed.num_processes': 2}, 2, 'needs config.distributed.coord'),
    (
      {
        'distributed.coordinator': 'a:1',
        'distributed.num_processes': 2,
        'distributed.process_id': 2,
      },
      2,
      'must be below config.distributed.num_processes=2',
    ),
    ({'rollout.tasks': 15}, 2, 'config.rollout.tasks=15: must be a multiple'),
    ({'sft.rows': 12, 'train.rows': 4}, 8, 'config.train.rows=4'),
  ],
)
def test_hosts_are_told_of_what_they_cannot_share(fields, hosts, words):
  c = config.default()
  c.update_from_flattened_dict(fields)
  with pytest.raises(config.ConfigError, match=words):
    config.validate(c, num_hosts=hosts)


@pytest.mark.parametrize(
  'lengths, text',
  [
    ((100,), 'lengths that divide config.train.row_length=384'),
    ((384,), 'lengths that divide'),
    ((0,), 'lengths that divide'),
    ((96.0,), 'lengths that divide'),
    ((96, 192), 'must descend, each once'),
    ((96, 96), 'must descend, each once'),
  ],
)
def test_shorter_rows_divide_and_descend(lengths, text):
  (fault,) = faults('train.shorter_rows', lengths)
  assert fault.startswith('config.train.shorter_rows=') and text in fault
  assert not faults('train.shorter_rows', (192, 96))


def test_a_base_that_a_run_tunes_is_kept_by_one_process():
  c = config.default()
  c.lora.rank, c.lora.sft, c.sft.steps = 8, False, 20
  assert not validation.faults(c, config.flatten(c))
  c.distributed.coordinator = 'auto'
  (fault,) = validation.faults(c, config.flatten(c))
  assert fault.startswith('config.lora.sft=False: with config.lora.rank=8')
  for field, value in (('sft', True), ('rank', 0)):
    other = c.copy_and_resolve_references()
    other.lora[field] = value
    assert not validation.faults(other, config.flatten(other))


def test_experts_compute_silu_only():
  c = config.default()
  c.model.num_experts, c.model.experts_per_token = 4, 2
  c.model.d_expert = 8
  assert not validation.faults(c, config.flatten(c))
  c.model.activation = 'gelu_tanh'
  (fault,) = validation.faults(c, config.flatten(c))
  assert fault.startswith("config.model.activation='gelu_tanh': with")


def test_shorter_rows_and_rounded_weights_have_their_place():
  c = config.default()
  c.train.shorter_rows, c.distributed.coordinator = (96,), 'auto'
  c.train.param_dtype, c.lora.rank = 'bfloat16', 8
  found = '\n'.join(validation.faults(c, config.flatten(c)))
  for text in (
    "one shape; leave it () with config.distributed.coordinator='auto'",
    "config.model.dtype='auto' must be 'bfloat16' as well",
    'with config.lora.rank=8 adapters are float32',
  ):
    assert text in found, found
  c = config.default()
  c.train.param_dtype = c.model.dtype = 'bfloat16'
  assert not validation.faults(c, config.flatten(c))
