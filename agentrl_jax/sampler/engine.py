"""The host side of the sampler: slots, queues and weights by version.

The unit of a slot is a context. A conversation keeps its slot between turns, so
that a new observation only extends it. The engine never decides what a row
draws; it decides when.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax import sharding
from agentrl_jax.models import cache as cache_lib
from agentrl_jax.models import experts, lora
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.models.policy import Policy
from agentrl_jax.sampler import decode as decode_lib
from agentrl_jax.sampler.lane import (
  Completion,
  Counters,
  Lane,
  Program,
  Programs,
  Request,
  Shape,
)


def checksum(tree) -> jax.Array:
  """Adds the bits of every leaf modulo 2^32: equal trees, equal sums."""

  def bits(x):
    unsigned = {2: jnp.uint16, 4: jnp.uint32}[x.dtype.itemsize]
    words = jax.lax.bitcast_convert_type(x, unsigned)
    return words.astype(jnp.uint32).sum(dtype=jnp.uint32)

  return sum(bits(x) for x in jax.tree.leaves(tree))


class Engine:
  """Draws turns for up to `num_slots` contexts side by side.

  Slots are parted into lanes, each with a thread that starts its programs.
  While lanes compute, the host steps the environments of another. On several
  devices one thread serves all lanes: collectives must start in one order.

  Args:
    config: the policy's shape.
    mesh: devices of all hosts; those of this host are used. Slots are split
      over its data axes where they divide.
    num_slots: contexts decoded together, N, over all lanes.
    num_lanes: divides num_slots.
    context_length: tokens of a context at most, S.
    max_turn_tokens: sampled tokens of a turn at most, W.
    extend_rows: contexts of one extend call, P.
    extend_chunk: tokens a row of one extend call, Q.
    decode_chunk: steps of one decode call at most.
    extend_steps: decode steps that an extend call takes as long as, which says
      how long turns wait for others to share one; 0 = as their tokens are many.
    stop_ids: tokens that end a turn.
    top_p: nucleus mass in (0, 1], 1 = all.
    top_k: 0 = all.
    record_routes: note which experts tokens use, where there are experts.
    adapters: whether published weights have them 'merged' into the matrices or
      hold them 'beside', a product more for each.
    weight_rules: where weights lie, see `sharding.RULES`.
  """

  def __init__(
    self,
    config: ModelConfig,
    mesh: jax.sharding.Mesh,
    *,
    num_slots: int,
    num_lanes: int = 1,
    context_length: int,
    max_turn_tokens: int,
    extend_rows: int,
    extend_chunk: int,
    decode_chunk: int,
    extend_steps: float = 0.0,
    stop_ids: Sequence[int],
    top_p: float = 1.0,
    top_k: int = 0,
    record_routes: bool = False,
    adapters: str = 'merged',
    weight_rules: Mapping[str, Any] = sharding.SAMPLER_RULES,
  ):
    if num_slots % num_lanes:
      raise ValueError(
        f'{num_slots} slots do not divide over {num_lanes} lanes: change '
        'config.sampler.slots or config.sampler.lanes'
      )
    self.config = config
    self.num_slots = num_slots
    self.context_length = context_length
    self.max_turn_tokens = max_turn_tokens
    self.counters = Counters()
    self.version = -1
    self._width = num_slots // num_lanes
    self._params = None
    self._mesh, self._weight_rules = mesh, weight_rules
    mesh = sharding.local_mesh(mesh)
    extend_steps = extend_steps or extend_rows * extend_chunk / self._width
    shape = (self._width, context_length, max_turn_tokens)
    init = functools.partial(
      decode_lib.init, config, *shape, routes=record_routes
    )
    placement = _slot_shardings(init, mesh, self._width)
    init = jax.jit(init, out_shardings=placement)
    programs = _programs(
      config,
      mesh,
      placement,
      stop_ids=tuple(stop_ids),
      truncation=None if top_p == 1.0 and top_k == 0 else (top_p, top_k),
      shape=Shape(extend_rows, extend_chunk, decode_chunk, extend_steps),
    )
    num_threads = num_lanes if mesh.size == 1 else 1
    threads = [futures.ThreadPoolExecutor(1) for _ in range(num_threads)]
    self._lanes = [
      Lane(programs, init(), self._width, threads[i % num_threads])
      for i in range(num_lanes)
    ]
    self._prepare = _PREPARE[adapters]
    self._publish = self._placed = None  # both made of the first weights
    self._checksum = jax.jit(checksum)

  def publish(self, params: dict, version: int) -> bool:
    """Copies the learner's weights for decoding; they may then be donated.

    On one mesh nothing but two checksums leaves a device. Over several hosts
    each gets a whole copy of its own.

    Contexts that are resident keep keys and values of older weights, so slots
    must be free, or withdrawn.

    Returns:
      Whether the checksum taken before the hand-over equals that of the copy.

    Raises:
      RuntimeError: slots hold something.
    """
    if not all(lane.is_empty for lane in self._lanes):
      raise RuntimeError(
        'publish needs all slots free or withdrawn: a cache is of one policy'
      )
    for lane in self._lanes:
      lane.forget_prompts()
    if self._publish is None:
      self._compile(params)
    copies, before = self._publish(params)
    self._params = sharding.on_this_host(copies, self._placed)
    self.version = version
    leaves = jax.tree.leaves(self._params)
    self.counters.published_bytes += sum(leaf.nbytes for leaf in leaves)
    before, after = jax.device_get((before, self._checksum(self._params)))
    return int(before) == int(after)

  def _compile(self, params):
    """Jits what makes the sampler's copy, placed as the rules say."""
    publish = functools.partial(_publish, self.config, self._prepare)
    shapes, _ = jax.eval_shape(publish, params)
    self._placed = _weight_shardings(
      self.config,
      shapes,
      sharding.local_mesh(self._mesh),
      self._weight_rules,
    )
    copies = sharding.host_copies(self._placed, self._mesh)
    placed = copies, sharding.replicated(self._mesh)
    self._publish = jax.jit(publish, out_shardings=placed)

  def acquire(self) -> int | None:
    """Returns an empty slot of the emptiest lane, None if all are taken."""
    number, lane = max(
      enumerate(self._lanes), key=lambda item: (len(item[1].free), -item[0])
    )
    if not lane.free:
      return None
    slot = lane.free.pop()
    lane.length[slot] = 0
    return number * self._width + slot

  def release(self, slot: int) -> None:
    """Frees a slot that is between turns."""
    lane, slot = self._find(slot)
    lane.free.append(slot)

  def rewind(self, slot: int, length: int) -> None:
    """Forgets all but the first `length` tokens that a slot's cache holds.

    Args:
      slot: an acquired slot between turns.
      length: 0 = everything is forgotten: another context.

    Raises:
      ValueError: the cache does not hold that many.
    """
    lane, local = self._find(slot)
    if not 0 <= length <= lane.length[local]:
      raise ValueError(
        f'slot {slot} holds {lane.length[local]} tokens, not {length}'
      )
    lane.length[local] = length

  def room(self, slot: int) -> int:
    """Returns how many more tokens the slot's context can take."""
    lane, slot = self._find(slot)
    return self.context_length - int(lane.length[slot])

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
    lane, slot = self._find(slot)
    lane.add(Request(slot, tokens, words, temperature, budget))

  @property
  def busy(self) -> bool:
    """Whether any turn is queued or being drawn."""
    return any(lane.busy for lane in self._lanes)

  def pump(self, *, expecting: bool = False) -> list[Completion]:
    """Keeps the lanes computing; waits for one and returns finished turns.

    Args:
      expecting: more requests are about to come from environments, so decode
        little and return soon.
    """
    for lane in self._lanes:
      lane.launch(self._params, self.counters, expecting)
    calls = [lane.call for lane in self._lanes if lane.call is not None]
    futures.wait(calls, return_when=futures.FIRST_COMPLETED)
    completions = []
    for number, lane in enumerate(self._lanes):
      if lane.call is not None and lane.call.done():
        completions += self._told(number, lane.finish(self.counters))
    return completions

  def withdraw(self) -> list[Completion]:
    """Forgets every context and request between two calls; slots stay taken.

    Who asks again for the rest of a turn, by the key of the turn and with all
    tokens of its context, gets what the turn would have had: keys go with
    positions.

    Returns:
      Turns that ended by themselves, and what was drawn of others, if anything.
    """
    out = []
    for number, lane in enumerate(self._lanes):
      out += self._told(number, lane.withdraw(self.counters))
    return out

  def reset(self) -> None:
    """Forgets every context and request (after an interrupted collection)."""
    for lane in self._lanes:
      lane.reset()

  def reset_counters(self) -> Counters:
    """Returns the counters and starts new ones."""
    counters, self.counters = self.counters, Counters()
    return counters

  @property
  def num_bytes(self) -> int:
    """Size of keys and values."""
    return cache_lib.num_bytes(self.config, self.num_slots, self.context_length)

  def _told(self, number: int, completions: Sequence[Completion]):
    """A lane's completions, by the engine's slots and the weights' version."""
    first, version = number * self._width, self.version
    return [
      dataclasses.replace(c, slot=first + c.slot, version=version)
      for c in completions
    ]

  def _find(self, slot: int):
    number, local = divmod(slot, self._width)
    return self._lanes[number], local


