"""One signature for every estimator: a batch of turns in, [B, S] out.

The mathematics lives in the other files; these lines only say which fields of
the batch an estimator looks at, so that configs can name it. Penalties for
invalid actions reach every trajectory-level estimator in the same way as GiGPO:
subtracted at the turn itself, and not at all where the task's outcomes are
equal, or else the penalty alone would be the signal.
"""

import chex
import jax.numpy as jnp

from agentrl_jax.advantages import anchored, grouped, measures, returns
from agentrl_jax.batch import TurnBatch


def _outcomes(turns: TurnBatch) -> tuple[chex.Array, chex.Array]:
  """Returns (episode returns [B], trajectories with a true turn [B])."""
  totals = returns.episode_returns(turns.turn_rewards, turns.turn_mask)
  return totals, jnp.any(turns.turn_mask, axis=-1)


def _to_turns(
  turns: TurnBatch,
  advantages: chex.Array,
  penalised: chex.Array | bool = True,
) -> chex.Array:
  """Broadcasts [B] to [B, S] and subtracts penalties where `penalised` [B]."""
  counts = jnp.broadcast_to(jnp.asarray(penalised), advantages.shape)
  penalties = jnp.where(counts[:, None], turns.turn_penalties, 0)
  return jnp.where(turns.turn_mask, advantages[:, None] - penalties, 0)


def reinforce(turns: TurnBatch, **options) -> chex.Array:
  """`grouped.reinforce`; options: baseline."""
  totals, mask = _outcomes(turns)
  return _to_turns(turns, grouped.reinforce(totals, mask, **options))


def rloo(turns: TurnBatch, **options) -> chex.Array:
  """`grouped.rloo`; options: num_groups."""
  totals, mask = _outcomes(turns)
  advantages = grouped.rloo(totals, turns.group_ids, mask, **options)
  return _to_turns(turns, advantages, measures.outcome_varies(turns))


def grpo(turns: TurnBatch, **options) -> chex.Array:
  """`anchored.episode_advantages`: `grouped.grpo`, less penalties."""
  return anchored.episode_advantages(
    turns.turn_rewards,
    turns.group_ids,
    turns.turn_mask,
    turn_penalties=turns.turn_penalties,
    **options,
  )


def dr_grpo(turns: TurnBatch, **options) -> chex.Array:
  """`grpo` with scale='none'."""
  return grpo(turns, **({'scale': 'none'} | options))


def gigpo(turns: TurnBatch, **options) -> chex.Array:
  """`anchored.gigpo`."""
  return anchored.gigpo(
    turns.turn_rewards,
    turns.group_ids,
    turns.anchor_ids,
    turns.turn_mask,
    turn_penalties=turns.turn_penalties,
    **options,
  )
