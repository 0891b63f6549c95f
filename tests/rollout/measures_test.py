"""Numbers of trajectories: by hand, failures in no mean."""

import dataclasses
import math

import pytest
import rollout_fakes as made

from agentrl_jax import types
from agentrl_jax.rollout import measures

Call, Message, StopReason = types.ToolCall, types.Message, types.StopReason


def test_arguments_are_grounded_in_what_was_seen_before():
  turns = [
    made.turn(
      1,
      2,
      # 'Xian' stands in the task, 'CA1' only in the reply to this very call
      calls=(Call('search', {'from': 'Xian', 'to': ['CA1', 7]}),),
      observation=(Message('tool', 'CA1 06:30'),),
    ),
    made.turn(3, 4, calls=(Call('order', {'flight': 'CA1'}),)),
  ]
  prompt = (Message('user', 'Book Xian > Chengdu, 7 days.'),)
  played = made.trajectory(turns, [], prompt=prompt)
  assert measures.grounded(played) == (3, 4)


def test_what_the_agent_said_itself_grounds_nothing():
  turns = [
    made.turn(1, 2, text='CA9 it is'),
    made.turn(3, 4, calls=(Call('order', {'flight': 'CA9'}),)),
  ]
  assert measures.grounded(made.trajectory(turns, [])) == (0, 1)


def test_equal_actions_have_equal_text():
  def action(**arguments):
    return measures.canonical_action(
      made.turn(0, 1, calls=(Call('f', arguments),))
    )

  assert action(a=1, b=2) == action(b=2, a=1)
  assert action(a=1) != action(a='1')
  plain = made.turn(0, 1, text='done')
  assert measures.canonical_action(plain) == 'done'
  wrong = made.turn(0, 1, text='<x', error='bad', calls=(Call('f', {}),))
  assert measures.canonical_action(wrong) == '<x'


def some():
  won = made.append_only([2, 4], reward=1.0, info={'num_cut': 1})
  lost = made.append_only([3], stop_reason=StopReason.MAX_TURNS)
  bad = dataclasses.replace(lost.turns[0], info={'valid': False})
  lost = dataclasses.replace(lost, turns=(bad,))
  broken = made.append_only([9], reward=5.0, stop_reason=StopReason.ENV_ERROR)
  return [won, lost, broken]


def test_summary_by_hand():
  row = measures.summarize(some())
  expected = {
    'rollout/success': 0.5,
    'rollout/return': 0.5,
    'rollout/turns': 1.5,
    'rollout/turn_tokens': 3.0,  # (2 + 4 + 3) / 3
    'rollout/context_tokens': 7.0,  # (2+2+1+4, 2+3) / 2
    'rollout/invalid_turns': 1 / 3,
    'rollout/sampled_tokens': 9.0,  # those of the failure are not trained
    'rollout/trajectories': 3.0,
    'rollout/truncated': 0.5,
    'stop/done': 1.0,
    'stop/max_turns': 1.0,
    'stop/env_error': 1.0,
    'stop/length': 0.0,
  }
  assert {key: row[key] for key in expected} == pytest.approx(expected)
  assert {k for k in row if k.startswith('stop/')} == {
    f'stop/{reason.value}' for reason in StopReason
  }
  assert math.isnan(row['rollout/grounded_arguments'])  # nobody called


def test_success_of_each_world_of_a_mix():
  def played(world, reward, stop=StopReason.DONE):
    task = types.Task('mix', 'train', 0, {'env': world, 'data': {}})
    return made.append_only([1], reward=reward, task=task, stop_reason=stop)

  row = measures.summarize(
    [
      *(played('sql', 1.0), played('sql', 0.0), played('desk', 1.0)),
      played('desk', 0.0, StopReason.ENV_ERROR),  # in no mean
    ]
  )
  worlds = {key: row[key] for key in row if key.startswith('rollout/success_')}
  assert worlds == {'rollout/success_desk': 1.0, 'rollout/success_sql': 0.5}
  assert row['rollout/success'] == pytest.approx(2 / 3)


def test_nobody_to_judge_is_not_a_number_and_never_zero():
  row = measures.summarize([some()[2]], 'eval')
  assert math.isnan(row['eval/success'])
  assert not any(key.startswith('stop/') for key in row)


def test_reward_means_are_of_episodes_that_may_be_judged():
  played = some()
  assert measures.reward_means(played, ['total']) == {'reward/total': 0.5}
  assert math.isnan(measures.reward_means(played[2:], ['a'])['reward/a'])


def test_interval():
  # 1.96 sqrt(0.25 / 100) = 0.098
  assert measures.interval(0.5, 100) == pytest.approx(0.098)
  assert measures.interval(1.0, 100) == 0.0


def test_what_an_environment_measures_is_a_mean_over_those_that_say_it():
  trajectories = some()
  for index, measured in enumerate(({'depth': 4.0}, {'depth': 1.0, 'x': 3.0})):
    trajectory = trajectories[index]
    last = trajectory.turns[-1]
    last = dataclasses.replace(last, info={**last.info, 'measures': measured})
    turns = (*trajectory.turns[:-1], last)
    trajectories[index] = dataclasses.replace(trajectory, turns=turns)
  numbers = measures.summarize(trajectories)
  assert numbers['rollout/env_depth'] == 2.5
  assert numbers['rollout/env_x'] == 3.0
