"""What must the hosts of a run add up, once each has played its share?

Groups never leave their host. What goes over all hosts is small: turns and
lines for credit, the number of rows and the normalisers of an update, metrics.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentrl_jax import distributed
from agentrl_jax.batch import TokenBatch, TurnBatch
from agentrl_jax.rollout import collate, credit

# How a number of the metrics row is that of all hosts; else a mean, weighted by
# trajectories.
_SUMS = re.compile(
  r'stop/.*|rollout/(trajectories|sampled_tokens|tasks|varying_groups|'
  r'tokens_per_s)|train/rows|sampler/extend_tokens|host/sampler_(decode|extend).*'
  r'|counterfactual/episodes'
)
_MAXIMA = re.compile(r'time/.*|host/.*rss_mb|host/cpu_s|doctor/.*')
_MINIMA = re.compile(r'sampler/published_equal')


def kind(name: str) -> str:
  """Returns the kind under which this host stores trajectories.

  Process 0 has the plain name, process 1 `NAME_p1`: one file a host.
  """
  me = distributed.index()
  return f'{name}_p{me}' if me else name


def credit_of_all(
  assign: credit.Assigner,
  turns: TurnBatch,
  made: credit.Lines,
  *,
  trained: Sequence[int],
  played: Mapping[str, np.ndarray] | None = None,
) -> credit.Credit:
  """Assigns credit by the statistics of all hosts; returns this host's part.

  So an estimator that whitens over the batch gives what one process with all
  trajectories would have given. Ids of groups, anchors and actions are made
  different from host to host.

  Args:
    assign: what assigns; lines are told only where it reads them.
    turns, made, trained, played: as it takes them, of this host.
  """
  number = distributed.count()
  if number == 1:
    return assign(turns, made, trained=trained, played=played)
  size, me = len(turns.group_ids), distributed.index()
  turns = turns.replace(
    group_ids=_apart(turns.group_ids, size),
    anchor_ids=_apart(turns.anchor_ids, turns.anchor_ids.size),
    history_ids=_apart(turns.history_ids, turns.anchor_ids.size),
    action_ids=_apart(turns.action_ids, turns.action_ids.size),
  )
  lines = {
    field.name: getattr(made, field.name)
    for field in dataclasses.fields(made)
    if getattr(made, field.name) is not None and not assign.is_alone
  }
  is_trained = np.zeros(size, bool)
  is_trained[list(trained)] = True
  turns, lines, is_trained, played = distributed.gather(
    (turns, lines, is_trained, dict(played or {}))
  )
  if assign.is_alone:
    lines = _no_lines(len(turns.group_ids))
  earned = assign(
    turns,
    credit.Lines(**lines),
    trained=np.flatnonzero(is_trained).tolist(),
    played=played,
  )
  mine = slice(me * size, (me + 1) * size)
  parts = {
    name: getattr(earned, name)[mine]
    for name in ('advantages', 'by_turn', 'values', 'returns')
    if getattr(earned, name) is not None
  }
  return dataclasses.replace(earned, **parts)


def _no_lines(size: int) -> dict[str, np.ndarray]:
  """Lines [B, 1] of trajectories without a token."""
  return {
    'turn': np.full((size, 1), -1, np.int32),
    'behavior_logprobs': np.zeros((size, 1), np.float32),
  }


def _apart(ids: np.ndarray, bound: int) -> np.ndarray:
  """Ids that no other host has; -1 stays."""
  shifted = ids + distributed.index() * bound
  return np.where(ids < 0, -1, shifted).astype(np.int32)


def level(
  batches: Sequence[TokenBatch], weighting: str, empty: TokenBatch
) -> list[TokenBatch]:
  """Makes the updates of all hosts alike: as many, with as many rows.

  A host with less adds empty rows, which weigh nothing. Weights, so far over
  this host's rows, become those over the rows of all hosts.

  Args:
    batches: of each update, with weights.
    weighting: of the weights, see `losses.token_weights`.
    empty: rows of a microbatch without a token.
  """
  if distributed.count() == 1:
    return list(batches)
  mine = [
    [len(b.mask), num_units(b, weighting), collate.route_kind(b)]
    for b in batches
  ]
  everybody = distributed.exchange(mine)
  # One program for all: with routes where any host has some.
  kinds = [kind for theirs in everybody for _, _, kind in theirs if kind]
  kind = kinds[0] if kinds else None
  empty = collate.with_route_kind(empty, kind)
  out = []
  for update in range(max(map(len, everybody))):
    given = [theirs[update] for theirs in everybody if update < len(theirs)]
    height = max(rows for rows, _, _ in given)
    total = sum(units for _, units, _ in given)
    if update >= len(batches):
      out.append(collate.pad_rows(empty, height))
      continue
    batch = collate.with_route_kind(batches[update], kind)
    batch = collate.pad_rows(batch, height)
    if weighting != 'constant':
      part = np.float32(mine[update][1] / max(total, 1))
      batch = batch.replace(weights=batch.weights * part)
    out.append(batch)
  return out


def with_routes_of_all(batch: TokenBatch) -> TokenBatch:
  """Gives a batch room for routes where any host's has some: one program."""
  if distributed.count() == 1:
    return batch
  kinds = filter(None, distributed.exchange(collate.route_kind(batch)))
  return collate.with_route_kind(batch, next(kinds, None))


def num_units(batch: TokenBatch, weighting: str) -> int:
  """Counts what a weighting divides by the number of, over a host's rows."""
  if weighting in ('token', 'constant'):
    return int(batch.mask.sum())
  if weighting == 'trajectory':
    return np.unique(batch.row_trajectory[batch.mask]).size
  ids = collate.sequence_ids(batch)
  return np.unique(ids[batch.mask & (ids >= 0)]).size


def combine(
  row: Mapping[str, float], weight: float | None = None
) -> dict[str, Any]:
  """Returns the metrics of all hosts from those of each.

  Counts and rates add up, times and memory are of the slowest and the largest.
  The rest are means, weighted by trajectories: exact for means over these, and
  for what is the same everywhere; near for means over tokens or calls.

  Args:
    row: of this host.
    weight: trajectories that it is about; None = `rollout/trajectories`.
  """
  if distributed.count() == 1:
    return dict(row)
  weight = row['rollout/trajectories'] if weight is None else weight
  told = distributed.exchange([float(weight), _plain(row)])
  keys = {key: None for _, theirs in told for key in theirs}
  return {
    key: _combined(key, [(w, r[key]) for w, r in told if key in r])
    for key in keys
  }


def _combined(key: str, pairs: Sequence[tuple[float, float]]) -> float:
  values = [value for _, value in pairs]
  if _SUMS.fullmatch(key):
    return sum(values)
  if _MAXIMA.fullmatch(key):
    return max(values)
  if _MINIMA.fullmatch(key):
    return min(values)
  known = [(w, v) for w, v in pairs if v == v]  # a host may have no value
  if not known:
    return float('nan')
  if all(v == known[0][1] for _, v in known):
    return known[0][1]
  total = sum(w for w, _ in known)
  return sum(w * v for w, v in known) / total if total else float('nan')


def _plain(row: Mapping[str, float]) -> dict[str, float]:
  return {
    key: value if isinstance(value, int) else float(value)
    for key, value in row.items()
  }
