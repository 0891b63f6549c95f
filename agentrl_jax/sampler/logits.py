"""From logits to a token: temperature, truncation, one keyed draw a row."""

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
  logprobs = jax.nn.log_softmax(scaled, axis=-1)
  kept = logprobs
  if truncation is not None:
    kept = truncate(logprobs, *truncation)
  cumulative = jnp.cumsum(jnp.exp(kept), axis=-1)
  total = cumulative[:, -1:]
  u = uniforms(words, positions)[:, None] * total
  # The first token whose cumulative mass exceeds u has mass of its own, so a
  # dropped token is never drawn; the clip guards u rounding up to the total.
  token = jnp.sum(cumulative <= u, axis=-1)
  best = jnp.argmax(logits, axis=-1)
  token = jnp.where(greedy | (u[:, 0] >= total[:, 0]), best, token)
  token = token.astype(jnp.int32)
  logprob = jnp.take_along_axis(logprobs, token[:, None], axis=-1)[:, 0]
  return Draw(token, logprob, jnp.log(total[:, 0]))
