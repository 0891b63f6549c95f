"""One lane of the sampler: its slots, its queue, and one call in flight.

A lane decides when to extend and when to decode; what a row draws never depends
on that. At most one call is in flight: `launch` hands it to a thread, `finish`
waits for it and reads which turns have ended. Programs that one thread starts
run one after the other: two lanes need two threads to compute side by side.
"""

import collections
import dataclasses
import math
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np

from agentrl_jax.sampler import decode as decode_lib
from agentrl_jax.sampler import prompts


@dataclasses.dataclass(frozen=True)
class Completion:
  """Tokens of a finished turn, end token included when it was sampled.

  Where a turn was withdrawn before its end, `whole` is False and the tokens are
  those that it had.

  `routes` [n, L, k] are the experts that the tokens in the cache used, those of
  the whole context but for the last one sampled; None where none are recorded.
  """

  slot: int
  tokens: tuple[int, ...]
  logprobs: tuple[float, ...]
  stopped: bool  # by an end token; otherwise by budget or a full context
  version: int = -1
  routes: np.ndarray | None = None
  whole: bool = True


@dataclasses.dataclass
class Request:
  """A queued turn; `done` counts its tokens that are in the cache."""

  slot: int
  tokens: Sequence[int]
  words: np.ndarray
  temperature: float
  budget: int
  done: int = 0


@dataclasses.dataclass
class Counters:
  """What the device did."""

  decode_calls: int = 0
  decode_steps: int = 0
  slot_steps: int = 0
  live_slot_steps: int = 0
  extend_calls: int = 0
  extend_tokens: int = 0
  forked_tokens: int = 0  # of prompts that were copied instead
  sampled_tokens: int = 0
  published_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class Shape:
  """Rows and tokens a row of an extend call, steps of a decode call.

  `extend_steps` says how many decode steps an extend call takes as long as.
  """

  extend_rows: int
  extend_chunk: int
  decode_chunk: int
  extend_steps: float


class Program:
  """A jitted function that threads never compile twice."""

  def __init__(self, function: Callable):
    self.compiled = False
    self._function = function
    self._compiling = threading.Lock()

  def __call__(self, *arguments: Any) -> Any:
    """Calls it; the first call holds the others back."""
    if self.compiled:
      return self._function(*arguments)
    with self._compiling:
      result = self._function(*arguments)
      self.compiled = True
    return result


@dataclasses.dataclass(frozen=True)
class Programs:
  """The programs, which all lanes share."""

  extend: Program
  decode: Program
  stop_ids: tuple[int, ...]
  shape: Shape
  routes: Program | None = None  # of one slot, where the cache has any
  fork: Program | None = None  # None: each slot reads its own prompt


@dataclasses.dataclass(frozen=True)
class _Result:
  """What a call left on the device, and what the host reads of it."""

  state: decode_lib.State
  live: np.ndarray
  count: np.ndarray
  length: np.ndarray
  tokens: np.ndarray
  logprobs: np.ndarray
  used: np.ndarray | None  # counters of a decode call
  routes: dict[int, np.ndarray]  # by slot, of turns that ended


