"""Locks a process's habits: one run a directory, signals, exit codes."""

import os
import signal
import subprocess
import sys

import pytest

from agentrl_jax import runtime

HOLD = """
import sys, time
from agentrl_jax import runtime
with runtime.locked(sys.argv[1]):
  print('held', flush=True)
  time.sleep(60)
"""


def test_lock_refuses_a_second_process_and_goes_with_a_killed_one(tmp_path):
  with subprocess.Popen(
    [sys.executable, '-c', HOLD, str(tmp_path / 'run')],
    stdout=subprocess.PIPE,
    text=True,
  ) as other:
    try:
      assert other.stdout.readline() == 'held\n'
      with (
        pytest.raises(runtime.InUse, match=f'process {other.pid}.*--workdir'),
        runtime.locked(tmp_path / 'run'),
      ):
        pass
    finally:
      other.kill()
  with runtime.locked(tmp_path / 'run'):
    assert (tmp_path / 'run' / '.lock').read_text() == str(os.getpid())


def test_who_holds_it_is_on_the_disk_before_the_run_goes_on(
  tmp_path, monkeypatch
):
  """A shared disk shows other hosts what was synced, not what was flushed."""
  synced = []

  def fsync(number):
    synced.append(os.pread(number, 99, 0).decode())

  monkeypatch.setattr(os, 'fsync', fsync)
  with runtime.locked(tmp_path):
    assert synced == [str(os.getpid())]


def test_lock_is_given_back(tmp_path):
  for _ in range(2):
    with (
      runtime.locked(tmp_path),
      pytest.raises(runtime.InUse),
      runtime.locked(tmp_path),
    ):
      pass
  with pytest.raises(KeyError), runtime.locked(tmp_path):
    raise KeyError
  with runtime.locked(tmp_path):
    pass


@pytest.mark.parametrize(
  'number, code', [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_stop_remembers_the_signal(number, code):
  before = signal.getsignal(number)
  stop = runtime.Stop()
  with stop.installed() as same:
    assert same is stop and not stop() and stop.exit_code == 0
    os.kill(os.getpid(), number)
    assert stop() and stop.exit_code == code
  assert signal.getsignal(number) is before


def test_a_second_interrupt_interrupts_and_a_second_term_waits():
  stop = runtime.Stop()
  with stop.installed():
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
  assert stop.exit_code == 143


def test_only_what_was_noted_is_compared(tmp_path):
  assert runtime.host_changes(tmp_path, {'cores': 2, 'hosts': 1}) == ''
  runtime.keep_host(tmp_path, {'cores': 2, 'hosts': 1})
  assert runtime.host_changes(tmp_path, {'cores': 2, 'hosts': 1}) == ''
  changes = runtime.host_changes(tmp_path, {'cores': 4, 'hosts': 2, 'new': 1})
  assert changes == 'cores 2 is now 4, hosts 1 is now 2'
  runtime.keep_host(tmp_path, {'cores': 4, 'hosts': 2})
  assert runtime.host_changes(tmp_path, {'cores': 4, 'hosts': 2}) == ''


def test_allocator_and_cores():
  program = 'from agentrl_jax import runtime; print(runtime.tune_allocator())'
  out = subprocess.run(
    [sys.executable, '-c', program], capture_output=True, text=True, check=True
  )
  assert out.stdout in ('True\n', 'False\n')
  assert runtime.num_cores() == len(os.sched_getaffinity(0))


def test_allocator_of_another_c_library(monkeypatch):
  monkeypatch.setattr(runtime.ctypes, 'CDLL', lambda _: object())
  assert runtime.tune_allocator() is False
