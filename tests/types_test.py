"""Locks the words of the host: why an episode ended, what it was paid."""

import dataclasses
import json

import pytest

from agentrl_jax import types

StopReason = types.StopReason
TASK = types.Task('flight', 'train', 7, {'legs': 2})


def turn(reward):
  return types.Turn(
    context=0,
    start=0,
    end=1,
    text='',
    calls=(),
    error='',
    state_key=None,
    observation=(),
    reward=reward,
  )


def test_infrastructure_teaches_nothing_and_everything_else_does():
  failures = {
    StopReason.ENV_ERROR,
    StopReason.ENV_TIMEOUT,
    StopReason.REWARD_ERROR,
    StopReason.JUDGE_ERROR,
    StopReason.ABORTED,
  }
  assert {r for r in StopReason if not r.trainable} == failures


def test_a_stop_reason_is_its_text():
  assert StopReason('max_turns') is StopReason.MAX_TURNS
  assert json.dumps({'stop': StopReason.DONE}) == '{"stop": "done"}'
  assert f'stop/{StopReason.ENV_ERROR}' == 'stop/env_error'


def test_a_task_is_named_by_environment_split_and_index():
  assert TASK.name == 'flight/train/7'


def trajectory(*rewards, **parts):
  turns = tuple(map(turn, rewards))
  return types.Trajectory(
    TASK, 0, (), turns, (), StopReason.DONE, rewards=parts
  )


def test_the_outcome_is_what_the_environment_paid():
  # Undiscounted; other reward parts do not enter.
  assert trajectory(0.5, -0.25, 1.0, shaped=(9, 9, 9)).outcome == 1.25
  assert trajectory().outcome == 0.0


def test_the_worth_is_all_that_was_paid_once_it_is_scored():
  assert trajectory(0.5, -0.25).worth == 0.25  # the outcome, as yet
  assert trajectory(1.0, 1.0, total=(0.5, -0.25), shaped=(9, 9)).worth == 0.25


@pytest.mark.parametrize(
  'record, field',
  [
    (TASK, 'index'),
    (types.Message('user', 'hi'), 'content'),
    (types.Action('text'), 'text'),
    (turn(0.0), 'reward'),
    (types.Group(TASK, ()), 'trajectories'),
  ],
)
def test_records_are_frozen(record, field):
  with pytest.raises(dataclasses.FrozenInstanceError):
    setattr(record, field, None)


def test_defaults_are_not_shared():
  one, two = types.ToolCall('search'), types.ToolCall('search')
  assert one.arguments == {} and one.arguments is not two.arguments
