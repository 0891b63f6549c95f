"""Locks that experts on 8 devices learn what they learn on one."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parent / 'expert_devices.py'
NAMES = ['expert4_data2', 'expert2_fsdp2_tensor2']


@pytest.fixture(scope='module')
def measured():
  """Runs expert_devices.py on 8 forced CPU devices."""
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


@pytest.mark.parametrize('name', NAMES)
def test_loss_and_metrics_do_not_depend_on_the_mesh(measured, name):
  one, many = measured['one']['metrics'], measured[name]['metrics']
  assert one.keys() == many.keys() and 'expert_balance' in one
  for key, value in one.items():
    assert many[key] == pytest.approx(value, rel=1e-5, abs=1e-5), key


@pytest.mark.parametrize('name', NAMES)
def test_updated_weights_do_not_depend_on_the_mesh(measured, name):
  assert measured[name]['moved'] > 1e-3
  assert measured[name]['params_gap'] < 1e-5


def test_experts_lie_on_their_devices(measured):
  # [L, E, F, D]: experts over `expert`, their width over `tensor`
  assert measured['one']['part'] == [1, 4, 16, 32]
  assert measured['expert4_data2']['part'] == [1, 1, 16, 32]
  assert measured['expert2_fsdp2_tensor2']['part'] == [1, 2, 8, 16]
