"""How probable were the sampled tokens, without keeping every logit?"""

import chex
import jax
import jax.numpy as jnp


def token_logprobs(
  logits: chex.Array, targets: chex.Array, *, temperature: float = 1.0
) -> chex.Array:
  """Returns log-probabilities of given tokens.

      log π(y) = z_y / τ - logsumexp(z / τ)

  Args:
    logits: [R, T, V] float.
    targets: [R, T] int32 in [0, V), already shifted: the token that follows.
    temperature: τ at which the tokens were sampled.

  Returns:
    [R, T] float32.
  """
  chex.assert_rank([logits, targets], [3, 2])
  chex.assert_equal_shape_prefix([logits, targets], 2)
  chex.assert_type(targets, int)
  scaled = logits.astype(jnp.float32) / temperature
  chosen = jnp.take_along_axis(scaled, targets[..., None], axis=-1)[..., 0]
  return chosen - jax.nn.logsumexp(scaled, axis=-1)


def entropy(logits: chex.Array, *, temperature: float = 1.0) -> chex.Array:
  """Returns the entropy of each next-token distribution, in nats.

      H = logsumexp(z) - Σ_v softmax(z)_v z_v,   z = logits / τ

  Args:
    logits: [R, T, V] float; -inf = impossible.
    temperature: τ.

  Returns:
    [R, T] float32.
  """
  scaled = logits.astype(jnp.float32) / temperature
  probabilities = jax.nn.softmax(scaled, axis=-1)
  finite = jnp.where(probabilities > 0, scaled, 0)
  mean = jnp.sum(probabilities * finite, axis=-1)
  return jax.nn.logsumexp(scaled, axis=-1) - mean


def chunked_logprobs(
  hidden: chex.Array,
  head: chex.Array,
  targets: chex.Array,
  mask: chex.Array,
  *,
  temperature: float = 1.0,
  chunk: int,
) -> tuple[chex.Array, chex.Array]:
  """Returns log-probs and entropies, with logits of one chunk at a time.

  `[R, chunk, V]` is the largest array, forward and backward: each chunk is
  recomputed in the backward pass. Rows are not mixed, so that a sharded R
  stays sharded. Equals `token_logprobs` and `entropy` of `hidden @ head`.

  Args:
    hidden: [R, T, D] float, last hidden states.
    head: [D, V] float.
    targets: [R, T] int32, already shifted.
    mask: [R, T] bool; where False nothing is read from hidden.
    temperature: τ at which the tokens were sampled.
    chunk: tokens of each row per step; need not divide T.

  Returns:
    (logprobs, entropy), both [R, T] float32, 0 where masked.
  """
  chex.assert_rank([hidden, head, targets, mask], [3, 2, 2, 2])
  chex.assert_equal_shape_prefix([hidden, targets, mask], 2)
  chex.assert_type(mask, bool)
  num_rows, num_tokens = targets.shape
  num_chunks = -(-num_tokens // chunk)
  padding = num_chunks * chunk - num_tokens

  def split(x):
    x = jnp.pad(x, [(0, 0), (0, padding)] + [(0, 0)] * (x.ndim - 2))
    x = x.reshape(num_rows, num_chunks, chunk, *x.shape[2:])
    return jnp.moveaxis(x, 1, 0)

  @jax.checkpoint
  def one_chunk(head, hidden, targets):
    logits = jnp.einsum(
      'rtd,dv->rtv', hidden, head, preferred_element_type=jnp.float32
    )
    return (
      token_logprobs(logits, targets, temperature=temperature),
      entropy(logits, temperature=temperature),
    )

  def step(carry, inputs):
    return carry, one_chunk(head, *inputs)

  hidden = jnp.where(mask[..., None], hidden, 0)
  targets = jnp.where(mask, targets, 0)
  _, results = jax.lax.scan(step, None, (split(hidden), split(targets)))

  def join(x):
    x = jnp.moveaxis(x, 0, 1).reshape(num_rows, -1)[:, :num_tokens]
    return jnp.where(mask, x, 0.0)

  return join(results[0]), join(results[1])
