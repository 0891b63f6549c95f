"""From logits to a token: temperature, truncation, one keyed draw a row."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

_MASKED = -1e30


class Draw(NamedTuple):
  """token [N] int32; logprob [N], kept_logmass [N] float32."""

  token: jax.Array
  logprob: jax.Array
  kept_logmass: jax.Array


def uniforms(words: jax.Array, positions: jax.Array) -> jax.Array:
  """Returns [N] floats in [0, 1), a function of key and position alone.

  Args:
    words: [N, 2] uint32, key of each row's turn.
    positions: [N] int32, place of the token in its context.
  """

  def one(word, position):
    key = jax.random.wrap_key_data(word, impl='threefry2x32')
    return jax.random.uniform(jax.random.fold_in(key, position))

  return jax.vmap(one)(words, positions)


def truncate(
  logprobs: jax.Array, top_p: jax.Array, top_k: jax.Array
) -> jax.Array:
  """Masks what top-k and then top-p drop; at least the best token stays.

  Args:
    logprobs: [N, V] float32, of the temperature-scaled softmax.
    top_p: [N] float32 in (0, 1].
    top_k: [N] int32, 0 = all.
  """
  ranked = -jnp.sort(-logprobs, axis=-1)
  vocab = logprobs.shape[-1]
  rank = jnp.where(top_k > 0, jnp.minimum(top_k, vocab), vocab) - 1
  kth = jnp.take_along_axis(ranked, rank[:, None], axis=-1)
  mass = jnp.cumsum(jnp.exp(jnp.where(ranked >= kth, ranked, _MASKED)), -1)
  before = mass - jnp.exp(ranked)  # mass of strictly better tokens
  total = jnp.take_along_axis(mass, rank[:, None], axis=-1)
  # At top_p = 1 rounding must not drop a tail that adds nothing to the sum.
  keep = (before < top_p[:, None] * total) | (top_p[:, None] >= 1)
  keep &= ranked >= kth
  floor = jnp.min(jnp.where(keep, ranked, jnp.inf), axis=-1, keepdims=True)
  floor = jnp.minimum(floor, ranked[:, :1])
  return jnp.where(logprobs >= floor, logprobs, _MASKED)


def draw(
  logits: jax.Array,
  words: jax.Array,
  positions: jax.Array,
  temperature: jax.Array,
  truncation: tuple[jax.Array, jax.Array] | None = None,
) -> Draw:
  """Draws one token a row by inverting the cumulative distribution.

  Args:
    logits: [N, V] float32.
    words: [N, 2] uint32, key of each row's turn.
    positions: [N] int32, position that the token will have.
    temperature: [N] float32; 0 = greedy.
    truncation: (top_p [N], top_k [N]), or None for none.

  Returns:
    `logprob` is that of the *untruncated* softmax at the row's temperature (at
    1 for greedy rows), which the learner recomputes; `kept_logmass` is the log
    of the probability that truncation kept. Subtracted on both sides it cancels
    in the ratio, so that neither side carries it.
  """
  greedy = temperature == 0
  scaled = logits / jnp.where(greedy, 1.0, temperature)[:, None]
  best = jnp.max(scaled, axis=-1, keepdims=True)
  shifted = scaled - best
  kept = weights = jnp.exp(shifted)
  mass = weights.sum(axis=-1)
  if truncation is not None:
    logprobs = shifted - jnp.log(mass)[:, None]
    kept = jnp.where(truncate(logprobs, *truncation) > _MASKED, weights, 0.0)
  token, total = _invert(kept, uniforms(words, positions))
  token = jnp.where(greedy, _first(scaled == best), token)
  token = jnp.minimum(token, logits.shape[-1] - 1)  # where nothing is finite
  logprob = _at(shifted, token) - jnp.log(mass)
  return Draw(token, logprob, jnp.log(total / mass))


def _invert(weights: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Finds in each row where the running sum exceeds the share u of it all.

  A block is found by the sums of blocks, then a place in it: a running sum over
  a whole vocabulary takes a CPU longer than the product that made the logits.
  Only places of positive weight are found, whatever rounding does.

  Args:
    weights: [N, V] float32, >= 0.
    u: [N] float32 in [0, 1).

  Returns:
    Places [N] int32, sums [N] float32.
  """
  vocab = weights.shape[-1]
  block = math.isqrt(vocab - 1) + 1
  weights = jnp.pad(weights, ((0, 0), (0, -vocab % block)))
  blocks = weights.reshape(weights.shape[0], -1, block)
  sums = blocks.sum(axis=-1)
  upto = jnp.cumsum(sums, axis=-1)
  goal = (u * upto[:, -1])[:, None]
  number = _above(upto, sums, goal)
  inside = jnp.take_along_axis(blocks, number[:, None, None], axis=1)[:, 0]
  before = jnp.where(number == 0, 0.0, _at(upto, jnp.maximum(number - 1, 0)))
  upto_inside = before[:, None] + jnp.cumsum(inside, axis=-1)
  place = number * block + _above(upto_inside, inside, goal)
  return place, upto[:, -1]


def _above(upto, parts, goal):
  """First place where `upto` exceeds the goal, else the last; parts > 0."""
  places = jnp.arange(parts.shape[-1], dtype=jnp.int32)
  last = jnp.max(jnp.where(parts > 0, places, 0), axis=-1)
  return jnp.minimum(_first((upto > goal) & (parts > 0)), last)


def _first(found: jax.Array) -> jax.Array:
  """First True of each row, its length if there is none, int32."""
  places = jnp.arange(found.shape[-1], dtype=jnp.int32)
  return jnp.min(jnp.where(found, places, found.shape[-1]), axis=-1)


def _at(array, places):
  return jnp.take_along_axis(array, places[:, None], axis=-1)[:, 0]
