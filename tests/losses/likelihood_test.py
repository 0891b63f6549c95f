"""Locks log-probs, entropies and their chunked form, forward and backward."""

from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from agentrl_jax import losses
from agentrl_jax.losses import likelihood

R, T, D, V = 2, 7, 5, 11


def inputs(dtype=jnp.float32):
  keys = jax.random.split(jax.random.key(0), 3)
  hidden = jax.random.normal(keys[0], (R, T, D), dtype)
  head = jax.random.normal(keys[1], (D, V), dtype)
  targets = jax.random.randint(keys[2], (R, T), 0, V)
  mask = (jnp.arange(R * T).reshape(R, T) % 3) > 0
  return hidden, head, targets, mask


class LikelihoodTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_by_hand(self):
    # Logits log 1, log 3 at T = 1: 1/4, 3/4. At T = 1/2: 1/10, 9/10.
    logits = jnp.log(jnp.array([[[1.0, 3.0]]]))
    targets = jnp.array([[1]])
    f = self.variant(losses.token_logprobs)
    np.testing.assert_allclose(f(logits, targets), [[np.log(0.75)]], rtol=1e-6)
    out = f(logits, targets, temperature=0.5)
    np.testing.assert_allclose(out, [[np.log(0.9)]], rtol=1e-5)
    want = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    out = self.variant(losses.entropy)(logits)
    np.testing.assert_allclose(out, [[want]], rtol=1e-6)

  def test_impossible_tokens_leave_entropy_finite(self):
    logits = jnp.array([[[0.0, 0.0, -jnp.inf]]])
    value, grad = jax.value_and_grad(lambda x: losses.entropy(x).sum())(logits)
    np.testing.assert_allclose(value, np.log(2), rtol=1e-6)
    assert np.all(np.isfinite(grad))

  @parameterized.parameters(1, 3, 7, 16)
  def test_chunked_is_whole(self, chunk):
    hidden, head, targets, mask = inputs()

    def whole(hidden, head):
      logits = hidden @ head
      logp = losses.token_logprobs(logits, targets, temperature=0.7)
      ent = losses.entropy(logits, temperature=0.7)
      return jnp.where(mask, logp, 0), jnp.where(mask, ent, 0)

    def chunked(hidden, head):
      return losses.chunked_logprobs(
        hidden, head, targets, mask, temperature=0.7, chunk=chunk
      )

    for a, b in zip(jax.jit(chunked)(hidden, head), whole(hidden, head)):
      np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

    def scalar(f):
      return lambda *x: sum(
        jnp.sum(y * jnp.arange(1.0, R * T + 1).reshape(R, T)) for y in f(*x)
      )

    got = jax.jit(jax.grad(scalar(chunked), (0, 1)))(hidden, head)
    want = jax.grad(scalar(whole), (0, 1))(hidden, head)
    for a, b in zip(got, want):
      np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)

  @parameterized.parameters(
    [[[0] * T, [1] * T], 7],  # the row that has most says when it ends
    [[[0, 0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 1, 0]], 1],
    [[[0] * T, [0] * T], 0],
  )
  def test_only_tokens_that_count_have_logits(self, counts, num_steps):
    hidden, head, targets, _ = inputs()
    mask, steps = jnp.array(counts, bool), []
    inner = likelihood._logits

    def logits(*args):
      jax.debug.callback(lambda: steps.append(args[1].shape))
      return inner(*args)

    chunk = 1 if num_steps == 7 else 2

    def loss(hidden, head):
      out = losses.chunked_logprobs(hidden, head, targets, mask, chunk=chunk)
      return sum(map(jnp.sum, out)), out

    with mock.patch.object(likelihood, '_logits', logits):
      run = jax.jit(jax.grad(loss, (0, 1), has_aux=True))
      grads, out = jax.block_until_ready(run(hidden, head))
    jax.effects_barrier()
    # As many forward as backward.
    assert steps == [(R, chunk, D)] * (2 * num_steps)
    z = hidden @ head
    want = losses.token_logprobs(z, targets), losses.entropy(z)
    for a, b in zip(out, want):
      np.testing.assert_allclose(a, jnp.where(mask, b, 0), atol=1e-5)
    assert (np.abs(grads[0]).max(-1) > 0).tolist() == mask.tolist()

  def test_temporaries_of_a_real_vocabulary(self):
    """XLA's own count, compiled and never run: below 1/8 of the naive loss."""
    tokens, width, vocab = 4096, 1536, 151_936
    shapes = [
      jax.ShapeDtypeStruct((1, tokens, width), jnp.float32),
      jax.ShapeDtypeStruct((width, vocab), jnp.float32),
      jax.ShapeDtypeStruct((1, tokens), jnp.int32),
      jax.ShapeDtypeStruct((1, tokens), jnp.bool_),
    ]

    def naive(hidden, head, targets, mask):
      logits = hidden @ head
      out = losses.token_logprobs(logits, targets), losses.entropy(logits)
      return sum(jnp.sum(jnp.where(mask, x, 0)) for x in out)

    def lean(*args):
      return sum(map(jnp.sum, losses.chunked_logprobs(*args, chunk=256)))

    used = [
      jax.jit(jax.value_and_grad(f, (0, 1)))
      .lower(*shapes)
      .compile()
      .memory_analysis()
      .temp_size_in_bytes
      for f in (naive, lean)
    ]
    assert used[0] > 4 * tokens * vocab  # it does hold the logits
    assert used[1] < used[0] / 8, used

  def test_nan_under_the_mask_changes_nothing(self):
    hidden, head, targets, mask = inputs()
    rotten = jnp.where(mask[..., None], hidden, jnp.nan)
    bad_targets = jnp.where(mask, targets, -5)

    @jax.jit
    def f(hidden, head, targets):
      def loss(hidden, head):
        out = losses.chunked_logprobs(hidden, head, targets, mask, chunk=4)
        return sum(map(jnp.sum, out))

      return jax.value_and_grad(loss, (0, 1))(hidden, head)

    chex.assert_trees_all_equal(
      f(hidden, head, targets), f(rotten, head, bad_targets)
    )

  def test_never_holds_all_logits(self):
    # No array of R*T*V elements, forward or backward.
    rows, tokens, vocab, chunk = 2, 64, 97, 8
    hidden = jnp.zeros((rows, tokens, 4))
    targets, mask = jnp.zeros((rows, tokens), int), jnp.ones((rows, tokens)) > 0

    def loss(hidden, head):
      out = losses.chunked_logprobs(hidden, head, targets, mask, chunk=chunk)
      return sum(map(jnp.sum, out))

    jaxpr = jax.make_jaxpr(jax.grad(loss, (0, 1)))(
      hidden, jnp.zeros((4, vocab))
    )
    sizes = [
      var.aval.size
      for level in _levels(jaxpr.jaxpr)
      for eqn in level.eqns
      for var in eqn.outvars
    ]
    assert rows * chunk * vocab in sizes
    assert max(sizes) < rows * tokens * vocab

  def test_bfloat16_inputs_are_summed_in_float32(self):
    hidden, head, targets, mask = inputs(jnp.bfloat16)
    got, _ = losses.chunked_logprobs(hidden, head, targets, mask, chunk=4)
    assert got.dtype == jnp.float32
    logits = hidden.astype(jnp.float32) @ head.astype(jnp.float32)
    want = jnp.where(mask, losses.token_logprobs(logits, targets), 0)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def _levels(jaxpr):
  yield jaxpr
  for eqn in jaxpr.eqns:
    for value in jax.tree.leaves(
      list(eqn.params.values()), is_leaf=lambda x: hasattr(x, 'eqns')
    ):
      inner = getattr(value, 'jaxpr', value)
      if hasattr(inner, 'eqns'):
        yield from _levels(inner)
