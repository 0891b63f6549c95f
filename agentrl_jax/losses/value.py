"""How is a value function fitted to returns?"""

import chex
import jax
import jax.numpy as jnp


def value_loss(
  values: chex.Array,
  old_values: chex.Array,
  returns: chex.Array,
  mask: chex.Array,
  *,
  clip: float | None = None,
) -> chex.Array:
  """Squares the distance to the return, and bounds the step if asked.

      L = (V - R)²
      L = max((V - R)², (clip(V, V_old - c, V_old + c) - R)²)   with clip=c

  No factor ½: it belongs to the coefficient of the loss.

  Args:
    values: [R, T] float32, current value function.
    old_values: [R, T] float32, at collection; unused without clip.
    returns: [R, T] float32, regression targets (taken as constants).
    mask: [R, T] bool.
    clip: c; None = off.

  Returns:
    [R, T] float32, 0 where masked.

  Reference: Schulman et al. 2017, arXiv:1707.06347 (its public code).
  """
  chex.assert_equal_shape([values, old_values, returns, mask])
  chex.assert_type(mask, bool)

  def safe(x):
    return jnp.where(mask, x, 0).astype(jnp.float32)

  values, target = safe(values), jax.lax.stop_gradient(safe(returns))
  loss = jnp.square(values - target)
  if clip is not None:
    old = jax.lax.stop_gradient(safe(old_values))
    bounded = jnp.clip(values, old - clip, old + clip)
    loss = jnp.maximum(loss, jnp.square(bounded - target))
  return jnp.where(mask, loss, 0.0)
