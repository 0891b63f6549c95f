"""May a judge be believed? Its scores against what a verifier knows."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from agentrl_jax import types


@dataclasses.dataclass(frozen=True)
class Report:
  """How a part agrees with the truth; NaN where nothing can be said.

  Attributes:
    episodes: compared.
    rank_correlation: Spearman's, over all.
    auc: probability that a success has the higher score, ties half.
    pairs: of different truth within a group.
    pair_accuracy: share of them in the right order, ties half: what learning
      within groups sees.
    mean_success, mean_failure: score of either.
  """

  episodes: int
  rank_correlation: float
  auc: float
  pairs: int
  pair_accuracy: float
  mean_success: float
  mean_failure: float


def ranks(values: Sequence[float]) -> np.ndarray:
  """Ranks from 1, equal values the mean of theirs: [N] float64."""
  values = np.asarray(values, float)
  below = (values[None, :] < values[:, None]).sum(1)
  equal = (values[None, :] == values[:, None]).sum(1)
  return below + (equal + 1) / 2


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
  """Spearman's: Pearson's of the ranks; NaN where one is constant."""
  if len(first) != len(second):
    raise ValueError(f'{len(first)} against {len(second)} values')
  if len(set(first)) < 2 or len(set(second)) < 2:
    return math.nan
  return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def auc(scores: Sequence[float], truth: Sequence[bool]) -> float:
  """P(score of a success > score of a failure) + half of the ties."""
  scores, truth = np.asarray(scores, float), np.asarray(truth, bool)
  wins, losses = int(truth.sum()), int((~truth).sum())
  if not wins or not losses:
    return math.nan
  over = ranks(scores)[truth].sum() - wins * (wins + 1) / 2
  return float(over / (wins * losses))


def report(
  groups: Sequence[types.Group], name: str, truth: str = 'outcome'
) -> Report:
  """Compares a part with another one that is believed.

  Args:
    groups: scored; members without either part are left out.
    name: of the part that is examined.
    truth: of the part whose episode sum above 0 is a success.
  """
  rows = []
  for number, group in enumerate(groups):
    for t in group.trajectories:
      if name in t.rewards and truth in t.rewards:
        given = math.fsum(t.rewards[name])
        rows.append((number, given, math.fsum(t.rewards[truth])))
  ids = np.array([row[0] for row in rows], int)
  scores = np.array([row[1] for row in rows], float)
  sums = np.array([row[2] for row in rows], float)
  # A success against a failure of the same group, each pair once.
  pair = (ids[:, None] == ids) & (sums[:, None] > 0) & (sums <= 0)
  order = np.sign(scores[:, None] - scores)[pair]
  return Report(
    episodes=len(rows),
    rank_correlation=rank_correlation(scores.tolist(), sums.tolist()),
    auc=auc(scores, sums > 0),
    pairs=int(pair.sum()),
    pair_accuracy=float((order + 1).mean() / 2) if order.size else math.nan,
    mean_success=_mean(scores[sums > 0]),
    mean_failure=_mean(scores[sums <= 0]),
  )


def _mean(values: np.ndarray) -> float:
  return float(values.mean()) if values.size else math.nan