def _programs(
  config, mesh, placement, *, stop_ids, truncation, shape
) -> Programs:
  """Jits the programs; they reuse the memory of the state that they get."""
  options = dict(stop_ids=stop_ids, truncation=truncation)
  replicated = sharding.replicated(mesh)

  def program(function, out_shardings):
    return Program(
      jax.jit(
        experts.on(
          config, mesh, functools.partial(function, config, **options)
        ),
        donate_argnums=(1,),
        out_shardings=out_shardings,
      )
    )

  return Programs(
    extend=program(decode_lib.extend, placement),
    decode=program(decode_lib.decode, (placement, replicated)),
    fork=program(decode_lib.fork, placement),
    routes=Program(
      jax.jit(lambda routes, slot: routes[slot], out_shardings=replicated)
    ),
    stop_ids=stop_ids,
    shape=shape,
  )


# How adapters are handed over -> what is done with them.
_PREPARE = {
  'merged': lambda config, params: lora.merge(
    config.lora, params, config.dtype
  ),
  'beside': lambda config, params: params,
}


def _publish(config: ModelConfig, prepare, params: dict):
  params = prepare(config, params)
  cast = jax.tree.map(lambda x: x.astype(config.dtype), params)
  if isinstance(config, Policy):
    return cast, checksum(cast)
  return params_lib.unstack(cast), checksum(cast)


