"""How probable were the sampled tokens, without keeping every logit?"""

import functools

import chex
import jax
import jax.numpy as jnp

from agentrl_jax import sharding


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
  scaled -= _top(scaled)  # small numbers: the difference below keeps its digits
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

  `[R, chunk, V]` is the largest array of logits, forward and backward, and
  only tokens that count have any: each row's are moved to its front, and the
  loop ends with those of the row that has most. The backward pass makes each
  chunk's logits again and adds its gradient of the head in float32. Rows are
  not mixed, so that a sharded R stays sharded. Equals `token_logprobs` and
  `entropy` of `hidden @ head`; differentiable once, in reverse.

  Args:
    hidden: [R, T, D] float, last hidden states.
    head: [D, V] float; products are in the dtype of `hidden`, sums in float32.
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
  num_tokens = targets.shape[1]
  chunk = min(chunk, num_tokens)
  padding = -num_tokens % chunk
  order = jnp.argsort(~mask, axis=1, stable=True)  # those that count first
  place = jnp.argsort(order, axis=1)

  hidden = jnp.where(mask[..., None], hidden, 0)
  targets = jnp.where(mask, targets, 0)

  def front(x):
    index = jax.lax.expand_dims(order, range(2, x.ndim))
    x = jnp.take_along_axis(x, index, axis=1)
    return jnp.pad(x, [(0, 0), (0, padding)] + [(0, 0)] * (x.ndim - 2))

  most = jnp.max(jnp.sum(mask, axis=1))
  num_chunks = (most + chunk - 1) // chunk
  results = _by_chunks(
    temperature, chunk, front(hidden), head, front(targets), num_chunks
  )

  def back(x):
    x = jnp.take_along_axis(x[:, :num_tokens], place, axis=1)
    return jnp.where(mask, x, 0.0)

  return back(results[0]), back(results[1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _by_chunks(temperature, chunk, hidden, head, targets, num_chunks):
  """(log-probs, entropies) [R, T] of the first chunks; T is a multiple."""
  return _forward(temperature, chunk, hidden, head, targets, num_chunks)[0]


def _gathered(head, dtype):
  """The head as all chunks read it: split by vocabulary alone."""
  return sharding.placed_by(head.astype(dtype), (None, 'vocab'))


def _logits(temperature, hidden, head):
  logits = jnp.einsum(
    'rtd,dv->rtv', hidden, head, preferred_element_type=jnp.float32
  )
  return logits / temperature


def _top(logits):
  top = jnp.max(logits, axis=-1, keepdims=True)
  return jax.lax.stop_gradient(top)


def _forward(temperature, chunk, hidden, head, targets, num_chunks):
  cast = _gathered(head, hidden.dtype)

  def step(i, done):
    part, names = (_chunk(x, i, chunk) for x in (hidden, targets))
    logits = _logits(temperature, part, cast)
    top = _top(logits)
    logits -= top
    odds = jnp.exp(logits)
    total = jnp.sum(odds, axis=-1)
    norms = jnp.log(total)
    chosen = jnp.take_along_axis(logits, names[..., None], axis=-1)[..., 0]
    mean = jnp.sum(odds * logits, axis=-1) / total
    new = chosen - norms, norms - mean, norms + top[..., 0]
    return tuple(_write(x, y, i, chunk) for x, y in zip(done, new))

  empty = jnp.zeros(targets.shape, jnp.float32)
  *results, norms = jax.lax.fori_loop(0, num_chunks, step, (empty,) * 3)
  kept = hidden, head, targets, num_chunks, results[1], norms
  return tuple(results), kept


def _backward(temperature, chunk, kept, cotangents):
  """Gradients of hidden and head, logits made again.

  With p = softmax(z), H the entropy and z = h W / τ:

      ∂ log π(y) / ∂z_v = 1[v = y] - p_v
      ∂ H / ∂z_v        = -p_v (log p_v + H)
  """
  hidden, head, targets, num_chunks, entropies, norms = kept
  cast = _gathered(head, hidden.dtype)
  # Each device adds up its own rows' gradient of the head: one sum over the
  # links behind the loop, where each chunk would have one.
  parts = sharding.row_parts(len(hidden))
  split = ('rows', None, 'vocab')

  def step(i, grads):
    cut = functools.partial(_chunk, i=i, chunk=chunk)
    part = cut(hidden)
    logits = _logits(temperature, part, cast)
    by_logprob, by_entropy = (cut(x)[..., None] for x in cotangents)
    logprobs = logits - cut(norms)[..., None]
    surprise = logprobs + cut(entropies)[..., None]
    grad = -jnp.exp(logprobs) * (by_logprob + by_entropy * surprise)
    vocab = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2)
    grad += jnp.where(vocab == cut(targets)[..., None], by_logprob, 0.0)
    grad = (grad / temperature).astype(hidden.dtype)
    of_part = jnp.einsum('rtv,dv->rtd', grad, cast)
    of_head = jnp.einsum(
      'prtd,prtv->pdv',
      *(x.reshape(parts, -1, *x.shape[1:]) for x in (part, grad)),
      preferred_element_type=jnp.float32,
    )
    of_head = sharding.placed_by(grads[1] + of_head, split)
    return _write(grads[0], of_part, i, chunk), of_head

  sums = jnp.zeros((parts, *head.shape), jnp.float32)
  zeros = jnp.zeros_like(hidden), sharding.placed_by(sums, split)
  of_hidden, of_head = jax.lax.fori_loop(0, num_chunks, step, zeros)
  of_head = jnp.sum(of_head, axis=0)
  return of_hidden, of_head.astype(head.dtype), None, None


_by_chunks.defvjp(_forward, _backward)


def _chunk(x, i, chunk):
  return jax.lax.dynamic_slice_in_dim(x, i * chunk, chunk, axis=1)


def _write(x, part, i, chunk):
  part = part.astype(x.dtype)
  return jax.lax.dynamic_update_slice_in_dim(x, part, i * chunk, axis=1)
