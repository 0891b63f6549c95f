"""Do the arrays say what the records say? Checks of turn and token batches.

Everything is computed anew from the records with NumPy, sharing nothing with
the code that made the arrays.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentrl_jax import types
from agentrl_jax.batch import TokenBatch, TurnBatch
from agentrl_jax.doctor import findings
from agentrl_jax.doctor.findings import Finding

# Losses that are -advantage where the ratio is 1.
_MINUS_ADVANTAGE = ('ppo_clip', 'gspo', 'gmpo')
# What stands in masked turns must not matter: neither this nor its square.
_RUBBISH = 37.0


def join(batches: Sequence[TokenBatch]) -> dict[str, np.ndarray]:
  """Returns the fields of an update's microbatches, rows below each other.

  Shorter rows are filled up with zeros, which are in no segment.
  """
  length = max(batch.tokens.shape[1] for batch in batches)

  def filled(x):
    x = np.asarray(x)
    rest = [(0, 0), (0, length - x.shape[1])] + [(0, 0)] * (x.ndim - 2)
    return np.pad(x, rest)

  return {
    name: np.concatenate([filled(batch[name]) for batch in batches])
    for name in batches[0]
    if batches[0][name] is not None
  }


def turns(
  batch: TurnBatch, trajectories: Sequence[types.Trajectory]
) -> Finding:
  """Checks that the turn mask holds the trainable turns and no other."""
  mask = np.asarray(batch.turn_mask)
  if mask.shape[0] != len(trajectories):
    return findings.failed(
      'turns', f'{mask.shape[0]} rows for {len(trajectories)} trajectories'
    )
  faults = []
  for b, trajectory in enumerate(trajectories):
    count = len(trajectory.turns) if trajectory.stop_reason.trainable else 0
    if mask[b].sum() != count or not mask[b, :count].all():
      faults.append(
        f'trajectory {b} has {count} turns that count, the mask '
        f'{int(mask[b].sum())}'
      )
  return findings.of('turns', faults, f'{int(mask.sum())} turns')


def padding(
  batch: TurnBatch, credit: Callable[[TurnBatch], Any] | None
) -> Finding:
  """Checks that the estimator gives the same with rubbish in masked turns.

  Args:
    batch: of the iteration.
    credit: the run's own estimator, [B, S] or (values, measures); None = it
      needs more than turns.
  """
  if credit is None:
    return findings.skipped('padding', 'the estimator needs more than turns')
  mask = np.asarray(batch.turn_mask)
  if mask.all():
    return findings.skipped('padding', 'no turn is masked')

  def values(rubbish):
    rewards = np.where(mask, batch.turn_rewards, np.float32(rubbish))
    out = credit(batch.replace(turn_rewards=rewards))
    return np.asarray(out[0] if isinstance(out, tuple) else out)

  clean, spoilt = values(0.0), values(_RUBBISH)
  worst = np.max(np.abs(np.where(mask, clean - spoilt, 0.0)), initial=0.0)
  if not worst <= 1e-5:  # NaN is refused as well
    return findings.failed(
      'padding', f'rubbish in masked turns moves an advantage by {worst:.3g}'
    )
  return findings.ok('padding', f'{int((~mask).sum())} masked turns')


def mask(
  updates: Sequence[Mapping[str, np.ndarray]],
  trajectories: Sequence[types.Trajectory],
  *,
  complete: bool = True,
) -> Finding:
  """Checks that trained are the sampled tokens of every turn, none else.

  Args:
    updates: joined microbatches of each.
    trajectories: of the iteration.
    complete: as of `records.spans`.
  """
  faults, count = [], 0
  for update in updates:
    for where, segment, trajectory, c in _segments(update, trajectories):
      if c is None:
        faults.append(f'{where}: its tokens are in no context')
        continue
      trained, owner = segment['mask'], _owner(trajectory, c)
      count += int(trained.sum())
      wrong = trained & (owner < 0)
      if complete:
        wrong |= ~trained & (owner >= 0)
      if wrong.any():
        at = int(np.argmax(wrong))
        what = 'trained' if trained[at] else 'not trained'
        of = f'of turn {owner[at]}' if owner[at] >= 0 else 'of no turn'
        faults.append(f'{where}: token {at} is {of} and {what}')
        continue
      for s in np.unique(owner[owner >= 0]).tolist():
        if not trained[owner == s].any():
          faults.append(f'{where}: turn {s} has no trained token')
    padded = update['mask'] & (update['segment_ids'] == 0)
    if padded.any():
      faults.append(f'{int(padded.sum())} padded tokens are trained')
  return findings.of('mask', faults, f'{count} trained tokens')


def rows(
  updates: Sequence[Mapping[str, np.ndarray]],
  trajectories: Sequence[types.Trajectory],
  credit: np.ndarray | None = None,
) -> Finding:
  """Checks that log-probs, versions and advantages lie at their tokens.

  Args:
    updates: joined microbatches of each.
    trajectories: of the iteration.
    credit: [B, S] advantages; None = they are per token, not compared.
  """
  faults, count = [], 0
  for update in updates:
    for where, segment, trajectory, c in _segments(update, trajectories):
      if c is None:
        continue  # told by `mask`
      count += 1
      context, owner = trajectory.contexts[c], _owner(trajectory, c)
      trained = segment['mask']
      wanted = {
        'behavior_logprobs': np.array(context.logprobs, np.float32),
        'versions': np.array(context.versions),
      }
      if credit is not None:
        row = np.asarray(credit)[segment['row_trajectory'][0]]
        wanted['advantages'] = np.where(owner >= 0, row[owner], 0.0)
      for name, want in wanted.items():
        wrong = trained & ~np.isclose(
          segment[name], want, rtol=1e-5, atol=1e-6, equal_nan=True
        )
        if wrong.any():
          at = int(np.argmax(wrong))
          faults.append(
            f'{where}: {name} of token {at} is {segment[name][at]:.4g}, '
            f'recorded {want[at]:.4g}'
          )
  return findings.of('rows', faults, f'{count} contexts')


def weights(
  updates: Sequence[Mapping[str, np.ndarray]],
  weighting: str,
  constant: float = 0.0,
) -> Finding:
  """Checks every token's weight, and their sum in each trajectory.

  Args:
    updates: joined microbatches of each.
    weighting: as in `losses.token_weights`.
    constant: its divisor.
  """
  faults, totals = [], []
  for u, update in enumerate(updates):
    want = expected_weights(update, weighting, constant)
    got = update['weights']
    totals.append(float(got.sum()))
    if np.allclose(got, want, rtol=1e-4, atol=1e-9):
      continue
    owner = np.where(update['mask'], update['row_trajectory'], -1)
    bad = [
      (b, got[owner == b].sum(), want[owner == b].sum())
      for b in np.unique(owner[owner >= 0]).tolist()
    ]
    b, have, should = max(bad, key=lambda item: abs(item[1] - item[2]))
    faults.append(
      f'update {u}: trajectory {b} weighs {have:.4g}, {weighting} says '
      f'{should:.4g}; all together {totals[-1]:.4g} for {want.sum():.4g}'
    )
  shown = ', '.join(f'{total:.4g}' for total in totals[:4])
  return findings.of('weights', faults, f'{weighting}: updates weigh {shown}')


def expected_weights(
  update: Mapping[str, np.ndarray], weighting: str, constant: float
) -> np.ndarray:
  """Returns [R, T] float64 weights by counting, see `losses.token_weights`."""
  trained = update['mask']
  out = np.zeros(trained.shape)
  if weighting == 'constant':
    out[trained] = 1 / constant
    return out
  if weighting == 'token':
    out[trained] = 1 / max(trained.sum(), 1)
    return out
  ids = update['row_trajectory']
  if weighting != 'trajectory':
    height = int(update['segment_ids'].max(initial=0)) + 1
    place = np.arange(trained.shape[0])[:, None] * height
    ids = place + update['segment_ids']
  known, index, sizes = np.unique(
    ids[trained], return_inverse=True, return_counts=True
  )
  each = np.ones(len(known)) if weighting == 'sequence_token_sum' else 1 / sizes
  out[trained] = each[index] / max(len(known), 1)
  return out


def loss(
  update: Mapping[str, np.ndarray] | None,
  name: str,
  measured: float | None,
  rounding: float = 1e-3,
) -> Finding:
  """Checks the first loss: -Σ w · A, as the ratio is 1.

  Args:
    update: joined microbatches of the first update.
    name: of the loss.
    measured: policy loss of that update, before its apply.
    rounding: of Σ |w · A|, what the ratio's own bound allows.
  """
  if update is None or measured is None:
    return findings.skipped('loss', 'no update was done')
  if name not in _MINUS_ADVANTAGE:
    return findings.skipped('loss', f'{name} is not -advantage at ratio 1')
  terms = update['weights'] * update['advantages']
  want = -float(np.sum(terms, dtype=np.float64))
  # Where advantages cancel, what remains is rounding and the ratio's bound.
  scale = float(np.abs(terms).sum())
  text = f'{measured:.5g}, by the records {want:.5g}'
  good = abs(measured - want) <= rounding * scale + 1e-7
  return findings.ok('loss', text) if good else findings.failed('loss', text)


def _owner(trajectory, c):
  """[tokens of the context] index of the turn a token is of, -1 = none."""
  owner = np.full(len(trajectory.contexts[c].tokens), -1)
  for s, turn in enumerate(trajectory.turns):
    if turn.context == c:
      owner[turn.start : turn.end] = s
  return owner


def _segments(update, trajectories):
  """Yields (where, fields of a segment, trajectory, context index or None)."""
  segments = update['segment_ids']
  for r in range(segments.shape[0]):
    for segment in range(1, int(segments[r].max(initial=0)) + 1):
      columns = np.flatnonzero(segments[r] == segment)
      if not len(columns):
        continue
      part = {name: values[r, columns] for name, values in update.items()}
      b = int(part['row_trajectory'][0])
      where = f'row {r}, segment {segment} (trajectory {b})'
      tokens = tuple(part['tokens'].tolist())
      inside = 0 <= b < len(trajectories)
      trajectory = trajectories[b] if inside else None
      found = [
        c
        for c, context in enumerate(trajectory.contexts if inside else ())
        if tuple(context.tokens) == tokens
      ]
      # Equal contexts of one trajectory differ in the turns they hold.
      turn = int(part['row_turn'].max())
      match = [c for c in found if turn < 0 or c == _context(trajectory, turn)]
      yield where, part, trajectory, (match or found or [None])[0]


def _context(trajectory, turn):
  inside = turn < len(trajectory.turns)
  return trajectory.turns[turn].context if inside else -1
