"""A run on two hosts: trained as one, one killed, told of, gone on with.

Slow: each process imports and compiles for itself.
"""

import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from agentrl_jax import metrics, supervisor
from agentrl_jax.rollout import store

ROOT = pathlib.Path(__file__).parents[2]
LAUNCH = ROOT / 'experiments' / 'launch.py'
TINY = ROOT / 'tests' / 'experiments' / 'tiny_config.py'
FLAGS = (
  '--xla_force_host_platform_device_count=4 '
  '--xla_backend_optimization_level=0'  # compile fast, run slowly
)
SETS = (
  f'--config={TINY}',
  '--display=plain',
  '--config.mesh.data=2',
  '--config.mesh.fsdp=4',
  '--config.train.rows=8',
  '--config.sft.rows=8',
  '--config.sft.steps=20',
  '--config.distributed.num_processes=2',
)


def free_port():
  with socket.socket() as s:
    s.bind(('localhost', 0))
    return s.getsockname()[1]


def start(home, *arguments):
  """Starts both processes, each with a home of its own, and returns them."""
  where = f'localhost:{free_port()}'
  processes = []
  for i in range(2):
    own = home / f'host{i}'
    own.mkdir(parents=True, exist_ok=True)
    environment = {
      **os.environ,
      'HOME': str(own),
      'AGENTRL_JAX_CACHE': str(own / 'cache'),
      'AGENTRL_JAX_DATA': str(own / 'data'),
      'XLA_FLAGS': FLAGS,
      'JAX_PLATFORMS': 'cpu',
    }
    processes.append(
      subprocess.Popen(
        [
          sys.executable,
          str(LAUNCH),
          *SETS,
          f'--workdir={home / "run"}',
          f'--config.distributed.coordinator={where}',
          f'--config.distributed.process_id={i}',
          *arguments,
        ],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
      )
    )
  return processes


def finish(processes, seconds=1500):
  """Returns (status, output) of each."""
  said = [p.communicate(timeout=seconds)[0] for p in processes]
  return [(p.returncode, out) for p, out in zip(processes, said)]


def worker_of(process):
  """Process id of a parent's worker."""
  children = pathlib.Path(f'/proc/{process.pid}/task/{process.pid}/children')
  return int(children.read_text().split()[0])


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  home = tmp_path_factory.mktemp('whole')
  said = finish(start(home))
  for code, output in said:
    assert code == 0, output
  return home, [output for _, output in said]


@pytest.mark.slow
def test_two_hosts_make_one_run(whole):
  home, (first, second) = whole
  assert 'process 0 of 2, 4 of 8 devices' in first
  assert 'weights handed to the sampler' in first and 'step 2/2' in first
  assert 'step' not in second.split('devices')[1]  # it has nothing to show
  rows = metrics.read(home / 'run')
  assert [row['step'] for row in rows] == [0, 1, 2]
  for row in rows[1:]:
    assert row['rollout/trajectories'] == 8 and row['rollout/tasks'] == 2
    assert row['policy/first_ratio_deviation'] < 1e-4
    assert row['loss/weight'] == pytest.approx(1, abs=1e-5)
    assert row['sampler/published_equal'] == 1
  tasks = []
  for kind in ('train', 'train_p1'):
    records = store.read(home / 'run', 1, kind=kind)
    assert len(records) == 4  # a group never leaves its host
    tasks.append({r.trajectory.task.index for r in records})
  assert len(tasks[0]) == len(tasks[1]) == 1 and tasks[0] != tasks[1]
  assert (home / 'run' / 'report.html').exists()


@pytest.mark.slow
@pytest.mark.parametrize('victim', [0, 1])
def test_a_lost_host_is_told_of_and_the_run_goes_on(victim, tmp_path):
  sets = ('--config.train.iterations=400', '--config.eval.tasks=0')
  processes = start(tmp_path, *sets)
  checkpoints = tmp_path / 'run' / 'checkpoints'
  while not (checkpoints / '1').exists():
    assert all(p.poll() is None for p in processes), finish(processes)
    time.sleep(0.05)
  os.kill(worker_of(processes[victim]), signal.SIGKILL)
  killed = time.monotonic()
  said = finish(processes, seconds=60)  # the promise
  assert time.monotonic() - killed < 60
  for i, (code, output) in enumerate(said):
    assert code == supervisor.TRY_AGAIN
    line = output.splitlines()[-1]
    assert line.startswith(f'process {i} on ')
    assert re.search(r'last checkpoint: iteration [1-9]\d* in ', line)
    told = 'was killed by SIGKILL' if i == victim else 'lost '
    assert told in line, line
  last = supervisor.checkpoints(tmp_path / 'run')[-1]
  # One iteration more, and not four hundred.
  config = json.loads((tmp_path / 'run' / 'config.json').read_text())
  config['train']['iterations'] = last + 1
  (tmp_path / 'run' / 'config.json').write_text(json.dumps(config))
  again = finish(start(tmp_path, *sets[1:], f'{sets[0][:-3]}{last + 1}'))
  for code, output in again:
    assert code == 0, output
  assert f'resumed after iteration {last}' in again[0][1]
  steps = [row['step'] for row in metrics.read(tmp_path / 'run')]
  assert steps == list(range(last + 2))


@pytest.mark.slow
def test_one_host_asked_to_end_ends_both_with_a_checkpoint(tmp_path):
  processes = start(tmp_path, '--config.train.iterations=400')
  while not (tmp_path / 'run' / 'checkpoints' / '1').exists():
    assert all(p.poll() is None for p in processes), finish(processes)
    time.sleep(0.05)
  processes[1].send_signal(signal.SIGTERM)
  for code, output in finish(processes):
    assert code == 143, output
    assert 'the same command goes on from here' in output
  rows = metrics.read(tmp_path / 'run')
  assert supervisor.checkpoints(tmp_path / 'run')[-1] == rows[-1]['step']


@pytest.mark.slow
def test_a_run_goes_on_with_one_host_when_the_config_says_so(whole):
  home, _ = whole
  drill_path = ROOT / 'tools' / 'kill_drill.py'
  spec = importlib.util.spec_from_file_location('kill_drill', drill_path)
  drill = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(drill)
  command = [sys.executable, str(LAUNCH), *SETS[:2], *SETS[4:7]]
  command += [f'--workdir={home / "run"}']

  def run(*more):
    environment = drill.environment(home / 'host0')
    return subprocess.run(
      [*command, *more], env=environment, capture_output=True, text=True
    )

  refused = run()
  assert refused.returncode == 2
  assert 'config.checkpoint.reshard=true to go on' in refused.stdout
  done = run('--config.checkpoint.reshard=true')
  assert done.returncode == 0, done.stdout + done.stderr
  assert 'resumed after iteration 2' in done.stdout
  assert 'hosts 2 is now 1' in ' '.join(done.stdout.split())
  assert 'fine-tuning' not in done.stdout  # what the two made is taken over
