"""How are two log-probabilities compared without overflow or NaN?"""

import chex
import jax.numpy as jnp

MAX_LOG_RATIO = 20.0


def difference(
  logprobs: chex.Array, other_logprobs: chex.Array, mask: chex.Array
) -> chex.Array:
  """Returns log π - log μ, 0 where masked.

  Masked *before* the subtraction, so that NaN or -inf under the mask reaches
  neither values nor gradients.

  Args:
    logprobs: [R, T] float, log π.
    other_logprobs: [R, T] float, log μ.
    mask: [R, T] bool.

  Returns:
    [R, T] float32.
  """
  chex.assert_equal_shape([logprobs, other_logprobs, mask])
  chex.assert_type(mask, bool)
  left = jnp.where(mask, logprobs, 0).astype(jnp.float32)
  right = jnp.where(mask, other_logprobs, 0).astype(jnp.float32)
  return left - right


def clamped_difference(
  logprobs: chex.Array, other_logprobs: chex.Array, mask: chex.Array
) -> chex.Array:
  """Returns `difference` within ±20, safe to exponentiate."""
  log_ratio = difference(logprobs, other_logprobs, mask)
  return jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO)
