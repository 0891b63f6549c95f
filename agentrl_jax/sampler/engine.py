"""The host side of the sampler: slots, queues and weights by version.

The unit of a slot is a context. A conversation keeps its slot between turns, so
that a new observation only extends it. The engine never decides what a row
draws; it decides when.
"""

import collections
import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax import sharding
from agentrl_jax.models import cache as cache_lib
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.sampler import decode as decode_lib


@dataclasses.dataclass(frozen=True)
class Completion:
  """Tokens of a finished turn, end token included when it was sampled."""

  slot: int
  tokens: tuple[int, ...]
  logprobs: tuple[float, ...]
  stopped: bool  # by an end token; otherwise by budget or a full context
  version: int


@dataclasses.dataclass
class _Request:
  slot: int
  tokens: Sequence[int]
  words: np.ndarray
  temperature: float
  budget: int
  done: int = 0  # tokens already extended


@dataclasses.dataclass
class Counters:
  """What the device did, since the last `reset_counters`."""

  decode_calls: int = 0
  decode_steps: int = 0
  live_slot_steps: int = 0
  extend_calls: int = 0
  extend_tokens: int = 0
  sampled_tokens: int = 0


def checksum(tree) -> jax.Array:
  """Adds the bits of every leaf modulo 2^32: equal trees, equal sums."""

  def bits(x):
    unsigned = {2: jnp.uint16, 4: jnp.uint32}[x.dtype.itemsize]
    words = jax.lax.bitcast_convert_type(x, unsigned)
    return words.astype(jnp.uint32).sum(dtype=jnp.uint32)

  return sum(bits(x) for x in jax.tree.leaves(tree))


