"""The stand-in is asked as a judge is, and errs by as much as it says."""

import dataclasses
import statistics

import pytest
import reward_fakes as made

from agentrl_jax import envs, rewards, types
from agentrl_jax.envs import flight_agent
from agentrl_jax.rewards import stand_in


def played(index, seed, rates):
  env_class = envs.ENVS['flight']
  data = env_class.generate(index, legs=1)
  task = types.Task('flight', 'test', index, data)
  agent = flight_agent.Agent(seed=seed, rates=rates)
  return made.follow(env_class(), task, agent, sample=seed)


WHOLE = played(0, 0, flight_agent.ORACLE)
# The oracle, cut after two and after three right steps; some others.
GROUP = made.group(
  WHOLE,
  *(dataclasses.replace(WHOLE, turns=WHOLE.turns[:n]) for n in (2, 3)),
  *(played(0, seed, flight_agent.Rates()) for seed in range(1, 4)),
)


def judged(noise, **options):
  part = {'noise': noise, 'enough': 4, 'backoff_s': 0, **options}
  composed = rewards.compose([('stand_in', 1.0, part)])
  found = rewards.score(GROUP, *composed).trajectories
  assert rewards.measures(composed[0])['judge/failed'] == 0
  return [t.rewards['stand_in'] for t in found]


def test_a_grade_is_half_outcome_and_half_right_steps():
  """One leg: search, filter, one or more checks, order: 4 steps are enough."""
  whole, two, three, *_ = GROUP.trajectories
  assert whole.outcome == 1.0 and stand_in.grade(whole, enough=4) == 1.0
  # 2 / 4 / 2 and 3 / 4 / 2.
  assert stand_in.grade(two, enough=4) == 0.25
  assert stand_in.grade(three, enough=4) == 0.375


def test_without_noise_the_grade_is_paid_at_the_last_turn():
  for row, t in zip(judged(0.0), GROUP.trajectories):
    assert row[-1] == pytest.approx(stand_in.grade(t, enough=4))
    assert not any(row[:-1])


def test_noise_is_as_large_as_it_says():
  """Scores are cut to 0..1: grades in the middle show the whole of it."""
  errors = []
  for seed in range(40):
    rows = judged(0.05, seed=seed)
    errors += [rows[1][-1] - 0.25, rows[2][-1] - 0.375]
  # 80 draws: standard errors of 8 % of it and of 0.006.
  assert statistics.pstdev(errors) == pytest.approx(0.05, rel=0.3)
  assert abs(statistics.fmean(errors)) < 0.02


def test_what_it_refuses():
  (fault,) = rewards.faults([('stand_in', 1.0, {'noise': -1.0})])
  assert 'noise=-1.0: must be >= 0' in fault
  (fault,) = rewards.faults([('stand_in', 1.0, {'noise': 0, 'passes': 0})])
  assert 'passes=0' in fault
