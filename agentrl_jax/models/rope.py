"""Rotary positions: angles of positions, and heads turned by them."""

import math

import jax
import jax.numpy as jnp

from agentrl_jax.models.config import RopeScaling


def tables(
  positions: jax.Array,
  head_dim: int,
  theta: float,
  scaling: RopeScaling | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Returns cos and sin [..., C/2] of the rotary angles of `positions`.

  Args:
    positions: [...] int32.
    head_dim: C.
    theta: rotary base.
    scaling: see `RopeScaling`; its attention factor multiplies both tables.
  """
  rates = scaled_rates(head_dim, theta, scaling)
  rates = jax.lax.expand_dims(rates, range(positions.ndim))
  angles = positions[..., None].astype(jnp.float32) * rates
  cos, sin = jnp.cos(angles), jnp.sin(angles)
  factor = attention_factor(scaling)
  return (cos, sin) if factor == 1.0 else (cos * factor, sin * factor)


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
  """Rotates [R, T, heads, C] by tables [R, T, C/2] (half-split pairs)."""
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  cos, sin = cos[:, :, None, :], sin[:, :, None, :]
  turned = jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin], axis=-1
  )
  return turned.astype(x.dtype)


def scaled_rates(
  head_dim: int, theta: float, scaling: RopeScaling | None
) -> jax.Array:
  """Returns radians a position [C/2] float32: θ^(-2i/C), scaled.

  Raises:
    ValueError: a kind of scaling that is not in `SCALINGS`.
  """
  fraction = jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim
  rates = theta**-fraction
  if scaling is None:
    return rates
  if scaling.rope_type not in SCALINGS:
    raise ValueError(
      f'rope_type={scaling.rope_type!r} is not one of {sorted(SCALINGS)}'
    )
  return SCALINGS[scaling.rope_type](rates, theta, scaling)


def attention_factor(scaling: RopeScaling | None) -> float:
  """Returns what multiplies cos and sin: 1 but for yarn.

  0.1 ln(factor) + 1 (Peng et al., 2023, arXiv:2309.00071, equation 22). With
  m = mscale and m' = mscale_all_dim it is (0.1 m ln(factor) + 1) over the same
  of m', as DeepSeek's models have it.
  """
  if scaling is None or scaling.rope_type != 'yarn':
    return 1.0
  if scaling.attention_factor is not None:
    return scaling.attention_factor
  stretch = 0.1 * math.log(max(scaling.factor, 1.0))
  if scaling.mscale and scaling.mscale_all_dim:
    return (scaling.mscale * stretch + 1) / (
      scaling.mscale_all_dim * stretch + 1
    )
  return stretch + 1


def _linear(rates, theta, scaling):
  """Positions are divided by the factor."""
  del theta
  return rates / scaling.factor


def _llama3(rates, theta, scaling):
  """Long waves are stretched, short ones kept, in between a mixture."""
  del theta
  original = scaling.original_max_position_embeddings
  low, high = scaling.low_freq_factor, scaling.high_freq_factor
  rotations = original * rates / (2 * math.pi)  # within the original context
  kept = jnp.clip((rotations - low) / (high - low), 0.0, 1.0)
  return (1 - kept) * rates / scaling.factor + kept * rates


def _yarn(rates, theta, scaling):
  """As llama3, but the mixture is linear in the number of the pair."""
  num_pairs = rates.shape[0]

  def pair(num_rotations):
    """The pair that turns so often within the original context."""
    original = scaling.original_max_position_embeddings
    waves = math.log(original / (num_rotations * 2 * math.pi))
    return num_pairs * waves / math.log(theta)

  low, high = pair(scaling.beta_fast), pair(scaling.beta_slow)
  if scaling.truncate:
    low, high = math.floor(low), math.ceil(high)
  low, high = max(low, 0), min(high, 2 * num_pairs - 1)
  width = high - low if high != low else 1e-3
  ramp = (jnp.arange(num_pairs, dtype=jnp.float32) - low) / width
  stretched = jnp.clip(ramp, 0.0, 1.0)
  return stretched * rates / scaling.factor + (1 - stretched) * rates


SCALINGS = {'linear': _linear, 'llama3': _llama3, 'yarn': _yarn}