class Engine:
  """Draws turns for up to `num_slots` contexts side by side.

  Args:
    config: the policy's shape.
    mesh: devices; slots are split over its data axes where they divide.
    num_slots: contexts decoded together, N.
    context_length: tokens of a context at most, S.
    max_turn_tokens: sampled tokens of a turn at most, W.
    extend_rows: contexts of one extend call, P.
    extend_chunk: tokens a row of one extend call, Q.
    decode_chunk: steps of one decode call at most.
    stop_ids: tokens that end a turn.
    top_p: nucleus mass in (0, 1], 1 = all.
    top_k: 0 = all.
  """

  def __init__(
    self,
    config: ModelConfig,
    mesh: jax.sharding.Mesh,
    *,
    num_slots: int,
    context_length: int,
    max_turn_tokens: int,
    extend_rows: int,
    extend_chunk: int,
    decode_chunk: int,
    stop_ids: Sequence[int],
    top_p: float = 1.0,
    top_k: int = 0,
  ):
    self.config = config
    self.num_slots = num_slots
    self.context_length = context_length
    self.max_turn_tokens = max_turn_tokens
    self.counters = Counters()
    self.version = -1
    self._rows, self._chunk, self._steps = (
      extend_rows,
      extend_chunk,
      decode_chunk,
    )
    self._stop_ids = tuple(stop_ids)
    self._params = None
    self._free = list(range(num_slots))[::-1]
    self._queue = collections.deque()
    self._length = np.zeros(num_slots, np.int64)
    self._in_turn = np.zeros(num_slots, bool)  # drawing, device decides
    self._compile(mesh, top_p, top_k)

  def _compile(self, mesh, top_p, top_k):
    shared = dict(
      stop_ids=self._stop_ids,
      truncation=None if top_p == 1.0 and top_k == 0 else (top_p, top_k),
    )
    extend = functools.partial(decode_lib.extend, self.config, **shared)
    decode = functools.partial(decode_lib.decode, self.config, **shared)
    shape = (self.num_slots, self.context_length, self.max_turn_tokens)
    state = functools.partial(decode_lib.init, self.config, *shape)
    placement = _slot_shardings(state, mesh, self.num_slots)
    self._state = jax.jit(state, out_shardings=placement)()
    self._extend = jax.jit(extend, donate_argnums=(1,), out_shardings=placement)
    self._decode = jax.jit(
      decode,
      donate_argnums=(1,),
      out_shardings=(placement, sharding.replicated(mesh)),
    )
    self._publish = jax.jit(functools.partial(_publish, self.config))
    self._checksum = jax.jit(checksum)

  def publish(self, params: dict, version: int) -> bool:
    """Copies the learner's weights for decoding; they may then be donated.

    Contexts that are resident keep keys and values of older weights, so slots
    must be free.

    Returns:
      Whether the checksum taken before the hand-over equals that of the copy.

    Raises:
      RuntimeError: slots are in use.
    """
    if len(self._free) != self.num_slots:
      raise RuntimeError(
        'publish needs all slots free: a cache is of one policy'
      )
    self._params, before = self._publish(params)
    self.version = version
    return int(before) == int(self._checksum(self._params))

  def acquire(self) -> int | None:
    """Returns an empty slot, None if all are taken."""
    if not self._free:
      return None
    slot = self._free.pop()
    self._length[slot] = 0
    return slot

  def release(self, slot: int) -> None:
    """Frees a slot that is between turns."""
    self._free.append(slot)

  def room(self, slot: int) -> int:
    """Returns how many more tokens the slot's context can take."""
    return self.context_length - int(self._length[slot])

  def request(
    self,
    slot: int,
    tokens: Sequence[int],
    *,
    words: np.ndarray,
    temperature: float,
    budget: int,
  ) -> None:
    """Queues a turn: append `tokens` to the context, then draw a completion.

    Args:
      slot: an acquired slot between turns.
      tokens: everything that follows what the cache holds: after a turn, its
        last sampled token and then the observation.
      words: [2] uint32 key of the turn.
      temperature: 0 = greedy.
      budget: tokens that the turn may have, 1..max_turn_tokens.

    Raises:
      ValueError: no tokens, too many tokens, or no budget.
    """
    if not 0 < len(tokens) <= self.room(slot):
      raise ValueError(
        f'{len(tokens)} token(s) for a slot with room for {self.room(slot)}'
      )
    if not 0 < budget <= self.max_turn_tokens:
      raise ValueError(f'budget {budget}: must be in 1..{self.max_turn_tokens}')
    self._queue.append(_Request(slot, tokens, words, temperature, budget))

  @property
  def busy(self) -> bool:
    """Whether any turn is queued or being drawn."""
    return bool(self._queue) or bool(self._in_turn.any())

  def pump(self, *, expecting: bool = False) -> list[Completion]:
    """Does one piece of device work and returns the turns that it finished.

    Args:
      expecting: more requests are about to come from environments, so decode
        little and return soon.
    """
    num_live = int(self._in_turn.sum())
    if self._queue and (len(self._queue) >= self._rows or not num_live):
      self._extend_some()
      return self._finished()
    if not num_live:
      return []
    # Return when the turns that ended, with those queued, fill an extend call.
    wanted = max(self._rows - len(self._queue), 1)
    stop_below = 1 if num_live <= wanted else num_live - wanted + 1
    steps = 1 if expecting else self._steps
    self._state, used = self._decode(
      self._params, self._state, np.int32(steps), np.int32(stop_below)
    )
    done = self._finished()
    used = np.asarray(used)
    self.counters.decode_calls += 1
    self.counters.decode_steps += int(used[0])
    self.counters.live_slot_steps += int(used[1])
    return done

  def _extend_some(self) -> None:
    rows, width = self._rows, self._chunk
    batch = decode_lib.Extension(
      slots=np.full(rows, self.num_slots, np.int32),
      tokens=np.zeros((rows, width), np.int32),
      start=np.zeros(rows, np.int32),
      count=np.zeros(rows, np.int32),
      final=np.zeros(rows, bool),
      words=np.zeros((rows, 2), np.uint32),
      temperature=np.ones(rows, np.float32),
      budget=np.ones(rows, np.int32),
    )
    unfinished = []
    for i in range(min(rows, len(self._queue))):
      item = self._queue.popleft()
      part = item.tokens[item.done : item.done + width]
      batch.slots[i] = item.slot
      batch.tokens[i, : len(part)] = part
      batch.start[i] = self._length[item.slot]
      batch.count[i] = len(part)
      batch.words[i] = item.words
      batch.temperature[i] = item.temperature
      batch.budget[i] = item.budget
      item.done += len(part)
      self._length[item.slot] += len(part)
      if item.done == len(item.tokens):
        batch.final[i] = True
        self._in_turn[item.slot] = True
      else:
        unfinished.append(item)
      self.counters.extend_tokens += len(part)
    self._queue.extendleft(reversed(unfinished))
    self._state = self._extend(self._params, self._state, batch)
    self.counters.extend_calls += 1

  def _finished(self) -> list[Completion]:
    """Fetches what ended, in slot order."""
    live, count, length, tokens, logprobs = jax.device_get(
      (
        self._state.live,
        self._state.count,
        self._state.length,
        self._state.tokens,
        self._state.logprobs,
      )
    )
    done = []
    for slot in np.flatnonzero(self._in_turn & ~live):
      slot, n = int(slot), int(count[slot])
      self._in_turn[slot] = False
      self._length[slot] = length[slot]
      ids = tuple(tokens[slot, :n].tolist())
      self.counters.sampled_tokens += n
      done.append(
        Completion(
          slot=slot,
          tokens=ids,
          logprobs=tuple(logprobs[slot, :n].tolist()),
          stopped=ids[-1] in self._stop_ids,
          version=self.version,
        )
      )
    return done

  def reset(self) -> None:
    """Forgets every context and request (after an interrupted collection)."""
    self._free = list(range(self.num_slots))[::-1]
    self._queue.clear()
    self._in_turn[:] = False
    live = self._state.live
    self._state = self._state.replace(live=jnp.zeros_like(live))

  def reset_counters(self) -> Counters:
    """Returns the counters and starts new ones."""
    counters, self.counters = self.counters, Counters()
    return counters

  @property
  def num_bytes(self) -> int:
    """Size of keys and values."""
    return cache_lib.num_bytes(self.config, self.num_slots, self.context_length)


def _publish(config: ModelConfig, params: dict):
  cast = jax.tree.map(lambda x: x.astype(config.dtype), params)
  return params_lib.unstack(cast), checksum(cast)


def _slot_shardings(init, mesh, num_slots):
  """Slots over the data axes where they divide, replicated otherwise."""
  size = mesh.shape['data'] * mesh.shape['fsdp']
  split = sharding.rows(mesh) if num_slots % size == 0 else None
  placement = split or sharding.replicated(mesh)
  return jax.tree.map(lambda _: placement, jax.eval_shape(init))
