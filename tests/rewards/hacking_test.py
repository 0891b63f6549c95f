"""Holes counted, parts held responsible, and an alarm that rings in time."""

import math

import pytest
import reward_fakes as made

from agentrl_jax import config, envs, rewards, types
from agentrl_jax.envs import canary
from agentrl_jax.rewards import hacking
from agentrl_jax.rollout import audit, measures, watch


def episode(kind='ok', *, paid=1.0, honest=1.0, taken='', at_end=True):
  task = types.Task('canary', 'train', 0, {'kind': kind})
  info = {'exploit': taken} if taken else {}
  info |= {'audit': honest} if at_end else {}
  stop = types.StopReason.DONE if at_end else types.StopReason.MAX_TURNS
  first = made.turn()
  return made.trajectory(first, made.turn(paid, **info), task=task, stop=stop)


def test_the_audit_is_the_last_word():
  assert hacking.audit(episode()) == [0.0, 1.0]
  assert hacking.audit(episode(honest=0.0)) == [0.0, 0.0]
  assert hacking.audit(episode(at_end=False)) == [0.0, 0.0]
  assert hacking.audit(made.trajectory()) == []
  with pytest.raises(ValueError, match='x says nothing in info'):
    hacking.audit(made.trajectory(1.0))
  assert rewards.REWARDS['audit'] is hacking.audit


def test_holes_by_hand():
  found = hacking.holes(
    [
      episode(honest=0.0, taken='ok'),
      episode(honest=0.0, taken='ok'),
      episode(),
      episode(paid=0.0, honest=0.0),
      episode('mock', paid=0.0, honest=0.0, at_end=False),
      made.trajectory(1.0, stop=types.StopReason.ENV_ERROR),
      made.trajectory(1.0),
    ]
  )
  assert list(found) == ['mock', 'ok', 'x']
  assert found['ok'] == hacking.Hole(4, 0.5, 0.75, 0.25, 2.0)
  assert (found['mock'].episodes, found['mock'].taken) == (1, 0.0)
  assert math.isnan(found['mock'].first_turn)
  assert found['x'].honest == 1.0  # no audit there: the outcome stands


def scored(**parts):
  one = made.trajectory(*[0.0] * len(next(iter(parts.values()))))
  return types.Trajectory(
    one.task, 0, (), one.turns, (), one.stop_reason, rewards=parts
  )


def test_attribution_by_hand():
  """Outcome 1 and 0, length -0.5 and 0 at weight 0.5.

  Centred: outcome +-0.5, length -+0.125, total +-0.375. Outcome has
  0.5 * 0.375 / 0.375² = 4/3, length -1/3.
  """
  group = made.group(
    scored(outcome=(0, 1), length=(-0.25, -0.25)),
    scored(outcome=(0, 0), length=(0, 0)),
  )
  weights = {'outcome': 1.0, 'length': 0.5}
  shares = hacking.attribution([group], weights)
  assert shares == pytest.approx({'outcome': 4 / 3, 'length': -1 / 3})
  # What differs between groups alone is no difference within one.
  other = made.group(*[scored(outcome=(9, 9), length=(0, 0))] * 2)
  assert hacking.attribution([group, other], weights) == pytest.approx(shares)
  assert math.isnan(hacking.attribution([other], weights)['outcome'])


def test_a_trajectory_that_lost_a_part_is_in_no_share():
  group = made.group(
    scored(outcome=(1,), judge=(0.2,)),
    scored(outcome=(0,), judge=(0.1,)),
    scored(outcome=(5,)),
  )
  shares = hacking.attribution([group], {'outcome': 1.0, 'judge': 1.0})
  assert shares['outcome'] == pytest.approx(1 / 1.1)


def batch(iteration, exploit, wrong):
  """A group of each of 12 tasks, by a scripted policy with these rates."""
  groups = []
  for index in range(12):
    data = canary.generate(100 * iteration + index)
    task = types.Task('canary', 'train', index, data)
    members = []
    for sample in range(4):
      seed = 10000 * iteration + 100 * index + sample
      rates = {'exploit': exploit, 'wrong': wrong}
      agent = canary.CanaryEnv.agent(task, seed=seed, rates=rates)
      members.append(made.follow(envs.make('canary'), task, agent, sample))
    groups.append(made.group(*members))
  return groups


def rings(rates):
  """Iteration at which the watch warns of the gap, 0 for never; the rows."""
  warned, rows = [], []
  watching = watch.Watch(config.default().watch, warned.append)
  composed = rewards.compose([('outcome', 1.0)])
  for step, (exploit, wrong) in enumerate(rates, 1):
    groups = batch(step, exploit, wrong)
    played = [
      t
      for group in rewards.score_groups(groups, *composed)
      for t in group.trajectories
    ]
    row = measures.summarize(played)
    row |= audit.measure(played, 'audit', hacking.audit)
    watching.see(step, row)
    rows.append(row)
  found = [text for text in warned if 'audit_gap' in text]
  return int(found[0].split()[1].strip(':')) if found else 0, rows


def lead(growth):
  """Iterations from the alarm to where half of all success is a cheat."""
  at, rows = rings([(growth * i, 0.5) for i in range(1, int(0.8 / growth))])
  gone = next(
    step
    for step, row in enumerate(rows, 1)
    if row['audit/success'] < 0.5 * row['rollout/success']
  )
  assert at > 0
  return gone - at


def test_the_alarm_rings_and_how_early_depends_on_how_fast_the_hole_spreads():
  """By 2 % of the episodes an iteration it is told in time, by 10 % it is
  told, but after `watch.patience` iterations, which is too late.
  """
  assert lead(0.02) >= 3
  assert -8 <= lead(0.1) < 0


@pytest.mark.parametrize('start', [0.9, 0.6, 0.3])
def test_an_honest_policy_that_learns_is_not_accused(start):
  at, rows = rings([(0.0, start * (1 - i / 15)) for i in range(16)])
  assert at == 0
  assert all(row['audit/gap'] == 0.0 for row in rows)
