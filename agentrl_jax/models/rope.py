"""Rotary positions: angles of positions, and heads turned by them."""

import jax
import jax.numpy as jnp


def tables(
  positions: jax.Array, head_dim: int, theta: float
) -> tuple[jax.Array, jax.Array]:
  """Returns cos and sin [..., C/2] of the rotary angles of `positions`."""
  fraction = jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim
  rates = jax.lax.expand_dims(theta**-fraction, range(positions.ndim))
  angles = positions[..., None].astype(jnp.float32) * rates
  return jnp.cos(angles), jnp.sin(angles)


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
  """Rotates [R, T, heads, C] by tables [R, T, C/2] (half-split pairs)."""
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  cos, sin = cos[:, :, None, :], sin[:, :, None, :]
  turned = jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin], axis=-1
  )
  return turned.astype(x.dtype)
