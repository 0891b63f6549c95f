"""How far is the policy from its reference, estimated on sampled tokens?

Each estimator is a function of d = log π - log π_ref at a token sampled from
π; the table at the end names them.
"""

import chex
import jax
import jax.numpy as jnp

from agentrl_jax.losses.clamp import MAX_LOG_RATIO, difference


def k1(d: chex.Array) -> chex.Array:
  """d: unbiased, noisy, and of gradient 1 everywhere."""
  return d


def absolute(d: chex.Array) -> chex.Array:
  """|d|."""
  return jnp.abs(d)


def k2(d: chex.Array) -> chex.Array:
  """½ d²: biased in value, its gradient is that of the true KL."""
  return 0.5 * jnp.square(d)


def k3(d: chex.Array) -> chex.Array:
  """exp(-d) - 1 + d, d in ±20: unbiased and never negative."""
  d = jnp.clip(d, -MAX_LOG_RATIO, MAX_LOG_RATIO)
  return jnp.expm1(-d) + d


def k3_plus(d: chex.Array) -> chex.Array:
  """The value of k3 with the gradient of k2 (straight-through)."""
  return jax.lax.stop_gradient(k3(d)) + k2(d) - jax.lax.stop_gradient(k2(d))


ESTIMATORS = {
  'k1': k1,
  'abs': absolute,
  'k2': k2,
  'k3': k3,
  'k3+': k3_plus,
}


def kl_penalty(
  logprobs: chex.Array,
  reference_logprobs: chex.Array,
  mask: chex.Array | None = None,
  *,
  estimator: str = 'k3',
  maximum: float | None = None,
) -> chex.Array:
  """Estimates KL(π || π_ref) token by token.

      d = log π - log π_ref
      k1 = d,  k2 = ½ d²,  k3 = exp(-d) - 1 + d,  k3+ = k3 with k2's gradient

  Only k3 clamps d (to ±20): the others cannot overflow, and k1 and k2 keep
  pulling back however far the policy has drifted.

  Args:
    logprobs: [R, T] float32, current policy.
    reference_logprobs: [R, T] float32.
    mask: [R, T] bool; None counts every token.
    estimator: one of `kl.ESTIMATORS`.
    maximum: bound on |value| (and then no gradient beyond it); None = none.

  Returns:
    [R, T] float32, 0 where masked.

  Raises:
    ValueError: unknown estimator.

  Reference: Schulman 2020, joschu.net/blog/kl-approx.html. verl cuts k3 at
  ±10 (`maximum=10`): no gradient just where the policy has drifted furthest.
  """
  if estimator not in ESTIMATORS:
    known = ', '.join(ESTIMATORS)
    raise ValueError(f'estimator={estimator!r}; allowed: {known}')
  if mask is None:
    mask = jnp.ones(logprobs.shape, bool)
  d = difference(logprobs, reference_logprobs, mask)
  value = ESTIMATORS[estimator](d)
  if maximum is not None:
    value = jnp.clip(value, -maximum, maximum)
  return jnp.where(mask, value, 0.0)
