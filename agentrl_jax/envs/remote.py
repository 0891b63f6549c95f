"""How does an environment live outside of this process?

In a process of its own, made for one episode: it may hold the interpreter lock,
leak, crash or hang, and neither the run nor another episode notices. What hangs
is killed, which a thread never can be. Or in an actor of Ray, on any machine of
its cluster. A turn is one message there and one back, so that nothing is gained
where a step takes microseconds.

The waiting is done by the threads of `pool.Pool`: as many episodes work side by
side as it has threads.
"""

import importlib.util
import multiprocessing
import os
import pickle
import select
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing import connection
from typing import Any, Protocol

from agentrl_jax import types

_GRACE_S = 1.0  # until a process that was told to end is killed


class RemoteError(RuntimeError):
  """What an environment raised where it lives, or how its process ended."""


class Channel(Protocol):
  """The way to one `Server` elsewhere."""

  def call(self, method: str, *arguments: Any) -> Any:
    """Returns what the server's method returns.

    Raises:
      RemoteError: it raised, or its process is gone.
      TimeoutError: it took too long and was killed.
    """
    ...

  def close(self) -> None:
    """Ends the server; may be called twice."""
    ...


class Server:
  """One environment where it lives, a message a turn.

  Args:
    make_env: makes it.
  """

  def __init__(self, make_env: Callable[[], Any]):
    self._env = make_env()

  def reset(self, task: types.Task, sample: int) -> tuple:
    """Returns (observation, system prompt, tools, state key)."""
    env = self._env
    observation = env.reset(task, sample=sample)
    return observation, env.system, env.tools, env.state_key()

  def step(self, action: types.Action) -> tuple:
    """Returns (result, state key; None at the end)."""
    result = self._env.step(action)
    return result, None if result.done else self._env.state_key()

  def snapshot(self) -> Any:
    """Returns the environment's own snapshot."""
    return self._env.snapshot()

  def restore(self, snapshot: Any) -> tuple:
    """Returns (system prompt, tools, state key) of the state restored."""
    env = self._env
    env.restore(snapshot)
    return env.system, env.tools, env.state_key()

  def close(self) -> None:
    """Closes the environment."""
    self._env.close()


class RemoteEnv:
  """An environment as the rollout loop sees it, at the end of a channel.

  Args:
    channel: to its `Server`.
  """

  def __init__(self, channel: Channel):
    self._channel = channel
    self.system, self.tools = '', ()
    self._state_key = None

  def reset(self, task: types.Task, *, sample: int = 0) -> types.Observation:
    """Starts the episode there."""
    answer = self._channel.call('reset', task, sample)
    observation, self.system, self.tools, self._state_key = answer
    return observation

  def step(self, action: types.Action) -> types.StepResult:
    """Executes one turn there."""
    result, self._state_key = self._channel.call('step', action)
    return result

  def state_key(self) -> str | None:
    """The key that came with the last answer."""
    return self._state_key

  def snapshot(self) -> Any:
    """Returns the state there; it must be picklable."""
    return self._channel.call('snapshot')

  def restore(self, snapshot: Any) -> None:
    """Continues there from a snapshot."""
    answer = self._channel.call('restore', snapshot)
    self.system, self.tools, self._state_key = answer

  def close(self) -> None:
    """Closes the environment and ends what it lived in."""
    self._channel.close()


class Process:
  """A channel to a process of its own, forked from a clean one.

  The process that is forked has loaded the environments and nothing else: no
  threads, no device. It ends with this one, even if that is killed.

  Args:
    make_env: makes the environment there; picklable.
    deadline_s: seconds that a call may take before the process is killed.
  """

  def __init__(self, make_env: Callable[[], Any], deadline_s: float):
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(['__main__', 'agentrl_jax.envs'])
    self._deadline_s = deadline_s
    self._pipe, there = context.Pipe()
    self._process = context.Process(
      target=_serve, args=(there, make_env), daemon=True
    )
    self._process.start()
    there.close()
    try:
      self._receive()
    except BaseException:
      self._kill()
      raise

  def call(self, method: str, *arguments: Any) -> Any:
    """Calls a method of the server there; see `Channel`."""
    if self._pipe.closed:
      raise RemoteError('the process of the environment ended before')
    try:
      self._pipe.send((method, arguments))
    except (BrokenPipeError, ConnectionResetError):
      raise self._gone() from None
    return self._receive()

  def close(self) -> None:
    """Closes the environment; kills the process if that takes too long."""
    if self._pipe.closed:
      return
    try:
      self._pipe.send(('close', ()))
      self._pipe.poll(_GRACE_S)
    except OSError:
      pass  # it is gone already
    self._kill()

  def _receive(self) -> Any:
    try:
      if not self._pipe.poll(self._deadline_s):
        self._kill()
        raise TimeoutError(f'no answer within {self._deadline_s:g} s; killed')
      failed, value = self._pipe.recv()
    except (EOFError, ConnectionResetError):
      raise self._gone() from None
    if failed:
      message, trace = value
      error = RemoteError(message)
      error.add_note(trace)
      raise error
    return value

  def _gone(self) -> RemoteError:
    self._process.join(_GRACE_S)
    code = self._process.exitcode
    self._kill()
    how = f'exit status {code}'
    if code is not None and code < 0:
      how = f'signal {signal.Signals(-code).name}'
    return RemoteError(f'the process of the environment ended: {how}')

  def _kill(self) -> None:
    if self._pipe.closed:
      return
    self._pipe.close()
    self._process.kill()
    self._process.join()
    self._process.close()