class Lane:
  """Slots 0..width-1 with a state of their own on the device.

  Args:
    programs: shared by the lanes.
    state: empty slots.
    width: their number.
    thread: runs the calls, one at a time.
  """

  def __init__(
    self,
    programs: Programs,
    state: decode_lib.State,
    width: int,
    thread: futures.ThreadPoolExecutor,
  ):
    self.free = list(range(width))[::-1]
    self.length = np.zeros(width, np.int64)
    self.queue: collections.deque[Request] = collections.deque()
    self.call: futures.Future | None = None  # in flight
    self._programs = programs
    self._state = state
    self._width = width
    self._thread = thread
    self._in_turn = np.zeros(width, bool)  # being drawn
    self._idle = 0  # slot-steps that turns have waited for an extend call
    self._prompts = prompts.Prompts()

  @property
  def busy(self) -> bool:
    """Whether turns are queued or being drawn."""
    return bool(self.queue or self._prompts.waiting or self._in_turn.any())

  @property
  def is_empty(self) -> bool:
    """Whether no slot that is taken holds anything."""
    taken = set(range(self._width)) - set(self.free)
    return not self.busy and not any(self.length[slot] for slot in taken)

  @property
  def _demand(self) -> int:
    """Turns that wait to begin."""
    return len(self.queue) + len(self._prompts.waiting)

  @property
  def _patience(self) -> float:
    """Slot-steps that turns still wait for others to share an extend call.

    Those that wait idle no more than the call would make the live ones idle:
    so its time is at most twice that of the best plan, whatever comes.
    """
    price = self._programs.shape.extend_steps * int(self._in_turn.sum())
    return price - self._idle

  def add(self, request: Request) -> None:
    """Queues a turn, or lets it wait for a prompt that another slot reads."""
    fresh = self.length[request.slot] == 0 and self._programs.fork is not None
    if not (fresh and self._prompts.holds(request)):
      for moved in self._prompts.overwrite(request.slot):
        self.add(moved)
    if not (fresh and self._prompts.follows(request)):
      self.queue.append(request)

  def forget_prompts(self) -> None:
    """Copies no prompt that is held now: the weights become others."""
    self._prompts = prompts.Prompts()

  def launch(self, params: Any, counters: Counters, expecting: bool) -> None:
    """Starts the next call, if none is in flight and there is work."""
    if self.call is not None:
      return
    rows = self._programs.shape.extend_rows
    batch = limits = None
    if self.queue and (self._demand >= rows or self._patience <= 0):
      batch = self._extension(counters)
      self._idle = 0
    forks = self._forks(counters, batch is not None)
    num_live = int(self._in_turn.sum())
    # Contexts that fill another extend call go first: they would wait idle.
    if num_live and self._demand < rows:
      # Return when the turns that ended, with those queued, fill an extend.
      wanted = max(rows - self._demand, 1)
      stop_below = 1 if num_live <= wanted else num_live - wanted + 1
      steps = 1 if expecting else self._programs.shape.decode_chunk
      if self.queue:
        steps = min(steps, math.ceil(self._patience / self._demand))
      limits = (np.int32(steps), np.int32(stop_below))
    if not (batch is forks is limits is None):
      self.call = self._thread.submit(
        _run,
        self._programs,
        params,
        self._state,
        batch,
        forks,
        limits,
        self._in_turn.copy(),
      )

  def finish(self, counters: Counters) -> list[Completion]:
    """Waits for the call in flight; returns what ended, in slot order."""
    call, self.call = self.call, None
    result = call.result()
    self._state = result.state
    if result.used is not None:
      counters.decode_calls += 1
      counters.decode_steps += int(result.used[0])
      self._idle += int(result.used[0]) * self._demand
      counters.slot_steps += int(result.used[0]) * self._width
      counters.live_slot_steps += int(result.used[1])
    done = []
    for slot in np.flatnonzero(self._in_turn & ~result.live).tolist():
      n = int(result.count[slot])
      self._in_turn[slot] = False
      self.length[slot] = result.length[slot]
      ids = tuple(result.tokens[slot, :n].tolist())
      counters.sampled_tokens += n
      done.append(
        Completion(
          slot=slot,
          tokens=ids,
          logprobs=tuple(result.logprobs[slot, :n].tolist()),
          stopped=ids[-1] in self._programs.stop_ids,
          routes=result.routes.get(slot),
        )
      )
    return done

  def withdraw(self, counters: Counters) -> list[Completion]:
    """Forgets every context and request between two calls; slots stay taken.

    Returns:
      Turns that ended by themselves, then what was drawn of the others.
    """
    done = [] if self.call is None else self.finish(counters)
    state = self._state
    drawn = jax.device_get((state.count, state.tokens, state.logprobs))
    for slot in np.flatnonzero(self._in_turn).tolist():
      count, tokens, logprobs = (x[slot] for x in drawn)
      ids = tuple(tokens[:count].tolist())
      done.append(
        Completion(
          slot, ids, tuple(logprobs[:count].tolist()), False, whole=False
        )
      )
      counters.sampled_tokens += len(ids)
    self.length[:] = 0
    self._silence()
    return done

  def reset(self) -> None:
    """Forgets every context and request."""
    call, self.call = self.call, None
    if call is not None and call.exception() is None:
      self._state = call.result().state
    self.free = list(range(self._width))[::-1]
    self._silence()

  def _silence(self) -> None:
    """Nothing is queued and no slot is in a turn any more."""
    self.queue.clear()
    self._idle = 0
    self.forget_prompts()
    self._in_turn[:] = False
    live = self._state.live
    if live.is_deleted():
      return  # given away to a call that failed: the run ends with its error
    self._state = self._state.replace(
      live=jax.device_put(np.zeros_like(live), live.sharding)
    )

  def _extension(self, counters: Counters) -> decode_lib.Extension:
    """Takes the next chunk of each of the first contexts of the queue."""
    shape = self._programs.shape
    batch = _empty_extension(shape.extend_rows, shape.extend_chunk, self._width)
    unfinished = []
    for i in range(min(shape.extend_rows, len(self.queue))):
      item = self.queue.popleft()
      part = item.tokens[item.done : item.done + shape.extend_chunk]
      _fill(batch, i, item, len(part))
      batch.tokens[i, : len(part)] = part
      batch.start[i] = self.length[item.slot]
      item.done += len(part)
      self.length[item.slot] += len(part)
      if item.done == len(item.tokens):
        batch.final[i] = True
        self._in_turn[item.slot] = True
        self._prompts.read(item.slot)
      else:
        unfinished.append(item)
      counters.extend_tokens += len(part)
    self.queue.extendleft(reversed(unfinished))
    counters.extend_calls += 1
    return batch

  def _forks(self, counters: Counters, extends: bool) -> decode_lib.Fork | None:
    """Takes turns whose prompt another slot holds by now."""
    taken = self._prompts.take(self._programs.shape.extend_rows)
    program = self._programs.fork
    # Compiled beside the others, not when a prompt first comes twice.
    first = extends and program is not None and not program.compiled
    if not taken and not first:
      return None
    batch = _empty_fork(self._programs.shape.extend_rows, self._width)
    for i, (item, source) in enumerate(taken):
      _fill(batch, i, item, len(item.tokens))
      batch.sources[i] = source
      self.length[item.slot] = len(item.tokens)
      self._in_turn[item.slot] = True
      counters.forked_tokens += len(item.tokens)
    return batch


