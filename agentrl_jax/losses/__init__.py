"""Losses on tokens: policy, KL, value, and how tokens are weighted."""

from agentrl_jax.losses.aggregate import aggregate, token_weights
from agentrl_jax.losses.kl import kl_penalty
from agentrl_jax.losses.likelihood import (
  chunked_logprobs,
  entropy,
  token_logprobs,
)
from agentrl_jax.losses.policy import ppo_clip_loss

__all__ = [
  'aggregate',
  'chunked_logprobs',
  'entropy',
  'kl_penalty',
  'ppo_clip_loss',
  'token_logprobs',
  'token_weights',
]
