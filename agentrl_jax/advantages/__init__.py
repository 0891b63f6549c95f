"""Credit assignment: from rewards of turns to advantages, by groups of ids.

`ESTIMATORS[name](turns, **options) -> [B, S]` and `TOKEN_ESTIMATORS[name](
token_rewards [B, T], values [B, T] or None, group_ids [B], mask [B, T],
**options) -> [B, T]` are what configs name: a name is in one of the tables and
so says the level. VALUE_ESTIMATORS take `values`, of a learned value function;
PLAYED_ESTIMATORS take returns of episodes that are played for comparison.
"""

from agentrl_jax.advantages import estimators
from agentrl_jax.advantages.anchored import (
  anchor_advantages,
  episode_advantages,
  gigpo,
)
from agentrl_jax.advantages.baselines import maxrl, opo, pass_at_k, remax
from agentrl_jax.advantages.broadcast import (
  broadcast_turns,
  gather_tokens,
  scatter_tokens,
  token_ranks,
)
from agentrl_jax.advantages.calibrated import action_advantages, ecpo
from agentrl_jax.advantages.controls import (
  return_to_go,
  shuffled_anchors,
  turn_index_anchors,
)
from agentrl_jax.advantages.graph import goal_distances, graphgpo
from agentrl_jax.advantages.grouped import group_center, grpo, reinforce, rloo
from agentrl_jax.advantages.history import hgpo, hgpo_level_weights
from agentrl_jax.advantages.measures import diagnostics, outcome_varies
from agentrl_jax.advantages.returns import (
  discounted_returns,
  episode_returns,
  gae,
  vineppo,
)
from agentrl_jax.advantages.whitened import (
  rebn,
  reinforce_pp,
  reinforce_pp_baseline,
  whiten,
)

__all__ = [
  'ESTIMATORS',
  'PLAYED_ESTIMATORS',
  'TOKEN_ESTIMATORS',
  'VALUE_ESTIMATORS',
  'action_advantages',
  'anchor_advantages',
  'broadcast_turns',
  'diagnostics',
  'discounted_returns',
  'ecpo',
  'episode_advantages',
  'episode_returns',
  'gae',
  'gather_tokens',
  'gigpo',
  'goal_distances',
  'graphgpo',
  'group_center',
  'grpo',
  'hgpo',
  'hgpo_level_weights',
  'maxrl',
  'opo',
  'outcome_varies',
  'pass_at_k',
  'rebn',
  'reinforce',
  'reinforce_pp',
  'reinforce_pp_baseline',
  'remax',
  'return_to_go',
  'rloo',
  'scatter_tokens',
  'shuffled_anchors',
  'token_ranks',
  'turn_index_anchors',
  'vineppo',
  'whiten',
]

ESTIMATORS = {
  'reinforce': estimators.reinforce,
  'rloo': estimators.rloo,
  'grpo': estimators.grpo,
  'dr_grpo': estimators.dr_grpo,
  'gigpo': estimators.gigpo,
  'hgpo': estimators.hgpo,
  'graphgpo': estimators.graphgpo,
  'ecpo': estimators.ecpo,
  'vineppo': estimators.vineppo,
  'gae': estimators.gae,
  'rebn': estimators.rebn,
  'opo': estimators.opo,
  'maxrl': estimators.maxrl,
  'pass_at_k': estimators.pass_at_k,
  'remax': estimators.remax,
  'return_to_go': estimators.return_to_go,
  'gigpo_shuffled': estimators.gigpo_shuffled,
  'gigpo_turn_index': estimators.gigpo_turn_index,
}

TOKEN_ESTIMATORS = {
  'token_gae': estimators.token_gae,
  'reinforce_pp': estimators.token_reinforce_pp,
  'reinforce_pp_baseline': estimators.token_reinforce_pp_baseline,
}

VALUE_ESTIMATORS = frozenset({'gae', 'token_gae'})

PLAYED_ESTIMATORS = frozenset({'remax', 'vineppo'})
