"""One lane of the sampler: its slots, its queue, and one call in flight.

A lane decides when to extend and when to decode; what a row draws never depends
on that. At most one call is in flight: `launch` starts it, `finish` waits for
it and reads which turns have ended.
"""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from agentrl_jax.sampler import decode as decode_lib


@dataclasses.dataclass(frozen=True)
class Completion:
  """Tokens of a finished turn, end token included when it was sampled."""

  slot: int
  tokens: tuple[int, ...]
  logprobs: tuple[float, ...]
  stopped: bool  # by an end token; otherwise by budget or a full context
  version: int = -1


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
  sampled_tokens: int = 0


@dataclasses.dataclass(frozen=True)
class Shape:
  """Rows and tokens a row of an extend call, steps of a decode call."""

  extend_rows: int
  extend_chunk: int
  decode_chunk: int


@dataclasses.dataclass(frozen=True)
class Programs:
  """The jitted programs, which all lanes share."""

  extend: Callable
  decode: Callable
  stop_ids: tuple[int, ...]
  shape: Shape


class Lane:
  """Slots 0..width-1 with a state of their own on the device."""

  def __init__(self, programs: Programs, state: decode_lib.State, width: int):
    self.free = list(range(width))[::-1]
    self.length = np.zeros(width, np.int64)
    self.queue: collections.deque[Request] = collections.deque()
    self._programs = programs
    self._state = state
    self._width = width
    self._in_turn = np.zeros(width, bool)  # being drawn
    self._used: Any = None  # counters of a decode call in flight
    self._launched = False

  @property
  def busy(self) -> bool:
    return bool(self.queue) or bool(self._in_turn.any())

  @property
  def in_flight(self) -> bool:
    return self._launched

  def launch(self, params: Any, counters: Counters, expecting: bool) -> None:
    """Starts the next call, if none is in flight and there is work."""
    if self._launched:
      return
    rows = self._programs.shape.extend_rows
    if self.queue and (len(self.queue) >= rows or not self._in_turn.any()):
      self._extend(params, counters)
      self._launched = True
    num_live = int(self._in_turn.sum())
    # Contexts that fill another extend call go first: they would wait idle.
    if num_live and len(self.queue) < rows:
      # Return when the turns that ended, with those queued, fill an extend.
      wanted = max(rows - len(self.queue), 1)
      stop_below = 1 if num_live <= wanted else num_live - wanted + 1
      steps = 1 if expecting else self._programs.shape.decode_chunk
      self._state, self._used = self._programs.decode(
        params, self._state, np.int32(steps), np.int32(stop_below)
      )
      self._launched = True

  def finish(self, counters: Counters) -> list[Completion]:
    """Waits for the call in flight; returns what ended, in slot order."""
    self._launched = False
    state = self._state
    live, count, length, tokens, logprobs, used = jax.device_get(
      (
        state.live,
        state.count,
        state.length,
        state.tokens,
        state.logprobs,
        self._used,
      )
    )
    if used is not None:
      self._used = None
      counters.decode_calls += 1
      counters.decode_steps += int(used[0])
      counters.slot_steps += int(used[0]) * self._width
      counters.live_slot_steps += int(used[1])
    done = []
    for slot in np.flatnonzero(self._in_turn & ~live).tolist():
      n = int(count[slot])
      self._in_turn[slot] = False
      self.length[slot] = length[slot]
      ids = tuple(tokens[slot, :n].tolist())
      counters.sampled_tokens += n
      done.append(
        Completion(
          slot=slot,
          tokens=ids,
          logprobs=tuple(logprobs[slot, :n].tolist()),
          stopped=ids[-1] in self._programs.stop_ids,
        )
      )
    return done

  def reset(self) -> None:
    """Forgets every context and request."""
    self.free = list(range(self._width))[::-1]
    self.queue.clear()
    self._in_turn[:] = False
    self._launched, self._used = False, None
    live = self._state.live
    self._state = self._state.replace(
      live=jax.device_put(np.zeros_like(live), live.sharding)
    )

  def _extend(self, params: Any, counters: Counters) -> None:
    shape = self._programs.shape
    batch = _empty_extension(shape.extend_rows, shape.extend_chunk, self._width)
    unfinished = []
    for i in range(min(shape.extend_rows, len(self.queue))):
      item = self.queue.popleft()
      part = item.tokens[item.done : item.done + shape.extend_chunk]
      batch.slots[i] = item.slot
      batch.tokens[i, : len(part)] = part
      batch.start[i] = self.length[item.slot]
      batch.count[i] = len(part)
      batch.words[i] = item.words
      batch.temperature[i] = item.temperature
      batch.budget[i] = item.budget
      item.done += len(part)
      self.length[item.slot] += len(part)
      if item.done == len(item.tokens):
        batch.final[i] = True
        self._in_turn[item.slot] = True
      else:
        unfinished.append(item)
      counters.extend_tokens += len(part)
    self.queue.extendleft(reversed(unfinished))
    self._state = self._programs.extend(params, self._state, batch)
    counters.extend_calls += 1


def _empty_extension(
  rows: int, width: int, num_slots: int
) -> decode_lib.Extension:
  return decode_lib.Extension(
    slots=np.full(rows, num_slots, np.int32),
    tokens=np.zeros((rows, width), np.int32),
    start=np.zeros(rows, np.int32),
    count=np.zeros(rows, np.int32),
    final=np.zeros(rows, bool),
    words=np.zeros((rows, 2), np.uint32),
    temperature=np.ones(rows, np.float32),
    budget=np.ones(rows, np.int32),
  )
