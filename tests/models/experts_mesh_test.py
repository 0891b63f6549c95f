"""Locks that experts on 8 devices learn what they learn on one."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parent / 'expert_devices.py'
# [L, E, F, D] of a device: experts over `expert`, their width over `tensor`.
PARTS = {
  'expert4_data2': [1, 1, 16, 32],
  'expert2_fsdp2_tensor2': [1, 2, 8, 16],
}
SLOW = pytest.param('expert2_fsdp2_tensor2', marks=pytest.mark.slow)


@pytest.fixture(scope='module', params=['expert4_data2', SLOW])
def measured(request):
  """Runs expert_devices.py on 8 forced CPU devices: (one, many, name)."""
  flags = (
    '--xla_force_host_platform_device_count=8 '
    '--xla_backend_optimization_level=0'  # compile fast, run slowly
  )
  done = subprocess.run(
    [sys.executable, str(PROGRAM), request.param],
    env={**os.environ, 'XLA_FLAGS': flags, 'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    timeout=300,  # a program that hangs is a fault, not a wait
    text=True,
  )
  assert done.returncode == 0, done.stderr
  told = json.loads(done.stdout.splitlines()[-1])
  return told['one'], told[request.param], request.param


def test_loss_and_metrics_do_not_depend_on_the_mesh(measured):
  one, many, _ = measured
  one, many = one['metrics'], many['metrics']
  assert one.keys() == many.keys() and 'expert_balance' in one
  for key, value in one.items():
    assert many[key] == pytest.approx(value, rel=1e-5, abs=1e-5), key


def test_updated_weights_do_not_depend_on_the_mesh(measured):
  _, many, _ = measured
  assert many['moved'] > 1e-3 and many['params_gap'] < 1e-5


def test_experts_lie_on_their_devices(measured):
  one, many, name = measured
  assert one['part'] == [1, 4, 16, 32] and many['part'] == PARTS[name]
