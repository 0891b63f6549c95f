"""Norm and feed-forward of a decoder block as functions of arrays."""

import jax
import jax.numpy as jnp


def rms_norm(x: jax.Array, scale: jax.Array, epsilon: float) -> jax.Array:
  """Scales `x` to unit root mean square over its last axis, in float32."""
  y = x.astype(jnp.float32)
  y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + epsilon)
  scale = jax.lax.expand_dims(scale.astype(jnp.float32), range(y.ndim - 1))
  return (y * scale).astype(x.dtype)


def swiglu(x: jax.Array, layer: dict) -> jax.Array:
  """Gated feed-forward [..., D] -> [..., D]."""
  gate = jax.nn.silu(x @ layer['gate'].astype(x.dtype))
  return (gate * (x @ layer['up'].astype(x.dtype))) @ layer['down'].astype(
    x.dtype
  )
