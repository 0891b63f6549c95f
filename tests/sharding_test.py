"""Locks the mesh and the rules, and that 8 devices compute what 1 does."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from agentrl_jax import sharding

MESH = AbstractMesh((2, 2, 2, 2), sharding.AXES)


@pytest.mark.parametrize(
  'axes, shape, expected',
  [
    (('embed', 'heads', None), (8, 4, 3), ('fsdp', 'tensor', None)),
    (('embed', 'kv_heads', None), (8, 1, 3), ('fsdp', None, None)),  # 1 / 2
    (('vocab', 'embed'), (7, 8), (None, 'fsdp')),
    (('layers', 'mlp', 'embed'), (3, 8, 8), (None, 'tensor', 'fsdp')),
    (('experts', 'embed', 'mlp'), (4, 8, 8), ('expert', 'fsdp', 'tensor')),
    (('experts', None), (3, 8), (None, None)),  # 3 / 2
    (('rows', None), (8, 5), (('data', 'fsdp', 'expert'), None)),
    (('rows', None), (12, 5), (None, None)),  # not over 8
  ],
)
def test_rules_by_hand(axes, shape, expected):
  assert sharding.spec(axes, shape, MESH) == PartitionSpec(*expected)


def test_axes_of_one_device_split_nothing():
  mesh = AbstractMesh((1, 1, 1, 1), sharding.AXES)
  assert sharding.spec(('embed',), (8,), mesh) == PartitionSpec(None)


@pytest.mark.parametrize('sizes', [(1, 1, 1), (-1, 1, 1), (1, 1, 1, -1)])
def test_mesh_of_one_device(sizes):
  mesh = sharding.make_mesh(dict(zip(sharding.AXES, sizes)), jax.devices()[:1])
  assert dict(mesh.shape) == dict(data=1, fsdp=1, tensor=1, expert=1)


def test_mesh_that_does_not_fit_is_refused():
  with pytest.raises(ValueError, match=r"'fsdp': 3.*1 device.*config.mesh"):
    sharding.make_mesh(dict(data=1, fsdp=3, tensor=1), jax.devices()[:1])


@pytest.mark.parametrize(
  'sizes, num_hosts, expected',
  [
    ((2, 4, 1, 1), 2, [2, 1, 1, 1]),
    ((1, 8, 1, 1), 2, [1, 2, 1, 1]),
    ((2, 4, 2, 1), 4, [2, 2, 1, 1]),
    ((6, 1, 4, 1), 3, [3, 1, 1, 1]),
  ],
)
def test_data_then_fsdp_goes_over_hosts(sizes, num_hosts, expected):
  assert sharding._over_hosts(sizes, num_hosts) == expected


@pytest.mark.parametrize('sizes', [(1, 1, 8, 1), (1, 1, 1, 8), (3, 1, 2, 1)])
def test_tensor_and_expert_stay_within_a_host(sizes):
  with pytest.raises(ValueError, match='over 2 hosts: data x fsdp must be a'):
    sharding._over_hosts(sizes, 2)


def test_a_sampler_has_whole_weights_but_for_tensor():
  axes, shape = ('layers', 'embed', 'heads', None), (3, 8, 4, 3)
  spec = sharding.spec(axes, shape, MESH, sharding.SAMPLER_RULES)
  assert spec == PartitionSpec(None, None, 'tensor', None)
  # Where rows are is the same for both.
  rules = (sharding.RULES, sharding.SAMPLER_RULES)
  assert len({sharding.spec(('rows',), (16,), MESH, r) for r in rules}) == 1


PROGRAM = pathlib.Path(__file__).parent / 'eight_devices.py'


@pytest.fixture(scope='module')
def measured():
  """Runs eight_devices.py on 8 forced CPU devices."""
  flags = (
    '--xla_force_host_platform_device_count=8 '
    '--xla_backend_optimization_level=0'  # compile fast, run slowly
  )
  done = subprocess.run(
    [sys.executable, str(PROGRAM)],
    env={**os.environ, 'XLA_FLAGS': flags, 'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    timeout=300,  # a program that hangs is a fault, not a wait
    text=True,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout.splitlines()[-1])


NAMES = ['fsdp8', 'data2_fsdp2_tensor2']


@pytest.mark.parametrize('name', NAMES)
def test_loss_and_metrics_do_not_depend_on_the_mesh(measured, name):
  one, many = measured['one']['metrics'], measured[name]['metrics']
  assert one.keys() == many.keys() and len(one) > 8
  for key, value in one.items():
    assert many[key] == pytest.approx(value, rel=1e-5, abs=1e-5), key


@pytest.mark.parametrize('name', NAMES)
def test_weights_are_brought_together_and_not_sums_of_all_rows(measured, name):
  """Split along D as the weights are, activations of 8 rows would be summed."""
  summed = measured[name]['summed']
  assert 'f32[]' in summed  # the loss
  assert not [shape for shape in summed if shape.startswith('f32[8,16,')]


@pytest.mark.parametrize('name', ['one', *NAMES])
def test_a_head_in_chunks_gives_the_same_on_every_mesh(measured, name):
  whole, chunks = measured['one']['metrics'], measured[name]['chunked']
  assert whole.keys() == chunks.keys()
  for key, value in whole.items():
    assert chunks[key] == pytest.approx(value, rel=1e-5, abs=1e-5), key


@pytest.mark.parametrize('name', NAMES)
def test_gradients_of_a_head_are_summed_once_and_not_by_chunk(measured, name):
  head = 'f32[32,16]' if name == 'fsdp8' else 'f32[32,8]'  # V by tensor
  everywhere, in_loops = measured[name]['summed_chunked']
  assert in_loops  # of the blocks
  assert head in everywhere and head not in in_loops


@pytest.mark.parametrize('name', NAMES)
def test_adapters_learn_the_same_on_every_mesh(measured, name):
  one, many = measured['one']['adapted'], measured[name]['adapted']
  assert one.keys() == many.keys() and one != measured['one']['metrics']
  for key, value in one.items():
    assert many[key] == pytest.approx(value, rel=1e-5, abs=1e-5), key
  assert measured[name]['adapted_gap'] < 1e-5


@pytest.mark.parametrize('name', NAMES)
def test_updated_weights_do_not_depend_on_the_mesh(measured, name):
  assert measured[name]['moved'] > 1e-3
  assert measured[name]['params_gap'] < 1e-5


@pytest.mark.parametrize('name', NAMES)
def test_state_stays_where_it_was_put(measured, name):
  assert measured[name]['same_shardings']
  assert measured[name]['split'] >= 8 / 2  # a weight lies on that many parts
  programs = measured[name]['programs']
  assert programs['jit(accumulate)'] == programs['jit(apply)'] == 1


@pytest.mark.parametrize('name', NAMES)
def test_sampler_draws_the_same_up_to_ties(measured, name):
  one, many = measured['one'], measured[name]
  assert many['published']
  same = [a == b for a, b in zip(one['tokens'], many['tokens'], strict=True)]
  assert sum(same) >= len(same) - 1
  for a, b, equal in zip(one['logprobs'], many['logprobs'], same):
    assert not equal or b == pytest.approx(a, abs=1e-4)


def test_a_checkpoint_goes_from_8_devices_to_2_to_1(measured):
  assert measured['moved'] == [[0.0, 2], [0.0, 1]]
