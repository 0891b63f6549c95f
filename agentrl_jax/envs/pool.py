"""How do slow environments leave the device busy? A thread pool with deadlines.

The rollout loop submits calls and takes whatever is ready. A raised exception
and a missed deadline are data (`Failure`), never a crash and never the result
of another call; so is the death of the thread itself. Calls of some 50 µs are
better run inline (`num_workers=0`): there, handing over to a thread costs more
than the call.
"""

import collections
import dataclasses
import itertools
import math
import queue
import threading
import time
import traceback
from collections.abc import Callable, Hashable
from typing import Any

from agentrl_jax import types

# Seconds between looks for threads that died, while results are waited for.
_LOOK_S = 1.0


@dataclasses.dataclass(frozen=True)
class Failure:
  """A call that gave no result: ENV_ERROR or ENV_TIMEOUT, and why."""

  stop_reason: types.StopReason
  message: str
  details: str = ''


@dataclasses.dataclass
class _Call:
  key: Hashable
  function: Callable
  arguments: tuple
  deadline_s: float
  started: float | None = None
  worker: '_Worker | None' = None


def _run(call: _Call) -> Any:
  """Calls; an exception becomes a `Failure`."""
  try:
    return call.function(*call.arguments)
  except (Exception, SystemExit) as error:  # noqa: BLE001 (that is data)
    message = f'{type(error).__name__}: {error}'
    return Failure(types.StopReason.ENV_ERROR, message, traceback.format_exc())


class Pool:
  """Runs calls, each under a deadline that starts when the call starts.

  After a timeout its thread may still be inside the environment: drop that
  environment without closing it.

  Args:
    num_workers: threads; 0 runs each call inside `submit`.
    deadline_s: seconds that a call may take.

  Attributes:
    num_replaced: threads that hung or died, each replaced by a fresh one.
  """

  def __init__(self, num_workers: int = 0, deadline_s: float = 60.0):
    if num_workers < 0 or not deadline_s > 0:
      raise ValueError(
        f'num_workers={num_workers} must be >= 0 and deadline_s={deadline_s} '
        'above 0'
      )
    self.num_replaced = 0
    self._deadline_s = deadline_s
    self._tickets = itertools.count()
    self._pending: dict[int, _Call] = {}
    self._inline = collections.deque()
    self._calls = queue.SimpleQueue()
    self._results = queue.SimpleQueue()
    self._workers = [
      _Worker(self._calls, self._results) for _ in range(num_workers)
    ]
    self._closed = False

  @property
  def num_pending(self) -> int:
    """Calls whose result was not taken yet."""
    return len(self._pending) + len(self._inline)

  def submit(
    self,
    key: Hashable,
    function: Callable,
    *arguments: Any,
    within_s: float = math.inf,
  ) -> None:
    """Starts `function(*arguments)`; `ready` gives its result with `key`.

    Args:
      key: comes back with the result.
      function, arguments: the call.
      within_s: seconds that this call may take, if fewer than `deadline_s`.
    """
    if self._closed:
      raise RuntimeError('the pool is closed')
    limit = min(self._deadline_s, within_s)
    call = _Call(key, function, arguments, limit)
    if self._workers:
      ticket = next(self._tickets)
      self._pending[ticket] = call
      self._calls.put((ticket, call))
      return
    start = time.monotonic()
    result = _run(call)
    if time.monotonic() - start > limit:
      result = _late(call)
    self._inline.append((key, result))

  def ready(
    self, block: bool = True, timeout: float | None = None
  ) -> list[tuple[Any, Any]]:
    """Takes all results that are there.

    Args:
      block: waits for at least one, unless nothing is pending.
      timeout: seconds to wait at most, None for as long as deadlines allow.

    Returns:
      Pairs of key and result or `Failure`, in order of completion.
    """
    done = list(self._inline)
    self._inline.clear()
    end = None if timeout is None else time.monotonic() + timeout
    done += self._take(0.0)
    while block and not done and self._pending:
      now = time.monotonic()
      if end is not None and now >= end:
        break
      done += self._take(self._wait(now, end))
    return done

  def close(self) -> None:
    """Stops the workers; results not taken are lost. May be called twice."""
    self._closed = True
    for _ in self._workers:
      self._calls.put(None)
    self._workers, self._pending = [], {}
    self._inline.clear()

  def _wait(self, now: float, end: float | None) -> float:
    """Seconds until the next deadline or the end of the caller's patience."""
    calls = list(self._pending.values())
    waits = [
      call.started + call.deadline_s - now
      for call in calls
      if call.started is not None
    ]
    waits.append(min(call.deadline_s for call in calls))  # may start meanwhile
    waits.append(_LOOK_S)
    if end is not None:
      waits.append(end - now)
    return max(min(waits), 0.0) + 1e-4

  def _take(self, wait: float) -> list[tuple[Any, Any]]:
    """Results within `wait` seconds, then calls that are overdue or lost."""
    # Looked for first: what a thread delivered before it died still counts.
    dead = {worker for worker in self._workers if not worker.is_alive}
    done = []
    try:
      ticket, result = self._results.get(wait > 0, wait or None)
      while True:
        call = self._pending.pop(ticket, None)
        if call is not None:  # else it is the late result of a lost call
          done.append((call.key, result))
        ticket, result = self._results.get_nowait()
    except queue.Empty:
      pass
    now = time.monotonic()
    for ticket, call in list(self._pending.items()):
      begun = call.started
      if call.worker in dead:
        del self._pending[ticket]
        done.append((call.key, _lost()))
      elif begun is not None and now - begun > call.deadline_s:
        del self._pending[ticket]
        self._replace(call.worker)
        done.append((call.key, _late(call)))
    for worker in dead:
      self._replace(worker)
    return done

  def _replace(self, worker: '_Worker') -> None:
    """Puts a fresh thread in the place of one that hangs or died."""
    worker.abandoned = True
    if worker not in self._workers:
      return  # given up just before it took this call: replaced then
    self._workers.remove(worker)
    self._workers.append(_Worker(self._calls, self._results))
    self.num_replaced += 1


def _late(call: _Call) -> Failure:
  return Failure(
    types.StopReason.ENV_TIMEOUT, f'no result within {call.deadline_s:.4g} s'
  )


def _lost() -> Failure:
  return Failure(types.StopReason.ENV_ERROR, 'its thread died; replaced')


class _Worker:
  """One daemon thread; a hung one never keeps the process alive."""

  def __init__(self, calls: queue.SimpleQueue, results: queue.SimpleQueue):
    self.abandoned = False
    self._calls, self._results = calls, results
    self._thread = threading.Thread(target=self._loop, daemon=True)
    self._thread.start()

  @property
  def is_alive(self) -> bool:
    return self._thread.is_alive()

  def _loop(self) -> None:
    while not self.abandoned:
      item = self._calls.get()
      if item is None:
        return
      if self.abandoned:  # while it waited
        self._calls.put(item)
        return
      ticket, call = item
      call.worker = self
      call.started = time.monotonic()
      try:
        result = _run(call)
      except BaseException as error:  # noqa: BLE001 (sys.exit in a tool)
        result = Failure(types.StopReason.ENV_ERROR, repr(error))
      self._results.put((ticket, result))
