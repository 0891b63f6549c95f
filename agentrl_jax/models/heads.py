"""From hidden states to logits, and to values where there is such a head."""

import jax
import jax.numpy as jnp

from agentrl_jax.models.config import ModelConfig
from agentrl_jax.models.policy import Policy, own


def matrix(config: ModelConfig | Policy, params: dict) -> jax.Array:
  """Returns the output matrix [D, V]."""
  if isinstance(config, Policy):
    return config.head(own(config, params))
  if config.tie_embeddings:
    return params['embed']['table'].T
  return params['head']


def logits(config: ModelConfig, params: dict, hidden: jax.Array) -> jax.Array:
  """Returns float32 logits [..., V] of hidden states [..., D]."""
  head = matrix(config, params).astype(hidden.dtype)
  return jnp.einsum(
    '...d,dv->...v', hidden, head, preferred_element_type=jnp.float32
  )


def values(params: dict, hidden: jax.Array) -> jax.Array:
  """Returns float32 values [...] of the states after hidden states [..., D]."""
  head = params['value']
  return hidden.astype(jnp.float32) @ head['kernel'] + head['bias']
