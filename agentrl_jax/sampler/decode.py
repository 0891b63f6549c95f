"""The device programs of the sampler: extend contexts, fork them, decode turns.

Each has one shape for a whole run. Rows never mix: what a row draws depends
on its context, its key and the weights, not on its slot, its neighbours or the
order of arrival.
"""

import chex
import jax
import jax.numpy as jnp

from agentrl_jax.models import cache as cache_lib
from agentrl_jax.models import heads, transformer
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.sampler import logits as logits_lib


@chex.dataclass(frozen=True)
class State:
  """Slots of the sampler; N slots, W = tokens of the longest turn.

  Attributes:
    cache: keys and values; columns [0, length) of a slot are filled.
    length: [N] int32.
    last_token: [N] int32, sampled, not yet in the cache.
    live: [N] bool, in the middle of a turn.
    words: [N, 2] uint32, key of the turn.
    temperature: [N] float32.
    budget: [N] int32, tokens that the turn may have.
    count: [N] int32, tokens of the turn so far.
    tokens: [N, W] int32, the turn so far.
    logprobs: [N, W] float32, at sampling.
    hidden: [N, D], of the last token of the prompt of a slot's turn.
  """

  cache: cache_lib.Cache
  length: jax.Array
  last_token: jax.Array
  live: jax.Array
  words: jax.Array
  temperature: jax.Array
  budget: jax.Array
  count: jax.Array
  tokens: jax.Array
  logprobs: jax.Array
  hidden: jax.Array


@chex.dataclass(frozen=True)
class Fork:
  """Slots whose turns follow a prompt that another slot holds; P rows.

  Attributes:
    slots: [P] int32; idle rows name a slot >= N.
    sources: [P] int32, slots that hold the prompt.
    count: [P] int32, tokens of the prompt.
    words, temperature, budget: of the turn, as in `State`.
  """

  slots: jax.Array
  sources: jax.Array
  count: jax.Array
  words: jax.Array
  temperature: jax.Array
  budget: jax.Array


@chex.dataclass(frozen=True)
class Extension:
  """New tokens for some slots; P rows, Q tokens of a chunk.

  Attributes:
    slots: [P] int32; idle rows name a slot >= N.
    tokens: [P, Q] int32.
    start: [P] int32, position of the first token.
    count: [P] int32, real tokens of the row, 0 = idle.
    final: [P] bool, the prompt ends here: draw the turn's first token.
    words, temperature, budget: of the turn, as in `State`.
  """

  slots: jax.Array
  tokens: jax.Array
  start: jax.Array
  count: jax.Array
  final: jax.Array
  words: jax.Array
  temperature: jax.Array
  budget: jax.Array


def init(
  config: ModelConfig,
  num_slots: int,
  length: int,
  max_turn_tokens: int,
  *,
  routes: bool = False,
) -> State:
  """Returns empty slots for contexts of `length` tokens.

  With `routes`, the cache also records the experts that tokens use.
  """
  ints = jnp.zeros((num_slots,), jnp.int32)
  wide = (num_slots, max_turn_tokens)
  return State(
    cache=cache_lib.init(config, num_slots, length, routes=routes),
    length=ints,
    last_token=jnp.copy(ints),
    live=jnp.zeros((num_slots,), bool),
    words=jnp.zeros((num_slots, 2), jnp.uint32),
    temperature=jnp.ones((num_slots,), jnp.float32),
    budget=jnp.copy(ints),
    count=jnp.copy(ints),
    tokens=jnp.zeros(wide, jnp.int32),
    logprobs=jnp.zeros(wide, jnp.float32),
    hidden=jnp.zeros((num_slots, config.d_model), config.dtype),
  )


def _stops(token: jax.Array, stop_ids: tuple[int, ...]) -> jax.Array:
  return jnp.isin(token, jnp.array(stop_ids, jnp.int32))


def _truncation(truncation, num_rows):
  if truncation is None:
    return None
  top_p, top_k = truncation
  return jnp.full((num_rows,), top_p), jnp.full((num_rows,), top_k)


def extend(
  config: ModelConfig,
  params: dict,
  state: State,
  new: Extension,
  *,
  stop_ids: tuple[int, ...],
  truncation: tuple[float, int] | None = None,
) -> State:
  """Appends tokens to contexts; a row that is `final` starts its turn."""
  num_slots, columns = state.length.shape[0], state.cache.columns
  offsets = jnp.arange(new.tokens.shape[1])[None]
  positions = new.start[:, None] + offsets
  positions = jnp.where(offsets < new.count[:, None], positions, columns)
  # Idle rows read slot 0 and write nowhere.
  rows = jnp.minimum(new.slots, num_slots - 1)
  output = transformer.hidden(
    config,
    params,
    new.tokens,
    positions=positions,
    cache=state.cache,
    slots=rows,
  )
  last = jnp.maximum(new.count - 1, 0)[:, None, None]
  hidden = jnp.take_along_axis(output.hidden, last, axis=1)[:, 0]
  length = new.start + new.count
  touched = jnp.where(new.count > 0, new.slots, num_slots)
  state = state.replace(
    cache=output.cache,
    length=state.length.at[touched].set(length, mode='drop'),
  )
  started = jnp.where(new.final, new.slots, num_slots)
  return _start(
    config, params, state, started, hidden, length, new, stop_ids, truncation
  )