def _run(
  programs: Programs,
  params: Any,
  state: decode_lib.State,
  batch: decode_lib.Extension | None,
  forks: decode_lib.Fork | None,
  limits: tuple[np.int32, np.int32] | None,
  in_turn: np.ndarray,
) -> _Result:
  """Extends, forks and decodes, as given, and reads the outcome."""
  used = None
  if batch is not None:
    state = programs.extend(params, state, batch)
  if forks is not None:
    state = programs.fork(params, state, forks)
  if limits is not None:
    state, used = programs.decode(params, state, *limits)
  fetched = jax.device_get(
    (state.live, state.count, state.length, state.tokens, state.logprobs, used)
  )
  ended, routes = np.flatnonzero(in_turn & ~fetched[0]).tolist(), {}
  if state.cache.routes is not None:
    for slot in ended:
      row = programs.routes(state.cache.routes, np.int32(slot))
      routes[slot] = np.asarray(row)[: fetched[2][slot]]
  return _Result(state, *fetched, routes)


def _empty_extension(
  rows: int, width: int, num_slots: int
) -> decode_lib.Extension:
  return decode_lib.Extension(
    tokens=np.zeros((rows, width), np.int32),
    start=np.zeros(rows, np.int32),
    final=np.zeros(rows, bool),
    **_idle(rows, num_slots),
  )


def _empty_fork(rows: int, num_slots: int) -> decode_lib.Fork:
  return decode_lib.Fork(
    sources=np.zeros(rows, np.int32), **_idle(rows, num_slots)
  )


def _idle(rows: int, num_slots: int) -> dict[str, np.ndarray]:
  """What all programs that start turns are told, of rows that start none."""
  return dict(
    slots=np.full(rows, num_slots, np.int32),
    count=np.zeros(rows, np.int32),
    words=np.zeros((rows, 2), np.uint32),
    temperature=np.ones(rows, np.float32),
    budget=np.ones(rows, np.int32),
  )


def _fill(
  batch: decode_lib.Extension | decode_lib.Fork,
  row: int,
  item: Request,
  count: int,
) -> None:
  """Gives a row a turn, and how many tokens its slot gets now."""
  batch.slots[row], batch.count[row] = item.slot, count
  batch.words[row], batch.temperature[row] = item.words, item.temperature
  batch.budget[row] = item.budget
