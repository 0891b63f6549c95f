"""Failures are data, deadlines hold, late results go nowhere."""

import threading
import time

import pytest

from agentrl_jax import types
from agentrl_jax.envs import pool


def drain(p, count, seconds=5.0):
  """Takes `count` results, as a dictionary by key."""
  done, end = {}, time.monotonic() + seconds
  while len(done) < count and time.monotonic() < end:
    done.update(p.ready(timeout=0.5))
  return done


@pytest.fixture(params=[0, 1, 4])
def made(request):
  p = pool.Pool(request.param, deadline_s=5.0)
  yield p
  p.close()


def test_results_come_with_their_keys(made):
  for key in range(50):
    made.submit(key, lambda x: x * x, key)
  assert drain(made, 50) == {key: key * key for key in range(50)}
  assert made.num_pending == 0
  assert made.ready() == []  # nothing pending: no wait


def test_an_exception_is_data(made):
  made.submit('bad', lambda: 1 // 0)
  made.submit('good', lambda: 1)
  done = drain(made, 2)
  assert done['good'] == 1
  failure = done['bad']
  assert failure.stop_reason is types.StopReason.ENV_ERROR
  assert failure.message.startswith('ZeroDivisionError')
  assert '1 // 0' in failure.details


def test_ready_without_block_returns_at_once():
  p = pool.Pool(1)
  gate = threading.Event()
  p.submit('slow', gate.wait)
  assert p.ready(block=False) == []
  assert p.ready(timeout=0.01) == []
  gate.set()
  assert p.ready() == [('slow', True)]
  p.close()


def test_slow_calls_do_not_hold_up_the_others():
  p = pool.Pool(2)
  gate = threading.Event()
  p.submit('slow', gate.wait)
  for key in range(5):
    p.submit(key, int)
  assert set(drain(p, 5)) == set(range(5))
  gate.set()
  assert set(drain(p, 1)) == {'slow'}
  p.close()


def test_a_late_result_is_dropped_and_the_thread_replaced():
  p = pool.Pool(1, deadline_s=0.05)
  gate, left = threading.Event(), threading.Event()

  def hang():
    gate.wait(5.0)
    left.set()
    return 'stale'

  p.submit('key', hang)
  ((key, failure),) = p.ready()
  assert key == 'key'
  assert failure.stop_reason is types.StopReason.ENV_TIMEOUT
  assert p.num_replaced == 1
  gate.set()
  left.wait(5.0)
  p.submit('key', lambda: 'fresh')  # same key, after the late result came
  assert p.ready() == [('key', 'fresh')]
  assert p.ready() == []
  p.close()


def test_waiting_in_the_queue_does_not_count_against_the_deadline():
  p = pool.Pool(1, deadline_s=0.2)
  for key in range(6):
    p.submit(key, time.sleep, 0.06)
  assert list(drain(p, 6).values()) == [None] * 6
  p.close()


def test_every_thread_hanging_is_survived():
  p = pool.Pool(2, deadline_s=0.05)
  gate = threading.Event()
  for key in 'abcd':
    p.submit(key, gate.wait)
  p.submit('last', lambda: 'done')
  done = drain(p, 5)
  assert done.pop('last') == 'done'
  assert {f.stop_reason for f in done.values()} == {
    types.StopReason.ENV_TIMEOUT
  }
  gate.set()
  p.close()


def test_a_slow_inline_call_is_a_timeout_too():
  p = pool.Pool(0, deadline_s=0.01)
  p.submit('slow', time.sleep, 0.02)
  ((_, failure),) = p.ready()
  assert failure.stop_reason is types.StopReason.ENV_TIMEOUT


def test_exit_in_a_tool_does_not_kill_the_worker():
  p = pool.Pool(1)
  p.submit('exit', exit)
  p.submit('next', lambda: 1)
  done = drain(p, 2)
  assert done['exit'].stop_reason is types.StopReason.ENV_ERROR
  assert done['next'] == 1
  p.close()


class Unspeakable(BaseException):
  """Kills the thread that wants to say what it was."""

  def __repr__(self):
    raise self


def die():
  time.sleep(0.2)  # meanwhile somebody waits
  raise Unspeakable


@pytest.mark.filterwarnings(
  'ignore::pytest.PytestUnhandledThreadExceptionWarning'
)
def test_a_dead_thread_is_replaced_within_seconds_and_its_call_fails():
  p = pool.Pool(1, deadline_s=8.0)
  start = time.monotonic()
  p.submit('dies', die)
  p.submit('next', lambda: 1)  # waits for a thread that no longer is
  done = dict(p.ready())
  done |= drain(p, 2 - len(done))
  assert time.monotonic() - start < 5.0
  assert done['dies'].stop_reason is types.StopReason.ENV_ERROR
  assert 'its thread died' in done['dies'].message
  assert done['next'] == 1 and p.num_replaced == 1
  p.close()


@pytest.mark.parametrize('workers', [0, 1])
def test_a_call_may_have_less_time_than_the_others(workers):
  p = pool.Pool(workers, deadline_s=60.0)
  p.submit('short', time.sleep, 0.1, within_s=0.02)
  p.submit('long', time.sleep, 0.1)
  done = drain(p, 2)
  assert done['short'].stop_reason is types.StopReason.ENV_TIMEOUT
  assert done['short'].message == 'no result within 0.02 s'
  assert done['long'] is None
  p.close()


def test_more_time_than_the_pools_is_not_given():
  p = pool.Pool(0, deadline_s=0.01)
  p.submit('key', time.sleep, 0.02, within_s=9.0)
  ((_, failure),) = p.ready()
  assert failure.message == 'no result within 0.01 s'


def test_close_ends_the_threads():
  before = set(threading.enumerate())
  p = pool.Pool(3)
  mine = set(threading.enumerate()) - before
  assert len(mine) == 3
  p.close()
  p.close()
  for thread in mine:
    thread.join(2.0)
    assert not thread.is_alive()
  with pytest.raises(RuntimeError, match='closed'):
    p.submit(0, int)


@pytest.mark.parametrize('options', [(-1, 1.0), (1, 0.0), (1, float('nan'))])
def test_bad_options_are_errors(options):
  with pytest.raises(ValueError, match='num_workers'):
    pool.Pool(*options)


def test_a_thread_given_up_twice_is_replaced_once():
  given = pool.Pool(1)
  (worker,) = given._workers
  given._replace(worker)
  given._replace(worker)
  assert given.num_replaced == 1 and worker not in given._workers
  # It waits for a call and must hand the one that it gets to its successor.
  for number in range(4):
    given.submit(number, lambda: 'done')
  taken = []
  while len(taken) < 4:
    taken += given.ready(timeout=5)
  assert dict(taken) == dict.fromkeys(range(4), 'done')
  given.close()
