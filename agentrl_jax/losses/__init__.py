"""Losses on tokens: policy, KL, value, and how tokens are weighted.

`LOSSES[name](logprobs, old_logprobs, advantages, sequence_ids, mask,
**options) -> [R, T]` is one signature for every policy loss; those without a
sequence ratio ignore sequence_ids.
"""

from agentrl_jax.losses import policy
from agentrl_jax.losses.aggregate import WEIGHTINGS, aggregate, token_weights
from agentrl_jax.losses.correction import (
  diagnostics,
  effective_sample_share,
  geometric_rejection_mask,
  icepop_mask,
  interpolated_proximal_logprobs,
  staleness_histogram,
  truncated_importance_weights,
  veto_mask,
)
from agentrl_jax.losses.kl import ESTIMATORS as KL_ESTIMATORS
from agentrl_jax.losses.kl import kl_penalty
from agentrl_jax.losses.likelihood import (
  chunked_logprobs,
  entropy,
  token_logprobs,
)
from agentrl_jax.losses.policy import (
  cispo_loss,
  gmpo_loss,
  gspo_loss,
  ppo_clip_loss,
  reinforce_loss,
  sapo_loss,
)
from agentrl_jax.losses.reweighting import CORRECTIONS, correct
from agentrl_jax.losses.value import value_loss

__all__ = [
  'CORRECTIONS',
  'KL_ESTIMATORS',
  'LOSSES',
  'WEIGHTINGS',
  'aggregate',
  'chunked_logprobs',
  'cispo_loss',
  'correct',
  'diagnostics',
  'effective_sample_share',
  'entropy',
  'geometric_rejection_mask',
  'gmpo_loss',
  'gspo_loss',
  'icepop_mask',
  'interpolated_proximal_logprobs',
  'kl_penalty',
  'ppo_clip_loss',
  'reinforce_loss',
  'sapo_loss',
  'staleness_histogram',
  'token_logprobs',
  'token_weights',
  'truncated_importance_weights',
  'value_loss',
  'veto_mask',
]

LOSSES = {
  'ppo_clip': policy.per_token(policy.ppo_clip_loss),
  'gspo': policy.gspo_loss,
  'gmpo': policy.gmpo_loss,
  'cispo': policy.per_token(policy.cispo_loss),
  'sapo': policy.per_token(policy.sapo_loss),
  'reinforce': policy.per_token(policy.reinforce_loss),
}
