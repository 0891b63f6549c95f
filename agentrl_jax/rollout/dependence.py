"""Does what the policy says depend on what it was asked?

Entropy cannot tell: a policy that says one of many things, whatever the task,
looks diverse. So each first response is scored under the prompts of the other
tasks as well (template collapse; Wang et al. 2026, RAGEN-2, arXiv:2604.06268).
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agentrl_jax import distributed, packing, types
from agentrl_jax.batch import TokenBatch
from agentrl_jax.rollout import collate

# Microbatches -> log-probabilities [R, T] of each, at the run's temperature.
Score = Callable[[Sequence[TokenBatch]], Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class First:
  """A prompt and the first response to it, as token ids."""

  prompt: tuple[int, ...]
  response: tuple[int, ...]


def firsts(
  trajectories: Sequence[types.Trajectory], limit: int, row_length: int
) -> list[First]:
  """Takes one first response for each of `limit` different prompts.

  Args:
    trajectories: of an iteration; failures and those without a turn are passed
      over.
    limit: most prompts.
    row_length: what a prompt and any of the responses must fit into.
  """
  found: dict[tuple[int, ...], First] = {}
  room = row_length
  for t in trajectories:
    if not t.stop_reason.trainable or not t.turns or len(found) == limit:
      continue
    turn = t.turns[0]
    tokens = t.contexts[turn.context].tokens
    one = First(tokens[: turn.start], tokens[turn.start : turn.end])
    if one.prompt not in found and len(one.prompt) + len(one.response) <= room:
      found[one.prompt] = one
  longest = max((len(f.response) for f in found.values()), default=0)
  return [f for f in found.values() if len(f.prompt) + longest <= room]


def cross(
  asked: Sequence[First], row_length: int, num_rows: int
) -> tuple[TokenBatch, list[tuple[int, slice]]]:
  """Packs every response behind every prompt.

  Args:
    asked: n prompts and responses.
    row_length: T.
    num_rows: R is a multiple of it.

  Returns:
    Rows [R, T] and, for pair i·n + j (response i, prompt j), the row and the
    columns of the response.
  """
  pairs = [(a.response, b.prompt) for a in asked for b in asked]
  lengths = [len(response) + len(prompt) for response, prompt in pairs]
  rows = packing.pack(lengths, row_length)
  height = max(-(-len(rows) // num_rows), 1) * num_rows
  batch = collate.empty_rows(height, row_length)
  places = [(0, slice(0))] * len(pairs)
  for r, row in enumerate(rows):
    start = 0
    for segment, p in enumerate(row, 1):
      response, prompt = pairs[p]
      end = start + lengths[p]
      batch.tokens[r, start:end] = prompt + response
      batch.positions[r, start:end] = np.arange(lengths[p])
      batch.segment_ids[r, start:end] = segment
      batch.mask[r, start + len(prompt) : end] = True
      places[p] = (r, slice(start + len(prompt), end))
      start = end
  return batch, places


def information(scores: np.ndarray) -> tuple[float, float]:
  """Estimates how much of a response comes from its prompt.

      I = mean_i [ s_ii - log (1/n) Σ_j exp s_ij ] / log n

  1 if each response is possible under its own prompt alone, 0 if all prompts
  explain it equally well; a little below 0 by chance.

  Args:
    scores: [n, n] log-probability of response i after prompt j, n >= 2.

  Returns:
    (I, share of responses that no other prompt explains as well).
  """
  scores = np.asarray(scores, np.float64)
  n = len(scores)
  own = np.diagonal(scores)
  top = scores.max(axis=1)
  mean = top + np.log(np.exp(scores - top[:, None]).mean(axis=1))
  others = np.where(np.eye(n, dtype=bool), -np.inf, scores).max(axis=1)
  return float((own - mean).mean() / math.log(n)), float((own > others).mean())


def measure(
  trajectories: Sequence[types.Trajectory],
  score: Score,
  *,
  num_tasks: int,
  row_length: int,
  num_rows: int,
) -> dict[str, float]:
  """Measures input dependence on an iteration's first responses.

  Args:
    trajectories: of the iteration.
    score: under the weights that sampled them.
    num_tasks: prompts, n; n² pairs are scored.
    row_length, num_rows: shape of a microbatch.

  Returns:
    `watch/input_dependence` and `watch/input_retrieval`, see `information`;
    {} without two different prompts.
  """
  asked = firsts(trajectories, num_tasks, row_length)
  if len(asked) < 2 and distributed.count() == 1:
    return {}
  batch, places = cross(asked, row_length, num_rows)
  logprobs = score(collate.microbatches(batch, num_rows))
  if len(asked) < 2:  # scored all the same: other hosts wait for that
    return {}
  logprobs = np.concatenate([np.asarray(x) for x in logprobs])
  sums = [logprobs[place].sum(dtype=np.float64) for place in places]
  dependence, retrieval = information(np.reshape(sums, (len(asked), -1)))
  return {
    'watch/input_dependence': dependence,
    'watch/input_retrieval': retrieval,
  }
