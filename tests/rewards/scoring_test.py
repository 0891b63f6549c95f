"""One finite number a turn, added by weight; a failure is never a zero."""

import dataclasses
import math
import threading

import pytest
import reward_fakes as made

from agentrl_jax import rewards, types
from agentrl_jax.rewards import outcome, scoring, terms

StopReason = types.StopReason
PARTS = {'outcome': outcome.outcome, 'invalid': terms.invalid}
WEIGHTS = {'outcome': 1.0, 'invalid': 0.1}


def score(*trajectories, parts=PARTS, weights=None):
  weights = weights or dict.fromkeys(parts, 1.0)
  return scoring.score(made.group(*trajectories), parts, weights).trajectories


def test_parts_are_logged_apart_and_added_by_weight():
  bad = made.turn(valid=False)
  (scored,) = score(made.trajectory(0, bad, 1), weights=WEIGHTS)
  assert scored.rewards['outcome'] == (0, 0, 1)
  assert scored.rewards['invalid'] == (0, -1, 0)
  assert scored.rewards['total'] == pytest.approx((0, -0.1, 1))


def test_outcome_and_process_mix():
  """An outcome of 1 and labels of steps +1, -0.5, +0.3 at 0.2.

  0.2, -0.1, 1 + 0.06; the episode is worth 1 + 0.2 * 0.8 = 1.16.
  """
  parts = {'outcome': outcome.outcome, 'process': lambda t: [1.0, -0.5, 0.3]}
  weights = {'outcome': 1.0, 'process': 0.2}
  (scored,) = score(made.trajectory(0, 0, 1), parts=parts, weights=weights)
  assert scored.rewards['total'] == pytest.approx((0.2, -0.1, 1.06))
  assert scored.rewards['outcome'] == (0, 0, 1)
  assert sum(scored.rewards['total']) == pytest.approx(1.16)


def _raise(trajectory):
  raise KeyError('verifier is down')


@pytest.mark.parametrize(
  'part, said',
  [
    (_raise, 'broken: KeyError'),
    (lambda t: [1.0], 'broken: 1 values for 2 turns'),
    (lambda t: [0.0, math.nan], 'broken: not finite'),
    (lambda t: ['a', 'b'], 'broken: ValueError'),
    (lambda t: None, 'broken: TypeError'),
    (rewards.over_group(lambda g: []), 'broken: 0 rows for 1 trajectories'),
    (rewards.over_group(lambda g: 1 / 0), 'broken: ZeroDivisionError'),
  ],
)
def test_a_broken_part_is_an_infrastructure_failure_and_not_a_zero(part, said):
  parts = {'outcome': outcome.outcome, 'broken': part}
  (scored,) = score(made.trajectory(0, 1), parts=parts)
  assert scored.stop_reason is StopReason.REWARD_ERROR
  assert scored.info['reward_error'].startswith(said)
  assert 'broken' not in scored.rewards and 'broken' not in scored.info
  assert scored.rewards['outcome'] == (0, 1)
  assert scored.rewards['total'] == (0.0, 0.0)  # nobody learns from it


def test_one_members_failure_leaves_the_others():
  def picky(trajectory):
    return [trajectory.outcome] if trajectory.outcome else [math.inf]

  first, second = score(
    made.trajectory(0), made.trajectory(1), parts={'picky': picky}
  )
  assert first.stop_reason is StopReason.REWARD_ERROR
  assert second.stop_reason is StopReason.DONE
  assert second.rewards['total'] == (1.0,)


def judge(stop):
  @rewards.over_group
  def part(group):
    return [
      rewards.Failure('no answer', stop)
      if t.outcome > 1
      else rewards.Judged([0.5], {'why': 'fine'})
      for t in group.trajectories
    ]

  return part


def test_a_judge_fails_with_its_own_stop_reason():
  parts = {'outcome': outcome.outcome, 'judge': judge(StopReason.JUDGE_ERROR)}
  fine, failed = score(made.trajectory(1), made.trajectory(2), parts=parts)
  assert fine.info['judge'] == {'why': 'fine'}
  assert fine.rewards == {'outcome': (1,), 'judge': (0.5,), 'total': (1.5,)}
  assert failed.stop_reason is StopReason.JUDGE_ERROR
  assert failed.info['reward_error'] == 'judge: no answer'
  assert failed.rewards == {'outcome': (2,), 'total': (0.0,)}


def test_a_dropped_part_is_dropped_for_the_whole_group():
  parts = {'outcome': outcome.outcome, 'judge': judge(None)}
  pair = score(made.trajectory(1), made.trajectory(2), parts=parts)
  for scored, paid in zip(pair, (1, 2)):
    assert scored.stop_reason is StopReason.DONE
    assert scored.rewards == {'outcome': (paid,), 'total': (paid,)}
    assert scored.info['dropped_rewards'] == {'judge': 'no answer'}


def test_a_reward_of_nothing_but_a_dropped_part_is_a_failure():
  (scored,) = score(made.trajectory(2), parts={'judge': judge(None)})
  assert scored.stop_reason is StopReason.REWARD_ERROR
  assert scored.info['reward_error'].startswith('no part is left; judge')


def test_parts_see_only_what_may_be_judged_and_the_rest_is_kept():
  seen = []

  @rewards.over_group
  def part(group):
    seen.append([t.sample for t in group.trajectories])
    return [[1.0] * len(t.turns) for t in group.trajectories]

  lost = made.trajectory(5, stop=StopReason.ENV_ERROR, sample=0)
  empty = made.trajectory(stop=StopReason.CONTEXT_FULL, sample=1)
  kept = dataclasses.replace(made.trajectory(0, sample=2), info={'seen': 7})
  first, second, third = score(lost, empty, kept, parts={'part': part})
  assert seen == [[2]]
  assert first.stop_reason is StopReason.ENV_ERROR
  assert first.rewards == {'total': (0.0,)}
  assert second.rewards == {'part': (), 'total': ()}
  assert second.stop_reason is StopReason.CONTEXT_FULL
  assert third.info == {'seen': 7} and third.rewards['total'] == (1.0,)


def test_a_part_that_was_forgotten_is_an_error():
  with pytest.raises(ValueError, match="'outcome' was not scored"):
    scoring.turn_rewards(made.trajectory(1), {'outcome': 1.0})


def test_groups_wait_for_judges_side_by_side_and_keep_their_order():
  meeting = threading.Barrier(3, timeout=10)

  @rewards.over_group
  def part(group):
    meeting.wait()  # passes only if all three are asked at once
    return [[t.outcome] for t in group.trajectories]

  part.waits = True
  groups = [made.group(made.trajectory(i)) for i in range(3)]
  scored = scoring.score_groups(groups, {'part': part}, {'part': 1.0})
  assert [g.trajectories[0].rewards['total'] for g in scored] == [
    (0.0,), (1.0,), (2.0,),
  ]  # fmt: skip
