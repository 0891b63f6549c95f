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
  shorter: Sequence[int] = (),
) -> TokenBatch:
  """Packs the contexts of some trajectories into rows; weights are still 0.

  Args:
    trajectories: all of the iteration.
    turn_advantages: [B, S] float32.
    indices: which of them to pack.
    row_length: T.
    num_rows: R is the next multiple of it; the last rows are empty.
    shorter: lengths that divide T, descending; a microbatch of rows in which no
      context crosses a multiple of one can be cut there, see `cuts`.

  Returns:
    Host arrays [R, T].

  Raises:
    ValueError: a context is longer than a row.
  """
  items = [
    (b, c) for b in indices for c in range(len(trajectories[b].contexts))
  ]
  lengths = [len(trajectories[b].contexts[c].tokens) for b, c in items]
  rows = packing.pack_pieces(lengths, (row_length, *shorter), num_rows)
  height = max(len(rows), num_rows)
  batch = empty_rows(height, row_length, routes=_any_routes(trajectories))
  for r, row in enumerate(rows):
    for segment, (start, i) in enumerate(row, 1):
      b, c = items[i]
      place = (r, slice(start, start + lengths[i]))
      _write(batch, place, segment, b, c, trajectories[b], turn_advantages[b])
  return batch


def empty_rows(
  num_rows: int, row_length: int, *, routes: np.ndarray | None = None
) -> TokenBatch:
  """Returns rows without a token.

  Args:
    num_rows, row_length: R and T.
    routes: [..., L, k], any experts of any tokens: the rows then have room for
      such; None = the sampler records none.
  """
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
    routes=None
    if routes is None
    else np.full((*shape, *routes.shape[-2:]), -1, routes.dtype),
  )


def route_kind(batch: TokenBatch) -> list[Any] | None:
  """Returns [L, k, dtype] of a batch's routes, None if it has none; JSON."""
  if batch.routes is None:
    return None
  return [*batch.routes.shape[-2:], batch.routes.dtype.name]


def with_route_kind(batch: TokenBatch, kind: list[Any] | None) -> TokenBatch:
  """Gives a batch without routes some of that kind, all unknown."""
  if kind is None or batch.routes is not None:
    return batch
  *shape, dtype = kind
  routes = np.full((*batch.mask.shape, *shape), -1, dtype)
  return batch.replace(routes=routes)


def _any_routes(
  trajectories: Sequence[types.Trajectory],
) -> np.ndarray | None:
  contexts = (c for t in trajectories for c in t.contexts)
  found = next((c.routes for c in contexts if c.routes is not None), None)
  return None if found is None else _array(found)


def _array(routes: types.Routes) -> np.ndarray:
  return np.frombuffer(routes.data, routes.dtype).reshape(routes.shape)


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
  if context.routes is not None:
    batch.routes[place] = _array(context.routes)
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
  num_rows = len(batch.mask)
  height = -(-num_rows // num_trajectories) * num_trajectories

  def pad(array, value):
    rest = [(0, height - num_rows), (0, 0)]
    return np.pad(array, rest, constant_values=value)

  weights = _weights(
    pad(batch.mask, False),
    pad(sequence_ids(batch), -1),
    pad(batch.row_trajectory, -1),
    weighting=weighting,
    constant=constant,
    num_trajectories=num_trajectories,
  )
  return batch.replace(weights=np.asarray(weights)[:num_rows])


def sequence_ids(batch: TokenBatch) -> np.ndarray:
  """Returns [R, T] int32 ids of packed segments, -1 = in none."""
  segments = int(batch.segment_ids.max(initial=0)) + 1
  rows = np.arange(len(batch.segment_ids))[:, None]
  ids = batch.segment_ids + rows * segments
  return np.where(batch.segment_ids > 0, ids, -1).astype(np.int32)


def pad_rows(batch: TokenBatch, height: int) -> TokenBatch:
  """Appends rows without a token until there are `height`."""
  empty = empty_rows(
    height - len(batch.mask), batch.mask.shape[1], routes=batch.routes
  )
  return jax.tree.map(lambda x, e: np.concatenate([x, e]), batch, empty)


def microbatches(
  batch: Any, num_rows: int, pieces: Sequence[int] = ()
) -> list[Any]:
  """Splits rows into batches of `num_rows`, the learner's one shape.

  Args:
    batch: a TokenBatch, or any tree of arrays [R, T, ...].
    num_rows: divides R.
    pieces: as `cuts` gives them: the rows of each microbatch are cut into
      pieces of such a length, [num_rows, T] into [num_rows · T / piece, piece].
  """
  starts = range(0, jax.tree.leaves(batch)[0].shape[0], num_rows)

  def cut(start, piece):
    rows = jax.tree.map(
      lambda x: x[start : start + num_rows].reshape(-1, piece, *x.shape[2:]),
      batch,
    )
    if isinstance(rows, TokenBatch):  # segments count from 1 in each piece
      ids = rows.segment_ids
      ids = np.where(ids > 0, ids - np.maximum(ids[:, :1], 1) + 1, 0)
      rows = rows.replace(segment_ids=ids.astype(np.int32))
    return rows

  if pieces:
    return [cut(i, piece) for i, piece in zip(starts, pieces, strict=True)]
  return [
    jax.tree.map(lambda x, i=i: x[i : i + num_rows], batch) for i in starts
  ]


def cuts(batch: TokenBatch, num_rows: int, shorter: Sequence[int]) -> list[int]:
  """Returns the shortest length that each microbatch's rows can be cut to.

  Attention costs as much as the square of a row's length, and a program is
  compiled for each length that occurs.

  Args:
    batch: rows [R, T].
    num_rows: of a microbatch.
    shorter: lengths that divide T.

  Returns:
    For each microbatch T or one of `shorter`, at which no segment is cut;
    nothing where there is no shorter length.
  """
  if not shorter:
    return []
  length = batch.mask.shape[1]
  ids = batch.segment_ids.reshape(-1, num_rows, length)
  crosses = (ids[..., 1:] == ids[..., :-1]) & (ids[..., 1:] > 0)
  crosses = crosses.any(axis=1)  # [microbatches, T - 1]: into column 1, 2, ..
  out = np.full(len(ids), length)
  for piece in sorted(shorter, reverse=True):
    fits = ~crosses[:, piece - 1 :: piece].any(axis=1)
    out = np.where(fits, piece, out)
  return out.tolist()
