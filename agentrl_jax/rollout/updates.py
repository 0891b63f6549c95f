"""Which packed rows do the networks see: to be asked, and to be trained on?"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import ml_collections
import numpy as np

from agentrl_jax import distributed, rng, types
from agentrl_jax.batch import TokenBatch
from agentrl_jax.rollout import collate, credit, hosts, selection

Question = Callable[[Sequence[TokenBatch]], Sequence[jax.Array]]


def consult(
  groups: Sequence[types.Group],
  lines: credit.Lines,
  questions: Mapping[str, Question],
  c: ml_collections.ConfigDict,
  *,
  about_all: bool,
) -> credit.Lines:
  """Adds to lines what networks answer, once an iteration for all epochs.

  Args:
    groups: of the iteration.
    lines: of all their trajectories.
    questions: field of `Lines` -> from microbatches to [R, T] each; 'values'
      are of the states after tokens.
    c: of the run.
    about_all: whether credit needs the answers, or only those are asked about
      that are trained on (the others' are 0).
  """
  if not questions:
    return lines
  trajectories = selection.flat(groups)
  num_rows = distributed.share(c.train.rows)
  chosen = 'keep' if about_all else c.train.constant_groups
  batch = collate.token_rows(
    trajectories,
    np.zeros((len(trajectories), c.rollout.max_turns), np.float32),
    selection.usable(groups, chosen),
    row_length=c.train.row_length,
    num_rows=num_rows,
    shorter=c.train.shorter_rows,
  )
  batch = hosts.with_routes_of_all(batch)
  pieces = collate.cuts(batch, num_rows, c.train.shorter_rows)
  rows = collate.microbatches(batch, num_rows, pieces)
  for name, question in questions.items():
    answers = jax.device_get(question(rows))
    answer = np.concatenate([x.reshape(num_rows, -1) for x in answers])
    if name == 'values':
      lines = credit.with_values(lines, batch, answer, trajectories)
    else:
      lines = credit.with_logprobs(lines, batch, {name: answer})
  return lines


def deal(
  groups: Sequence[types.Group],
  earned: credit.Credit,
  lines: credit.Lines,
  c: ml_collections.ConfigDict,
  iteration: int,
) -> tuple[list[list[TokenBatch]], list[list[dict[str, Any]]]]:
  """Deals an iteration out to its optimizer updates.

  Returns:
    This host's microbatches of each update, and beside each what the objective
    takes besides (see `credit.attach`).
  """
  trajectories = selection.flat(groups)
  indices = selection.usable(groups, c.train.constant_groups, c.train.overlong)
  num_rows, shorter = distributed.share(c.train.rows), c.train.shorter_rows
  shape = dict(
    row_length=c.train.row_length, num_rows=num_rows, shorter=shorter
  )
  empty = collate.token_rows(trajectories, earned.by_turn, [], **shape)
  updates, extras = [], []
  for epoch in range(c.train.epochs):
    order = rng.generator(c.seed, 'minibatches', iteration, epoch)
    batches = []
    for part in selection.minibatches(indices, c.train.minibatches, order):
      batch = collate.token_rows(trajectories, earned.by_turn, part, **shape)
      batches.append(
        collate.with_weights(
          batch,
          weighting=c.loss.weighting,
          num_trajectories=len(trajectories),
          constant=c.loss.weighting_constant or None,
        )
      )
    for batch in hosts.level(batches, c.loss.weighting, empty):
      batch, extra = credit.attach(batch, earned, lines)
      pieces = collate.cuts(batch, num_rows, shorter)
      updates.append(collate.microbatches(batch, num_rows, pieces))
      extras.append(
        collate.microbatches(extra, num_rows, pieces)
        if extra
        else [{} for _ in updates[-1]]
      )
  return updates, extras
