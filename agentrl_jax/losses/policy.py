"""Which loss turns advantages into a gradient, token by token?

All return [R, T], to be minimised; `aggregate` with `token_weights` makes the
scalar. Advantages are taken as constants.
"""

import chex
import jax
import jax.numpy as jnp

from agentrl_jax.losses.clamp import clamped_difference


def _constants(advantages: chex.Array, mask: chex.Array) -> chex.Array:
  chex.assert_equal_shape([advantages, mask])
  safe = jnp.where(mask, advantages, 0).astype(jnp.float32)
  return jax.lax.stop_gradient(safe)


def _clipped(
  ratio: chex.Array, advantages: chex.Array, low: float, high: float
) -> chex.Array:
  """max(-A r, -A clip(r, 1 - low, 1 + high))."""
  bounded = jnp.clip(ratio, 1 - low, 1 + high)
  return jnp.maximum(-advantages * ratio, -advantages * bounded)


def ppo_clip_loss(
  logprobs: chex.Array,
  old_logprobs: chex.Array,
  advantages: chex.Array,
  mask: chex.Array,
  *,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  dual_clip: float | None = None,
) -> chex.Array:
  """Bounds the gain from moving away from the sampling policy.

      L = max(-A r, -A clip(r, 1 - lo, 1 + hi)),   r = exp(log π - log π_old)
      L = min(L, -c A) for A < 0                   with dual_clip = c

  On-policy (r = 1) its gradient is that of REINFORCE. clip_high > clip_low is
  DAPO's clip-higher (0.28).

  Args:
    logprobs: [R, T] float32, current policy.
    old_logprobs: [R, T] float32, policy that the ratio is taken to.
    advantages: [R, T] float32.
    mask: [R, T] bool.
    clip_low: lo.
    clip_high: hi.
    dual_clip: c > 1, usually 3; None = off.

  Returns:
    [R, T] float32, 0 where masked.

  Reference: Schulman et al. 2017, arXiv:1707.06347, Eq. 7; dual clip: Ye et
  al. 2020, arXiv:1912.09729, Eq. 5; clip-higher: Yu et al. 2025,
  arXiv:2503.14476. Log-ratios are clamped to ±20.
  """
  advantages = _constants(advantages, mask)
  ratio = jnp.exp(clamped_difference(logprobs, old_logprobs, mask))
  loss = _clipped(ratio, advantages, clip_low, clip_high)
  if dual_clip is not None:
    bounded = jnp.minimum(loss, -dual_clip * advantages)
    loss = jnp.where(advantages < 0, bounded, loss)
  return jnp.where(mask, loss, 0.0)
