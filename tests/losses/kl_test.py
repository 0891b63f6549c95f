"""Locks KL estimators: values, gradients, what is unbiased."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized

from agentrl_jax import losses

MASK = jnp.ones((1, 2), bool)
# Ratios pi/ref 2 and 1/2.
NEW, REF = jnp.log(jnp.array([[2.0, 0.5]])), jnp.zeros((1, 2))
LOG2 = np.log(2)
BY_HAND = {
  # name: (values, gradients w.r.t. log pi)
  'k1': ([LOG2, -LOG2], [1, 1]),
  'abs': ([LOG2, LOG2], [1, -1]),
  'k2': ([LOG2**2 / 2] * 2, [LOG2, -LOG2]),
  # ref/pi - 1 + log(pi/ref): 1/2 - 1 + log 2; 2 - 1 - log 2. 1 - ref/pi.
  'k3': ([LOG2 - 0.5, 1 - LOG2], [0.5, -1]),
  'k3+': ([LOG2 - 0.5, 1 - LOG2], [LOG2, -LOG2]),
}


class KlTest(chex.TestCase):
  @parameterized.parameters(sorted(BY_HAND))
  def test_by_hand(self, name):
    f = jax.jit(lambda x: losses.kl_penalty(x, REF, MASK, estimator=name))
    values, grads = BY_HAND[name]
    np.testing.assert_allclose(f(NEW), [values], rtol=1e-5)
    got = jax.grad(lambda x: f(x).sum())(NEW)
    np.testing.assert_allclose(got, [grads], rtol=1e-5)

  def test_table_is_complete(self):
    assert losses.KL_ESTIMATORS.keys() == BY_HAND.keys()
    with pytest.raises(ValueError, match='k1, abs, k2, k3'):
      losses.kl_penalty(NEW, REF, estimator='k4')

  @parameterized.parameters(sorted(BY_HAND))
  def test_nan_under_the_mask_changes_nothing(self, name):
    mask = jnp.array([[True, False]])

    def f(x, ref):
      return losses.kl_penalty(x, ref, mask, estimator=name).sum()

    want = jax.value_and_grad(f)(NEW, REF)
    for bad in (jnp.nan, -jnp.inf):
      rotten = jnp.where(mask, NEW, bad), jnp.where(mask, REF, bad)
      chex.assert_trees_all_equal(jax.value_and_grad(f)(*rotten), want)

  def test_expectation_of_unbiased_estimators_is_the_kl(self):
    # Enumerated over three tokens: sum_v pi(v) k(v) = KL(pi || ref).
    p, q = np.array([0.2, 0.3, 0.5]), np.array([0.3, 0.3, 0.4])
    kl = np.sum(p * np.log(p / q))
    args = jnp.log(p)[None], jnp.log(q)[None]
    for name in ('k1', 'k3', 'k3+'):
      k = losses.kl_penalty(*args, estimator=name)
      np.testing.assert_allclose(np.sum(p * k[0]), kl, rtol=1e-4)
    # And k2's gradient is the true one: d KL / d logits = p (log p/q - KL).
    logits = jnp.log(p)

    def sampled(x, name):
      logp = jax.nn.log_softmax(x)[None]
      k = losses.kl_penalty(logp, args[1], estimator=name)
      return jnp.sum(p.astype(np.float32) * k[0])

    want = p * (np.log(p / q) - kl)
    for name in ('k2', 'k3+'):
      got = jax.grad(sampled)(logits, name)
      np.testing.assert_allclose(got, want, atol=1e-6)

  def test_small_differences_survive(self):
    # exp(-d) - 1 + d ~ d^2/2 would cancel to 0 or worse without expm1.
    d = jnp.array([[1e-3, -1e-3]])
    out = losses.kl_penalty(d, jnp.zeros((1, 2)))
    np.testing.assert_allclose(out, [[5e-7, 5e-7]], rtol=0.1)

  def test_only_k3_is_clamped_and_a_maximum_bounds_both_sides(self):
    far = jnp.array([[-100.0, 100.0]])  # d
    zeros = jnp.zeros((1, 2))
    out = losses.kl_penalty(far, zeros, estimator='k3')
    np.testing.assert_allclose(out, [[np.expm1(20) - 20, 19]], rtol=1e-6)
    for name, want in {'k1': [-100, 100], 'k2': [5000, 5000]}.items():
      out = losses.kl_penalty(far, zeros, estimator=name)
      np.testing.assert_array_equal(out, [want])
      cut = losses.kl_penalty(far, zeros, estimator=name, maximum=10)
      np.testing.assert_array_equal(cut, np.clip([want], -10, 10))
