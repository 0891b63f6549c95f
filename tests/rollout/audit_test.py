"""Gap and pull by hand; a verifier that fails judges nobody."""

import dataclasses
import math

import pytest
import rollout_fakes as made

from agentrl_jax import types
from agentrl_jax.rollout import audit

StopReason = types.StopReason


def played(*rewards):
  return [made.append_only([1, 1], reward=reward) for reward in rewards]


def strict(trajectory):
  """Believes in rewards of 2 and more; the number is in the first turn."""
  return [float(trajectory.outcome >= 2), 0.0]


def test_the_gap_by_hand():
  failed = made.append_only([1], reward=2.0, stop_reason=StopReason.ENV_ERROR)
  row = audit.measure([*played(0, 1, 2, 3), failed], 'my.module:strict', strict)
  # Trained: 3 of 4 above 0. Audit: 2 of 4. Above the mean, 1.5, are 2 and 3.
  assert row == {
    'audit/strict': 0.5,
    'audit/success': 0.5,
    'audit/gap': 0.25,
    'audit/pull': 0.0,
    'audit/failed': 0.0,
  }


def test_the_pull_by_hand():
  """What is above its own task's mean: 2 of (0, 1, 2) by 1, 1 of (0, 1) by 0.5.

  Only the 2 is confirmed: 0.5 of 1.5 leads where the audit does not go.
  """
  one, other = (types.Task('fake', 'train', i, {}) for i in range(2))
  first = [dataclasses.replace(t, task=one) for t in played(0, 1, 2)]
  second = [dataclasses.replace(t, task=other) for t in played(0, 1)]
  row = audit.measure([*first, *second], 'strict', strict)
  assert row['audit/pull'] == pytest.approx(1 / 3)
  # One of three is judged: its task's mean needs no judge.
  row = audit.measure([*second, *first[:1]], 'strict', strict, limit=2)
  assert row['audit/success'] == 0.0


@pytest.mark.parametrize('size', [1, 2, 6, 7])
def test_equal_rewards_pull_nowhere_whatever_the_rounding(size):
  for reward in (0.1, 0.05, 0.7, -0.05, -0.1, 1e6 / 3):
    row = audit.measure(played(*[reward] * size), 'strict', strict)
    assert math.isnan(row['audit/pull'])


def test_who_fails_by_both_pulls_nowhere_doubtful():
  row = audit.measure(played(-0.1, -0.2, -0.3, 0.0), 'strict', strict)
  assert row['audit/pull'] == 0.0


def test_the_pull_of_a_sample_is_against_whole_groups():
  """Each task has one member in eight that is paid, and 8 of 64 are judged."""
  some = []
  for i in range(8):
    task = types.Task('fake', 'train', i, {})
    paid = [float(j == i) for j in range(8)]
    some += [dataclasses.replace(t, task=task) for t in played(*paid)]
  row = audit.measure(some, 'strict', strict, limit=8)
  assert row['audit/pull'] == 1.0  # of 1 - 1/8 above a mean, nothing confirmed


def test_who_agrees_has_no_gap():
  def same(trajectory):
    return [turn.reward for turn in trajectory.turns]

  assert audit.measure(played(0, 1, 1), 'same', same)['audit/gap'] == 0.0


def test_a_failed_judgement_is_counted_and_in_no_mean():
  def moody(trajectory):
    if trajectory.outcome == 1:
      raise OSError('no judge')
    return strict(trajectory)

  row = audit.measure(played(0, 1, 2), 'moody', moody)
  assert row['audit/failed'] == 1.0 and row['audit/moody'] == 0.5
  assert row['audit/gap'] == 0.0
  assert audit.measure(played(1, 1), 'moody', moody) == {'audit/failed': 2.0}


@pytest.mark.parametrize('limit, seen', [(-1, 9), (3, 3), (9, 9), (20, 9)])
def test_a_sample_is_spread_over_the_batch(limit, seen):
  asked = []

  def note(trajectory):
    asked.append(trajectory.outcome)
    return [0.0, 0.0]

  audit.measure(played(*range(9)), 'note', note, limit)
  assert len(asked) == seen and (asked[0], asked[-1]) == (0, 8)


def test_trajectories_stay_as_they_were():
  some = played(1, 2)
  before = list(some)
  audit.measure(some, 'strict', strict)
  assert some == before and 'strict' not in some[0].rewards
