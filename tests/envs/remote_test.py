"""An environment elsewhere acts as here; what it does there stays there."""

import contextlib
import functools
import importlib.util
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

from agentrl_jax import envs, types
from agentrl_jax.envs import flight, pool, remote, scripted

KINDS = [
  'process',
  pytest.param(
    'ray',
    marks=[
      pytest.mark.slow,
      pytest.mark.skipif(
        importlib.util.find_spec('ray') is None, reason='ray is not installed'
      ),
    ],
  ),
]
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Naughty:
  """Does where it lives what the text of an action says."""

  system, tools = 'be good', ()

  def __init__(self, fault=''):
    if fault:
      raise ValueError(fault)
    self._said = ''

  def reset(self, task, *, sample=0):
    return types.Observation((types.Message('user', f'{task.name} {sample}'),))

  def step(self, action):
    self._said = action.text
    info = {'pid': os.getpid(), 'jax': 'jax' in sys.modules}
    if action.text == 'raise':
      raise KeyError('lost')
    if action.text == 'exit':
      os._exit(3)
    if action.text == 'crash':
      os.kill(os.getpid(), signal.SIGSEGV)
    if action.text == 'hang':
      time.sleep(600)
    if action.text == 'unpicklable':
      info['lock'] = threading.Lock()
    return types.StepResult(types.Observation(()), 0.0, False, None, info)

  def state_key(self):
    return self._said

  def close(self):
    if self._said == 'clingy':
      time.sleep(600)


def say(text):
  return types.Action(text)


@contextlib.contextmanager
def naughty(kind='process', deadline_s=30.0):
  """Yields one that was reset."""
  env = remote.Maker(Naughty, kind, deadline_s)()
  try:
    env.reset(TASK)
    yield env
  finally:
    env.close()


TASK = types.Task('naughty', 'train', 0, {})


def gone(pid, within_s=10.0):
  """Whether a process ends in time."""
  end = time.monotonic() + within_s
  while time.monotonic() < end:
    try:
      state = pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')')[-1]
    except OSError:
      return True
    if state.split()[0] == 'Z':
      return True
    time.sleep(0.02)
  return False


@pytest.mark.parametrize('kind', KINDS)
def test_an_episode_elsewhere_is_that_of_here(kind):
  task = envs.tasks('flight', 'train', legs=1)[0]
  make_env = functools.partial(envs.make, 'flight')

  def played(env):
    keys = []

    class Listening:
      oracle = flight.FlightEnv.oracle(task)

      def act(self, messages):
        keys.append(env.state_key())
        return self.oracle.act(messages)

    return scripted.play(env, task, Listening()), keys

  there = played(remote.Maker(make_env, kind, 30.0)())
  assert there == played(make_env())
  assert there[0][1] == 1.0 and len(there[1]) > 2


@pytest.mark.parametrize('kind', KINDS)
def test_snapshots_cross(kind):
  task = envs.tasks('flight', 'train', legs=1)[0]
  make_env = functools.partial(envs.make, 'flight')
  first, second = (remote.Maker(make_env, kind, 30.0)() for _ in range(2))
  try:
    agent = flight.FlightEnv.oracle(task)
    action = agent.act(first.reset(task).messages)
    snapshot, key = first.snapshot(), first.state_key()
    result = first.step(action)
    second.restore(snapshot)
    assert (second.state_key(), second.system) == (key, first.system)
    assert second.step(action) == result
  finally:
    first.close()
    second.close()


@pytest.mark.parametrize('kind', KINDS)
def test_what_it_raises_comes_back_and_the_episode_may_go_on(kind):
  with naughty(kind) as env:
    with pytest.raises(remote.RemoteError, match="KeyError: 'lost'"):
      env.step(say('raise'))
    with pytest.raises(remote.RemoteError, match='pickle'):
      env.step(say('unpicklable'))
    assert env.step(say('hello')).info['pid'] != os.getpid()
    assert env.state_key() == 'hello'


@pytest.mark.parametrize('kind', KINDS)
def test_a_fault_of_its_making_is_told(kind):
  make = functools.partial(Naughty, 'no such world')
  with pytest.raises(remote.RemoteError, match='no such world'):
    remote.Maker(make, kind, 30.0)().reset(TASK)


@pytest.mark.parametrize(
  ('text', 'how'), [('exit', 'exit status 3'), ('crash', 'signal SIGSEGV')]
)
def test_a_crash_takes_nothing_with_it(text, how):
  with naughty() as env, naughty() as other:
    with pytest.raises(remote.RemoteError, match=how):
      env.step(say(text))
    with pytest.raises(remote.RemoteError, match='ended'):
      env.step(say('again'))
    assert other.step(say('hello')).info['pid']


def dies():
  os._exit(3)


def dawdles():
  time.sleep(600)


def test_one_that_cannot_be_made_says_how_its_process_ended():
  with pytest.raises(remote.RemoteError, match='exit status 3'):
    remote.Process(dies, 30.0)
  with pytest.raises(TimeoutError, match='no answer within 1 s'):
    remote.Process(dawdles, 1.0)


def test_each_lives_in_a_clean_process_of_its_own():
  with naughty() as env, naughty() as other:
    infos = [e.step(say('hello')).info for e in (env, other)]
  assert len({os.getpid(), *(info['pid'] for info in infos)}) == 3
  assert not any(info['jax'] for info in infos)
  assert all(gone(info['pid']) for info in infos)


def test_what_hangs_is_killed_and_the_pool_calls_it_late():
  calls = pool.Pool(1, deadline_s=0.5)
  with naughty(deadline_s=0.5) as env:
    pid = env.step(say('hello')).info['pid']
    calls.submit('key', env.step, say('hang'))
    ((key, failure),) = calls.ready()
    assert key == 'key'
    assert failure.stop_reason is types.StopReason.ENV_TIMEOUT
    assert gone(pid)
  calls.close()


def test_one_that_does_not_want_to_close_is_killed():
  with naughty() as env:
    pid = env.step(say('clingy')).info['pid']
  assert gone(pid, 0.5)
  env.close()  # twice does no harm


def test_none_is_left_when_the_run_is_killed():
  code = f"""
import sys, time
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests' / 'envs')!r}]
import remote_test as t
if __name__ == '__main__':
  env = t.remote.Maker(t.Naughty, 'process', 30.0)()
  env.reset(t.TASK)
  print(env.step(t.say('hello')).info['pid'], flush=True)
  try:
    env.step(t.say('hang'))
  except BaseException:
    pass
"""
  run = subprocess.Popen(
    [sys.executable, '-c', code], stdout=subprocess.PIPE, text=True
  )
  pid = int(run.stdout.readline())
  run.kill()
  run.wait()
  run.stdout.close()
  assert gone(pid)


def test_what_crosses_can_be_pickled():
  maker = remote.Maker(functools.partial(envs.make, 'flight'), 'process', 1.0)
  assert pickle.loads(pickle.dumps(maker._make_env))() is not None
