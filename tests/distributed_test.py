"""Locks that two processes compute what one does, and stop or go on as one."""

import json
import math
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from loading import load

from agentrl_jax import distributed, sharding, supervisor
from agentrl_jax.learner import estimate

TESTS = pathlib.Path(__file__).parent
PROGRAM = TESTS / 'two_processes.py'
FLAGS = (
  '--xla_force_host_platform_device_count=4 '
  '--xla_backend_optimization_level=0'  # compile fast, run slowly
)


eight_devices = load(TESTS / 'eight_devices.py')


def free_port():
  with socket.socket() as s:
    s.bind(('localhost', 0))
    return s.getsockname()[1]


# Weights go over both hosts, or lie whole on each.
MESHES = ['fsdp8', pytest.param('data2_fsdp4', marks=pytest.mark.slow)]


@pytest.fixture(scope='module', params=MESHES)
def both(request):
  """What two processes of four devices each said: [process 0, process 1]."""
  where = f'localhost:{free_port()}'
  processes = [
    subprocess.Popen(
      [sys.executable, str(PROGRAM), where, str(i), request.param],
      env={**os.environ, 'XLA_FLAGS': FLAGS, 'JAX_PLATFORMS': 'cpu'},
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for i in range(2)
  ]
  said = [p.communicate(timeout=600) for p in processes]
  for process, (_, errors) in zip(processes, said):
    assert process.returncode == 0, errors[-3000:]
  return [json.loads(out.splitlines()[-1]) for out, _ in said]


@pytest.fixture(scope='module')
def alone():
  """The same by one process with one device."""
  sizes = dict.fromkeys(sharding.AXES, 1)
  mesh = sharding.make_mesh(sizes, jax.devices()[:1])
  weights = eight_devices.draw_params()
  trained, _ = eight_devices.train(mesh, weights)
  placed = eight_devices.place(weights, mesh)
  sampled = eight_devices.sample(mesh, placed)
  return trained | sampled | {'params': placed, 'mesh': mesh}


def test_losses_and_gradients_are_those_of_one_process(both, alone):
  one = alone['metrics']
  for process in both:
    many = process['metrics']
    assert one.keys() == many.keys() and '2/grad_norm' in one
    for key, value in one.items():
      assert many[key] == pytest.approx(value, rel=1e-5, abs=1e-5), key


def test_each_host_samples_by_its_own_copy(both, alone):
  for many in both:
    assert many['published']
    assert math.prod(many['local'].values()) == 4
    pairs = zip(alone['tokens'], many['tokens'], strict=True)
    assert sum(list(a) == b for a, b in pairs) >= len(alone['tokens']) - 1


def test_each_host_gets_the_scores_of_its_own_rows(both, alone):
  scorer = estimate.Estimator(eight_devices.TINY, alone['mesh'], 1.0)
  (whole,) = scorer.logprobs(alone['params'], [eight_devices.rows(0)])
  halves = np.split(np.asarray(whole), 2)
  for process, half in zip(both, halves):
    np.testing.assert_allclose(process['scored'], half, atol=1e-5)


def test_updates_get_the_same_shape_and_weights_of_all_rows(both):
  # Tokens: 3 and 9 in the first update, none and 5 in the second.
  assert both[0]['leveled'] == [[4, 3 / 12], [2, 0.0]]
  assert both[1]['leveled'] == [[4, 9 / 12], [2, 1.0]]


def test_hosts_go_on_stop_or_fail_together(both):
  peer = 'PeerFailed: process 1 cannot go on, so that all stop: ValueError: no'
  for process, fault in zip(both, (peer, 'ValueError: no world')):
    fine, failed, stopped, worst = process['agreed']
    assert fine == 'fine' and stopped == 'Stopped: '
    assert failed.startswith(fault) and worst.startswith(fault)


def test_metrics_are_of_all_hosts(both):
  for row in (process['combined'] for process in both):
    assert row['rollout/trajectories'] == 4
    assert row['rollout/success'] == pytest.approx(1 / 4)  # (1·1 + 3·0) / 4
    assert row['rollout/return'] == 2  # only one host could say
    assert row['time/collect_s'] == 4 and row['loss/policy'] == 0.5
    assert row['watch/only'] == 7


def test_what_differs_between_hosts_is_named_everywhere(both):
  for process in both:
    assert 'process 1 has another config than process 0' in process['unlike']


@pytest.mark.parametrize(
  'error, lost',
  [
    (distributed.Lost('gone'), True),
    (jax.errors.JaxRuntimeError('Gloo AllGather: closed by peer'), True),
    (jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: out of memory'), False),
    (RuntimeError('Connection refused'), False),  # of a judge, say
    (distributed.PeerFailed('process 1'), False),
  ],
)
def test_what_counts_as_a_lost_process(error, lost, monkeypatch):
  monkeypatch.setattr(distributed, 'count', lambda: 2)
  assert distributed.is_lost(error) == lost


def test_a_process_alone_loses_nobody():
  error = jax.errors.JaxRuntimeError('Gloo: connection closed')
  assert not distributed.is_lost(error)


@pytest.mark.parametrize('victim', [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_lost_process_is_told_of_within_a_minute(victim, tmp_path):
  (tmp_path / 'checkpoints' / '4').mkdir(parents=True)
  where = f'localhost:{free_port()}'
  processes = [
    subprocess.Popen(
      [sys.executable, str(TESTS / 'lost_process.py'), where, str(i), tmp_path],
      env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for i in range(2)
  ]
  workers = [int(number_in(p.stdout)) for p in processes]
  os.kill(workers[victim], signal.SIGKILL)
  killed = time.monotonic()
  said = [p.communicate(timeout=60)[1] for p in processes]
  assert time.monotonic() - killed < 60
  for i, (process, errors) in enumerate(zip(processes, said)):
    assert process.returncode == supervisor.TRY_AGAIN
    line = errors.splitlines()[-1]
    why = 'was killed by SIGKILL' if i == victim else 'lost '
    assert line.startswith(f'process {i} of 2 on ') and why in line, line
    assert 'last checkpoint: iteration 4 in ' in line
    assert 'start the same command again on every host' in line


def number_in(lines):
  """The first line that is a number: Gloo talks as well."""
  return next(line for line in lines if line.strip().isdigit())


def test_one_process_needs_nobody():
  assert distributed.exchange({'a': 1}) == [{'a': 1}]
  assert distributed.most(3) == 3 and distributed.is_first()
  assert distributed.own(5) == slice(0, 5) and distributed.share(6) == 6
  distributed.require_equal({'a': 'b'})
  distributed.initialize(coordinator='')
  with pytest.raises(KeyError):
    distributed.together(lambda: {}['x'], ValueError)


@pytest.mark.parametrize(
  'total, number, expected',
  [(4, 2, [(0, 2), (2, 4)]), (5, 3, [(0, 2), (2, 4), (4, 5)])],
)
def test_shares_by_hand(monkeypatch, total, number, expected):
  monkeypatch.setattr(distributed, 'count', lambda: number)
  for i, (start, stop) in enumerate(expected):
    monkeypatch.setattr(distributed, 'index', lambda i=i: i)
    assert distributed.own(total) == slice(start, stop)


def test_nobody_there_is_told_with_a_remedy(monkeypatch):
  def wait(*_, **__):
    raise RuntimeError('DEADLINE_EXCEEDED: barrier\nmore')

  monkeypatch.setattr(jax.distributed, 'initialize', wait)
  with pytest.raises(
    distributed.NotJoined, match='DEADLINE_EXCEEDED.*every host.*process_id'
  ):
    distributed.initialize(coordinator='a:1', num_processes=2, process_id=0)