def fork(
  config: ModelConfig,
  params: dict,
  state: State,
  new: Fork,
  *,
  stop_ids: tuple[int, ...],
  truncation: tuple[float, int] | None = None,
) -> State:
  """Copies prompts to other slots and starts turns there.

  What they draw is what they would have drawn behind a prompt of their own.
  """
  num_slots = state.length.shape[0]

  def copied(array):
    return array.at[new.slots].set(array[new.sources], mode='drop')

  state = state.replace(
    cache=jax.tree.map(copied, state.cache),
    length=state.length.at[new.slots].set(new.count, mode='drop'),
  )
  hidden = state.hidden[jnp.minimum(new.sources, num_slots - 1)]
  return _start(
    config,
    params,
    state,
    new.slots,
    hidden,
    new.count,
    new,
    stop_ids,
    truncation,
  )


def _start(
  config, params, state, slots, hidden, length, new, stop_ids, truncation
) -> State:
  """Draws the first tokens of turns; `slots` >= N start none."""
  drawn = logits_lib.draw(
    heads.logits(config, params, hidden),
    new.words,
    length,
    new.temperature,
    _truncation(truncation, slots.shape[0]),
  )
  live = ~_stops(drawn.token, stop_ids) & (new.budget > 1)
  live &= length < state.cache.columns - 1  # the next token is one more

  def put(array, values):
    return array.at[slots].set(values, mode='drop')

  return state.replace(
    last_token=put(state.last_token, drawn.token),
    live=put(state.live, live),
    words=put(state.words, new.words),
    temperature=put(state.temperature, new.temperature),
    budget=put(state.budget, new.budget),
    count=put(state.count, 1),
    tokens=state.tokens.at[slots, 0].set(drawn.token, mode='drop'),
    logprobs=state.logprobs.at[slots, 0].set(drawn.logprob, mode='drop'),
    hidden=put(state.hidden, hidden),
  )


def decode(
  config: ModelConfig,
  params: dict,
  state: State,
  max_steps: jax.Array,
  stop_below: jax.Array,
  *,
  stop_ids: tuple[int, ...],
  truncation: tuple[float, int] | None = None,
) -> tuple[State, jax.Array]:
  """Decodes live slots until few are live or the steps are spent.

  Args:
    config, params, state: the policy and its slots.
    max_steps: [] int32, tokens of a slot at most.
    stop_below: [] int32, return once fewer slots than this are live.
    stop_ids: tokens that end a turn.
    truncation: (top_p, top_k) or None.

  Returns:
    The state, and [2] int32: steps taken, slot-steps that were live.
  """
  num_slots, columns = state.length.shape[0], state.cache.columns
  rows = jnp.arange(num_slots)

  def step(carry):
    state, used = carry
    # A slot that is not live writes nothing: its position lies outside.
    positions = jnp.where(state.live, state.length, columns)
    output = transformer.hidden(
      config,
      params,
      state.last_token[:, None],
      positions=positions[:, None],
      cache=state.cache,
    )
    length = state.length + state.live
    drawn = logits_lib.draw(
      heads.logits(config, params, output.hidden[:, 0]),
      state.words,
      length,
      state.temperature,
      _truncation(truncation, num_slots),
    )
    place = jnp.where(state.live, state.count, state.tokens.shape[1])
    count = state.count + state.live
    live = state.live & ~_stops(drawn.token, stop_ids)
    live &= (count < state.budget) & (length < columns - 1)
    new = state.replace(
      cache=output.cache,
      length=length,
      last_token=jnp.where(state.live, drawn.token, state.last_token),
      live=live,
      count=count,
      tokens=state.tokens.at[rows, place].set(drawn.token, mode='drop'),
      logprobs=state.logprobs.at[rows, place].set(drawn.logprob, mode='drop'),
    )
    used = used + jnp.stack([1, state.live.sum(dtype=jnp.int32)])
    return new, used

  def more(carry):
    state, used = carry
    enough = state.live.sum() >= jnp.maximum(stop_below, 1)
    return (used[0] < max_steps) & enough

  return jax.lax.while_loop(more, step, (state, jnp.zeros(2, jnp.int32)))
