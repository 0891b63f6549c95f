"""Norm and feed-forward of a decoder block as functions of arrays."""

import functools

import jax
import jax.numpy as jnp

from agentrl_jax.models import lora

ACTIVATIONS = {
  'silu': jax.nn.silu,
  'gelu_tanh': functools.partial(jax.nn.gelu, approximate=True),
}


def rms_norm(x: jax.Array, scale: jax.Array, epsilon: float) -> jax.Array:
  """Scales `x` to unit root mean square over its last axis, in float32."""
  y = x.astype(jnp.float32)
  y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + epsilon)
  scale = jax.lax.expand_dims(scale.astype(jnp.float32), range(y.ndim - 1))
  return (y * scale).astype(x.dtype)


def gated_mlp(
  x: jax.Array,
  layer: dict,
  adapters: lora.Lora | None = None,
  *,
  activation: str = 'silu',
) -> jax.Array:
  """Gated feed-forward [..., D] -> [..., D]: (f(x G) * (x U)) W.

  Args:
    x: [..., D].
    layer: gate, up [D, F] and down [F, D].
    adapters: beside them, if any.
    activation: f, a name in `ACTIVATIONS`.
  """
  gate = lora.linear(adapters, layer, 'gate', x)
  gate = ACTIVATIONS[activation](gate)
  up = lora.linear(adapters, layer, 'up', x)
  return lora.linear(adapters, layer, 'down', gate * up)
