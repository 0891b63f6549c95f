"""Locks a worker's parent: what it hands on, what it says of a lost host."""

import os
import signal
import subprocess
import sys
import time

import pytest

from agentrl_jax import supervisor

# As JAX 0.10 wrote them when process 1, or process 0, was killed.
LOST_ONE = """E1130 10:57:17.447342 9180 coordination_service.cc:1549] [1] Use \
error polling to propagate the following error to all tasks: UNAVAILABLE: The \
following tasks are unhealthy (stopped sending heartbeats):
1
The tasks have crashed. Check the task logs for an earlier error, or scheduler
"""
LOST_FIRST = """F1130 10:57:38.115580 9339 client.h:80] Terminating process \
because the JAX distributed service detected fatal errors. absl::Status: \
UNAVAILABLE: Failed to send RPC to coordination service. Either the leader \
task was preempted/died/restarted unexpectedly or this task is experiencing
"""

# A parent: argv = workdir, then the worker's program.
PARENT = """
import sys
from agentrl_jax import supervisor
sys.exit(supervisor.supervise(
  [sys.executable, '-c', sys.argv[2]], sys.argv[1], who='process 0 of 2'))
"""


@pytest.mark.parametrize(
  'code, errors, expected',
  [
    (-6, LOST_ONE, 'lost process 1, which stopped sending heartbeats'),
    (-6, LOST_ONE.replace('\n1\n', '\n1\n3\n'), 'lost process 1, 3, which'),
    (-6, LOST_FIRST, 'lost process 0, which coordinates the others'),
    (75, 'Gloo all-reduce failed', 'lost another process in the middle'),
    (-9, '', 'was killed by SIGKILL'),
    (7, '', 'ended with status 7; its errors stand above'),
  ],
)
def test_reasons_by_what_the_runtime_wrote(code, errors, expected):
  assert supervisor.reason(code, errors).startswith(expected)


def test_the_line_names_the_last_whole_checkpoint(tmp_path):
  said = supervisor.message('process 1', 'was killed', tmp_path)
  assert 'last checkpoint: none in' in said
  for name in ('2', '10', '11.orbax-checkpoint-tmp'):
    (tmp_path / 'checkpoints' / name).mkdir(parents=True)
  said = supervisor.message('process 1', 'was killed', tmp_path)
  assert f'last checkpoint: iteration 10 in {tmp_path}/checkpoints' in said
  assert 'start the same command again on every host' in said


def run(tmp_path, worker):
  return subprocess.run(
    [sys.executable, '-c', PARENT, str(tmp_path), worker],
    capture_output=True,
    text=True,
    timeout=300,
  )


@pytest.mark.parametrize('code', [0, 1, 2])
def test_what_a_worker_says_itself_is_handed_on(code, tmp_path):
  words = 'import sys; print("out"); print("err", file=sys.stderr)'
  done = run(tmp_path, f'{words}; sys.exit({code})')
  assert (done.returncode, done.stdout, done.stderr) == (code, 'out\n', 'err\n')


def test_a_killed_worker_is_told_of_in_one_line(tmp_path):
  (tmp_path / 'checkpoints' / '3').mkdir(parents=True)
  done = run(tmp_path, 'import os; os.kill(os.getpid(), 9)')
  assert done.returncode == supervisor.TRY_AGAIN
  (line,) = done.stderr.splitlines()
  assert line.startswith('process 0 of 2 on ')
  assert 'was killed by SIGKILL; last checkpoint: iteration 3' in line


def test_what_a_killed_worker_started_goes_with_it(tmp_path):
  worker = (
    'import os, subprocess, sys\n'
    'sleep = "import time; time.sleep(60)"\n'
    'p = subprocess.Popen([sys.executable, "-c", sleep])\n'
    'print(p.pid, flush=True)\nos.kill(os.getpid(), 9)'
  )
  begun = time.monotonic()
  done = run(tmp_path, worker)
  assert done.returncode == supervisor.TRY_AGAIN
  assert time.monotonic() - begun < 50 and not alive(int(done.stdout))


WAIT = """
import signal, sys, time
def bye(*_):
  print('asked', flush=True)
  sys.exit(143)
signal.signal(signal.SIGTERM, bye)
print('ready', flush=True)
time.sleep(60)
"""


def started(tmp_path, worker):
  process = subprocess.Popen(
    [sys.executable, '-c', PARENT, str(tmp_path), worker],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
  )
  return process, process.stdout.readline()


def test_a_signal_reaches_the_worker(tmp_path):
  process, _ = started(tmp_path, WAIT)
  process.send_signal(signal.SIGTERM)
  assert process.communicate(timeout=60)[0] == 'asked\n'
  assert process.returncode == 143


def test_a_signal_before_the_worker_listens_ends_both(tmp_path):
  worker = 'import time; print("deaf", flush=True); time.sleep(60)'
  process, _ = started(tmp_path, worker)
  process.send_signal(signal.SIGTERM)
  process.communicate(timeout=60)
  assert process.returncode == 143


@pytest.mark.skipif(sys.platform != 'linux', reason='asks the Linux kernel')
def test_a_worker_does_not_outlive_its_parent(tmp_path):
  worker = (
    'import os, time\n'
    'from agentrl_jax import supervisor\n'
    'supervisor.follow_parent(os.getppid())\n'
    'print(os.getpid(), flush=True)\n'
    'time.sleep(60)\n'
  )
  process, number = started(tmp_path, worker)
  process.kill()
  process.wait()
  end = time.monotonic() + 20
  while alive(int(number)) and time.monotonic() < end:
    time.sleep(0.02)
  assert not alive(int(number))


@pytest.mark.skipif(sys.platform != 'linux', reason='asks the Linux kernel')
def test_a_worker_whose_parent_was_gone_before_it_looked_ends():
  worker = (
    'import os\n'
    'from agentrl_jax import supervisor\n'
    'supervisor.follow_parent(os.getpid())\n'  # not its parent, surely
    'print("goes on")\n'
  )
  done = subprocess.run(
    [sys.executable, '-c', worker], stdout=subprocess.PIPE, text=True
  )
  assert (done.returncode, done.stdout) == (-signal.SIGTERM, '')


def alive(number):
  try:
    os.kill(number, 0)
  except ProcessLookupError:
    return False
  with open(f'/proc/{number}/stat') as file:
    return file.read().rsplit(')', 1)[1].split()[0] != 'Z'
