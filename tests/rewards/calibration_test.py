"""Agreement of a judge with a verifier, by hand."""

import math

import pytest
import reward_fakes as made

from agentrl_jax import types
from agentrl_jax.rewards import calibration


def test_equal_values_share_their_mean_rank():
  assert calibration.ranks([3, 1, 3, 2]).tolist() == [3.5, 1, 3.5, 2]


@pytest.mark.parametrize(
  'first, second, want',
  [
    ([1, 2, 3], [10, 20, 400], 1.0),
    ([1, 2, 3], [3, 2, 1], -1.0),
    # Ranks 1 2 3 4 against 2 1 4 3: 1 - 6 * 4 / (4 * 15) = 0.6.
    ([1, 2, 3, 4], [20, 10, 40, 30], 0.6),
    ([1, 1], [1, 2], math.nan),
    ([], [], math.nan),
  ],
)
def test_rank_correlation(first, second, want):
  found = calibration.rank_correlation(first, second)
  assert found == pytest.approx(want, nan_ok=True)


def test_auc():
  """Successes 0.9, 0.5 against 0.5, 0.1: 3 of 4 pairs won, one tied."""
  truth = [True, True, False, False]
  assert calibration.auc([0.9, 0.5, 0.5, 0.1], truth) == 3.5 / 4
  assert calibration.auc([1, 1, 1, 1], truth) == 0.5
  assert math.isnan(calibration.auc([1, 2], [True, True]))
  with pytest.raises(ValueError, match='1 against 2'):
    calibration.rank_correlation([1], [1, 2])


def scored(judge, paid):
  one = made.trajectory(0.0, paid)
  rewards = {'outcome': (0.0, paid)}
  if judge is not None:
    rewards['ruler'] = (0.0, judge)
  return types.Trajectory(
    one.task, 0, (), one.turns, (), one.stop_reason, rewards=rewards
  )


def test_the_report():
  """Two groups; the second is all success, so it has no pair.

  Pairs: 0.8 against 0.6 and 0.9, 0.6 (other) against them: won, lost, tied,
  lost = 1.5 of 4. AUC: successes 0.8 0.6 1.0 against 0.6 0.9: 1 + 0.5 + 2 of 6.
  """
  groups = [
    made.group(scored(0.8, 1), scored(0.6, 1), scored(0.6, 0), scored(0.9, 0)),
    made.group(scored(1.0, 1), scored(None, 0)),
  ]
  said = calibration.report(groups, 'ruler')
  assert (said.episodes, said.pairs) == (5, 4)
  assert said.pair_accuracy == 1.5 / 4
  assert said.auc == pytest.approx(3.5 / 6)
  assert said.mean_success == pytest.approx(0.8)
  assert said.mean_failure == pytest.approx(0.75)
  assert calibration.report(groups, 'nobody').episodes == 0
