"""Credit assignment: from rewards of turns to advantages, by groups of ids."""

from agentrl_jax.advantages import estimators
from agentrl_jax.advantages.anchored import (
  anchor_advantages,
  episode_advantages,
  gigpo,
)
from agentrl_jax.advantages.broadcast import (
  broadcast_turns,
  gather_tokens,
  scatter_tokens,
  token_ranks,
)
from agentrl_jax.advantages.grouped import group_center, grpo, reinforce, rloo
from agentrl_jax.advantages.measures import diagnostics, outcome_varies
from agentrl_jax.advantages.returns import (
  discounted_returns,
  episode_returns,
  gae,
)

__all__ = [
  'ESTIMATORS',
  'anchor_advantages',
  'broadcast_turns',
  'diagnostics',
  'discounted_returns',
  'episode_advantages',
  'episode_returns',
  'gae',
  'gather_tokens',
  'gigpo',
  'group_center',
  'grpo',
  'outcome_varies',
  'reinforce',
  'rloo',
  'scatter_tokens',
  'token_ranks',
]

ESTIMATORS = {
  'reinforce': estimators.reinforce,
  'rloo': estimators.rloo,
  'grpo': estimators.grpo,
  'dr_grpo': estimators.dr_grpo,
  'gigpo': estimators.gigpo,
}
