"""Parts of rewards: one finite number a turn, added by weight."""

import dataclasses
import math

import pytest

from agentrl_jax import rewards, types


def trajectory(paid, valid=None):
  """A trajectory whose turns were paid `paid`."""
  valid = valid or [True] * len(paid)
  turns = tuple(
    types.Turn(0, 0, 0, '', (), '', None, (), reward, {'valid': fine})
    for reward, fine in zip(paid, valid)
  )
  task = types.Task('x', 'train', 0, {})
  return types.Trajectory(task, 0, (), turns, (), types.StopReason.DONE)


def test_parts_are_logged_apart_and_added_by_weight():
  parts, weights = rewards.compose([('outcome', 1.0), ('invalid', 0.1)])
  scored = rewards.score(trajectory([0, 0, 1], [True, False, True]), parts)
  assert scored.rewards == {'outcome': (0, 0, 1), 'invalid': (0, -1, 0)}
  assert rewards.turn_rewards(scored, weights) == pytest.approx([0, -0.1, 1])


def test_outcome_alone_is_what_the_environment_paid():
  parts, weights = rewards.compose([('outcome', 1.0)])
  scored = rewards.score(trajectory([0.0, 0.5, 1.0]), parts)
  assert rewards.turn_rewards(scored, weights) == [0.0, 0.5, 1.0]
  assert scored.outcome == 1.5


def _raise(trajectory):
  raise KeyError('judge is down')


@pytest.mark.parametrize(
  'part, said',
  [
    (_raise, 'broken: KeyError'),
    (lambda t: [1.0], 'broken: 1 values for 2 turns'),
    (lambda t: [0.0, math.nan], 'broken: not finite'),
    (lambda t: ['a', 'b'], 'broken: ValueError'),
  ],
)
def test_a_broken_part_is_an_infrastructure_failure_and_not_a_zero(part, said):
  scored = rewards.score(trajectory([0, 1]), {'broken': part})
  assert scored.stop_reason is types.StopReason.REWARD_ERROR
  assert not scored.stop_reason.trainable
  assert scored.info['reward_error'].startswith(said)
  assert rewards.turn_rewards(scored, {'broken': 1.0}) == [0.0, 0.0]


def test_an_empty_trajectory_has_no_rewards():
  parts, weights = rewards.compose([('outcome', 1.0)])
  assert (
    rewards.turn_rewards(rewards.score(trajectory([]), parts), weights) == []
  )


def test_names():
  parts, _ = rewards.compose([('agentrl_jax.rewards.outcome:invalid', 1.0)])
  assert list(parts.values()) == [rewards.REWARDS['invalid']]
  with pytest.raises(ValueError, match='known: invalid, outcome'):
    rewards.compose([('outcom', 1.0)])
  with pytest.raises(ValueError, match='once'):
    rewards.compose([('outcome', 1.0), ('outcome', 0.5)])
  unscored = dataclasses.replace(trajectory([1]), rewards={})
  with pytest.raises(ValueError, match='was not scored'):
    rewards.turn_rewards(unscored, {'outcome': 1.0})