def _serve(pipe: connection.Connection, make_env: Callable[[], Any]) -> None:
  """Answers messages until the other end is closed."""
  _end_with(pipe)
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides what to close
  server = _answer(pipe, Server, (make_env,), show=False)
  while server is not None:
    try:
      method, arguments = pipe.recv()
    except (EOFError, OSError):
      return
    _answer(pipe, getattr(server, method), arguments)
    if method == 'close':
      return


def _answer(pipe, function, arguments, show=True) -> Any:
  """Sends (failed, result); returns the result if there is one."""
  try:
    result = function(*arguments)
    message = pickle.dumps((False, result if show else None))
  except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it raises)
    text = f'{type(error).__name__}: {error}'
    pipe.send((True, (text, traceback.format_exc())))
    return None
  pipe.send_bytes(message)
  return result


def _end_with(pipe: connection.Connection) -> None:
  """Ends this process, whatever it does, when the other end is closed."""

  def watch():
    poll = select.poll()
    poll.register(pipe.fileno(), 0)  # a hang-up is told unasked
    poll.poll()
    os._exit(1)

  threading.Thread(target=watch, daemon=True).start()


class Actor:
  """A channel to an actor of Ray; `ray` must be installed.

  It joins the cluster that `RAY_ADDRESS` names, or one of this machine alone.
  The package must be installed where actors run.

  Args:
    make_env: makes the environment there; picklable.
    deadline_s: seconds that a call may take before the actor is killed.
  """

  def __init__(self, make_env: Callable[[], Any], deadline_s: float):
    import ray

    if not ray.is_initialized():
      ray.init(log_to_driver=False, include_dashboard=False)
    self._ray, self._deadline_s = ray, deadline_s
    remote = ray.remote(num_cpus=0, max_restarts=0)(Server)
    self._actor = remote.remote(make_env)

  def call(self, method: str, *arguments: Any) -> Any:
    """Calls a method of the server there; see `Channel`."""
    errors = self._ray.exceptions
    if self._actor is None:
      raise RemoteError('the actor of the environment is gone')
    try:
      answer = getattr(self._actor, method).remote(*arguments)
      return self._ray.get(answer, timeout=self._deadline_s)
    except errors.GetTimeoutError:
      self._kill()
      raise TimeoutError(
        f'no answer within {self._deadline_s:g} s; killed'
      ) from None
    except errors.RayTaskError as error:
      cause = error.cause
      text = f'{type(cause).__name__}: {cause}'
      raise RemoteError(text) from error
    except errors.RayActorError as error:
      self._kill()
      raise RemoteError(
        f'the actor of the environment ended: {error}'
      ) from None

  def close(self) -> None:
    """Closes the environment and ends the actor."""
    if self._actor is None:
      return
    try:
      closed = self._actor.close.remote()
      self._ray.get(closed, timeout=_GRACE_S)
    except self._ray.exceptions.RayError:
      pass  # gone, or too slow to close
    self._kill()

  def _kill(self) -> None:
    if self._actor is not None:
      self._ray.kill(self._actor)
      self._actor = None


def has_ray() -> bool:
  """Says whether `ray` is installed, without loading it."""
  return importlib.util.find_spec('ray') is not None


CHANNELS = {'process': Process, 'ray': Actor}


class Maker:
  """Makes environments where a kind of channel leads.

  Args:
    make_env: makes an environment; picklable.
    kind: a key of `CHANNELS`.
    deadline_s: of one call, seconds; what takes longer is killed soon after.
  """

  def __init__(self, make_env: Callable[[], Any], kind: str, deadline_s: float):
    self._make_env, self._deadline_s = make_env, deadline_s
    self._channel = CHANNELS[kind]

  def __call__(self) -> RemoteEnv:
    """Makes one, in a process or actor of its own."""
    # The pool gives a call up first: that is told apart from an error.
    deadline_s = self._deadline_s + _GRACE_S
    return RemoteEnv(self._channel(self._make_env, deadline_s))