def _slot_shardings(init, mesh, num_slots):
  """Slots over the data axes, kv heads over `tensor`, where they divide."""
  size = sharding.num_row_parts(mesh.shape)
  rows = 'rows' if num_slots % size == 0 else None

  def place(x):
    is_cache = x.ndim >= 4 and jnp.issubdtype(x.dtype, jnp.floating)
    heads = 'kv_heads' if is_cache else None
    axes = (rows, heads, *(None,) * (x.ndim - 2))[: x.ndim]
    spec = sharding.spec(axes, x.shape, mesh)
    return jax.sharding.NamedSharding(mesh, spec)

  return jax.tree.map(place, jax.eval_shape(init))


def _weight_shardings(config, shapes, mesh, rules):
  """Places unstacked weights by their axes when stacked, others whole."""
  leaves = jax.tree_util.tree_leaves_with_path(
    params_lib.logical_axes(config), is_leaf=lambda x: isinstance(x, tuple)
  )
  axes = {jax.tree_util.keystr(path): names for path, names in leaves}

  def place(path, x):
    keys = [k for k in path if not isinstance(k, jax.tree_util.SequenceKey)]
    names = axes.get(jax.tree_util.keystr(tuple(keys)), (None,) * x.ndim)
    spec = sharding.spec(names[len(names) - x.ndim :], x.shape, mesh, rules)
    return jax.sharding.NamedSharding(mesh, spec)

  return jax.tree_util.tree_map_with_path(place, shapes)
