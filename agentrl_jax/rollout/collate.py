"""From trajectories to arrays: turns for credit, packed rows for the learner.

Masks, log-probabilities and versions are copied from where the tokens were
born; nothing is searched for. Weights are given once, over all rows of an
optimizer update.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from agentrl_jax import losses, packing, types
from agentrl_jax.batch import TokenBatch, TurnBatch
from agentrl_jax.rollout import measures


def turn_batch(
  groups: Sequence[types.Group],
  anchor_ids: np.ndarray,
  history_ids: np.ndarray,
  *,
  num_turns: int,
  invalid_penalty: float = 0.0,
) -> TurnBatch:
  """Lays turns out as [B, S], trajectories in the order of the groups.

  Args:
    groups: trajectories with reward parts under `rewards['total']`.
    anchor_ids: [B, S] int32.
    history_ids: [B, S, L] int32.
    num_turns: S.
    invalid_penalty: subtracted at turns that were not well-formed.

  Returns:
    Host arrays. An infrastructure failure has no true turn, so that it is in
    no statistic.
  """
  flat = [(g, t) for g, group in enumerate(groups) for t in group.trajectories]
  shape = (len(flat), num_turns)
  rewards, penalties = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
  mask = np.zeros(shape, bool)
  actions = np.full(shape, -1, np.int32)
  names: dict[str, int] = {}
  for b, (_, trajectory) in enumerate(flat):
    if not trajectory.stop_reason.trainable:
      continue
    for s, turn in enumerate(trajectory.turns):
      mask[b, s] = True
      rewards[b, s] = trajectory.rewards['total'][s]
      action = measures.canonical_action(turn)
      actions[b, s] = names.setdefault(action, len(names))
      if not turn.info.get('valid', True):
        penalties[b, s] = invalid_penalty
  return TurnBatch(
    turn_rewards=rewards,
    turn_mask=mask,
    group_ids=np.array([g for g, _ in flat], np.int32),
    anchor_ids=np.where(mask, anchor_ids, -1).astype(np.int32),
    history_ids=np.where(mask[..., None], history_ids, -1).astype(np.int32),
    turn_penalties=penalties,
    action_ids=actions,
  )


def token_rows(
  trajectories: Sequence[types.Trajectory],
  turn_advantages: np.ndarray,
  indices: Sequence[int],
  *,
  row_length: int,
  num_rows: int,
) -> TokenBatch:
  """Packs the contexts of some trajectories into rows; weights are still 0.

  Args:
    trajectories: all of the iteration.
    turn_advantages: [B, S] float32.
    indices: which of them to pack.
    row_length: T.
    num_rows: R is the next multiple of it; the last rows are empty.

  Returns:
    Host arrays [R, T].

  Raises:
    ValueError: a context is longer than a row.
  """
  items = [
    (b, c) for b in indices for c in range(len(trajectories[b].contexts))
  ]
  lengths = [len(trajectories[b].contexts[c].tokens) for b, c in items]
  rows = packing.pack(lengths, row_length)
  height = max(-(-len(rows) // num_rows), 1) * num_rows
  batch = empty_rows(height, row_length)
  for r, row in enumerate(rows):
    start = 0
    for segment, i in enumerate(row, 1):
      b, c = items[i]
      end = start + lengths[i]
      place = (r, slice(start, end))
      _write(batch, place, segment, b, c, trajectories[b], turn_advantages[b])
      start = end
  return batch


def empty_rows(num_rows: int, row_length: int) -> TokenBatch:
  """Returns rows without a token."""
  shape = (num_rows, row_length)

  def full(value, dtype):
    return np.full(shape, value, dtype)

  return TokenBatch(
    tokens=full(0, np.int32),
    positions=full(0, np.int32),
    segment_ids=full(0, np.int32),
    mask=full(False, bool),
    weights=full(0, np.float32),
    advantages=full(0, np.float32),
    behavior_logprobs=full(0, np.float32),
    versions=full(-1, np.int32),
    row_trajectory=full(-1, np.int32),
    row_turn=full(-1, np.int32),
  )


def _write(batch, place, segment, b, c, trajectory, advantages):
  context = trajectory.contexts[c]
  r, columns = place
  batch.tokens[place] = context.tokens
  batch.positions[place] = np.arange(len(context.tokens))
  batch.segment_ids[place] = segment
  batch.mask[place] = context.sampled_mask
  batch.behavior_logprobs[place] = context.logprobs
  batch.versions[place] = context.versions
  batch.row_trajectory[place] = b
  for s, turn in enumerate(trajectory.turns):
    if turn.context == c:
      span = (r, slice(columns.start + turn.start, columns.start + turn.end))
      batch.row_turn[span] = s
      batch.advantages[span] = advantages[s]


@functools.partial(
  jax.jit,
  static_argnames=(
    'weighting',
    'constant',
    'num_trajectories',
  ),
)
def _weights(mask, sequence_ids, trajectory_ids, **options):
  return losses.token_weights(
    mask,
    sequence_ids=sequence_ids,
    trajectory_ids=trajectory_ids,
    **options,
  )


def with_weights(
  batch: TokenBatch,
  *,
  weighting: str,
  num_trajectories: int,
  constant: float | None = None,
) -> TokenBatch:
  """Gives the tokens of one optimizer update their weights.

  The computation has one shape for a run: rows are padded to one for each
  trajectory, or to the next multiple of it where contexts are more.

  Args:
    batch: all rows of the update.
    weighting: see `losses.token_weights`.
    num_trajectories: B of the iteration.
    constant: divisor of weighting='constant'.
  """
  num_rows, row_length = batch.mask.shape
  height = -(-num_rows // num_trajectories) * num_trajectories
  segments = int(batch.segment_ids.max(initial=0)) + 1
  sequences = batch.segment_ids + np.arange(num_rows)[:, None] * segments
  sequences = np.where(batch.segment_ids > 0, sequences, -1)

  def pad(array, value):
    rest = [(0, height - num_rows), (0, 0)]
    return np.pad(array, rest, constant_values=value)

  weights = _weights(
    pad(batch.mask, False),
    pad(sequences.astype(np.int32), -1),
    pad(batch.row_trajectory, -1),
    weighting=weighting,
    constant=constant,
    num_trajectories=num_trajectories,
  )
  return batch.replace(weights=np.asarray(weights)[:num_rows])


def microbatches(batch: Any, num_rows: int) -> list[Any]:
  """Splits rows into batches of `num_rows`, the learner's one shape.

  Args:
    batch: a TokenBatch, or any tree of arrays [R, ...].
    num_rows: divides R.
  """
  total = jax.tree.leaves(batch)[0].shape[0]
  return [
    jax.tree.map(lambda x, i=i: x[i : i + num_rows], batch)
    for i in range(0, total, num_rows)
  ]
