"""One signature for every estimator: a batch of turns in, [B, S] out.

The mathematics lives in the other files; these lines only say which fields of
the batch an estimator looks at, so that configs can name it. Penalties for
invalid actions reach every trajectory-level estimator in the same way as GiGPO:
subtracted at the turn itself, and not at all where the task's outcomes are
equal, or else the penalty alone would be the signal. Estimators that compare
no outcomes within a task (REINFORCE, ReMax, ReBN, PPO, VinePPO) subtract it
always.
"""

import chex
import jax
import jax.numpy as jnp

from agentrl_jax.advantages import (
  anchored,
  baselines,
  calibrated,
  controls,
  graph,
  grouped,
  history,
  measures,
  returns,
  whitened,
)
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


def hgpo(
  turns: TurnBatch, *, alpha: float = 1.0, offset: int = 1, **options
) -> chex.Array:
  """`history.hgpo` with level weights (j + offset)^alpha unless given."""
  if options.get('level_weights') is None:
    options['level_weights'] = history.hgpo_level_weights(
      turns.history_ids.shape[-1], alpha=alpha, offset=offset
    )
  return history.hgpo(
    turns.turn_rewards,
    turns.group_ids,
    turns.history_ids,
    turns.turn_mask,
    turn_penalties=turns.turn_penalties,
    **options,
  )


def graphgpo(turns: TurnBatch, **options) -> chex.Array:
  """`graph.graphgpo`."""
  return graph.graphgpo(
    turns.turn_rewards,
    turns.group_ids,
    turns.anchor_ids,
    turns.turn_mask,
    turn_penalties=turns.turn_penalties,
    **options,
  )


def ecpo(turns: TurnBatch, **options) -> chex.Array:
  """`calibrated.ecpo`."""
  return calibrated.ecpo(
    turns.turn_rewards,
    turns.group_ids,
    turns.anchor_ids,
    turns.action_ids,
    turns.turn_mask,
    turn_penalties=turns.turn_penalties,
    **options,
  )


def return_to_go(turns: TurnBatch, **options) -> chex.Array:
  """`controls.return_to_go`."""
  return controls.return_to_go(
    turns.turn_rewards,
    turns.group_ids,
    turns.turn_mask,
    turn_penalties=turns.turn_penalties,
    **options,
  )


def gigpo_shuffled(turns: TurnBatch, *, seed: int = 0, **options) -> chex.Array:
  """`gigpo` over anchors shuffled within each task: a placebo."""
  ids = controls.shuffled_anchors(
    turns.anchor_ids, turns.group_ids, turns.turn_mask, jax.random.key(seed)
  )
  return gigpo(turns.replace(anchor_ids=ids), **options)


def gigpo_turn_index(turns: TurnBatch, **options) -> chex.Array:
  """`gigpo` over the turn's number as its state: a placebo."""
  ids = controls.turn_index_anchors(turns.turn_mask)
  return gigpo(turns.replace(anchor_ids=ids), **options)


def rebn(turns: TurnBatch, **options) -> chex.Array:
  """`whitened.rebn`, less penalties at their own turn."""
  advantages = whitened.rebn(turns.turn_rewards, turns.turn_mask, **options)
  return jnp.where(turns.turn_mask, advantages - turns.turn_penalties, 0)


def opo(turns: TurnBatch, *, lengths: chex.Array | None = None, **options):
  """`baselines.opo`; lengths [B] default to the number of turns."""
  totals, mask = _outcomes(turns)
  if lengths is None:
    lengths = jnp.sum(turns.turn_mask, axis=-1)
  advantages = baselines.opo(totals, lengths, turns.group_ids, mask, **options)
  return _to_turns(turns, advantages, measures.outcome_varies(turns))


def maxrl(turns: TurnBatch, **options) -> chex.Array:
  """`baselines.maxrl`."""
  totals, mask = _outcomes(turns)
  advantages = baselines.maxrl(totals, turns.group_ids, mask, **options)
  return _to_turns(turns, advantages, measures.outcome_varies(turns))


def pass_at_k(turns: TurnBatch, **options) -> chex.Array:
  """`baselines.pass_at_k`."""
  totals, mask = _outcomes(turns)
  advantages = baselines.pass_at_k(totals, turns.group_ids, mask, **options)
  return _to_turns(turns, advantages, measures.outcome_varies(turns))


def remax(turns: TurnBatch, *, greedy_returns: chex.Array) -> chex.Array:
  """`baselines.remax`; greedy_returns [B], NaN = not known: 0."""
  totals, mask = _outcomes(turns)
  mask &= ~jnp.isnan(greedy_returns)
  return _to_turns(turns, baselines.remax(totals, greedy_returns, mask))


def gae(
  turns: TurnBatch,
  *,
  values: chex.Array,
  gamma: float = 1.0,
  lam: float = 0.95,
  bootstrap_values: chex.Array | None = None,
) -> chex.Array:
  """`returns.gae` over turns (PPO); values [B, S], penalties as rewards."""
  advantages, _ = returns.gae(
    turns.turn_rewards - turns.turn_penalties,
    values,
    turns.turn_mask,
    gamma=gamma,
    lam=lam,
    bootstrap_values=bootstrap_values,
  )
  return advantages


def vineppo(
  turns: TurnBatch, *, continuation_returns: chex.Array, **options
) -> chex.Array:
  """`returns.vineppo`; continuation_returns [B, S, K], penalties local."""
  return returns.vineppo(
    turns.turn_rewards - turns.turn_penalties,
    continuation_returns,
    turns.turn_mask,
    **options,
  )


def token_gae(
  token_rewards: chex.Array,
  values: chex.Array,
  group_ids: chex.Array,
  mask: chex.Array,
  *,
  gamma: float = 1.0,
  lam: float = 0.95,
  bootstrap_values: chex.Array | None = None,
) -> chex.Array:
  """`returns.gae` over tokens (PPO); all [B, T] but group_ids [B]."""
  del group_ids
  advantages, _ = returns.gae(
    token_rewards,
    values,
    mask,
    gamma=gamma,
    lam=lam,
    bootstrap_values=bootstrap_values,
  )
  return advantages


def token_reinforce_pp(
  token_rewards: chex.Array,
  values: chex.Array | None,
  group_ids: chex.Array,
  mask: chex.Array,
  *,
  gamma: float = 1.0,
) -> chex.Array:
  """`whitened.reinforce_pp`; a trajectory in no group (-1) is left out."""
  del values
  counts = mask & (group_ids >= 0)[:, None]
  return whitened.reinforce_pp(token_rewards, counts, gamma=gamma)


def token_reinforce_pp_baseline(
  token_rewards: chex.Array,
  values: chex.Array | None,
  group_ids: chex.Array,
  mask: chex.Array,
  **options,
) -> chex.Array:
  """`whitened.reinforce_pp_baseline` of the sum of token rewards."""
  del values
  totals = returns.episode_returns(token_rewards, mask)
  return whitened.reinforce_pp_baseline(totals, group_ids, mask, **options)
