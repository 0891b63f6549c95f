"""One signature: a function of a trajectory becomes one of a group."""

import reward_fakes as made

from agentrl_jax.rewards import parts


def test_a_fault_is_the_trajectorys_alone():
  def part(trajectory):
    if trajectory.outcome > 1:
      raise KeyError('too much')
    return [1.0]

  rows = parts.lift(part)(made.group(made.trajectory(1), made.trajectory(2)))
  assert rows == [[1.0], parts.Failure("KeyError: 'too much'")]


def test_what_takes_groups_stays_as_it_is():
  @parts.over_group
  def part(group):
    return [[float(len(group.trajectories))]] * len(group.trajectories)

  assert parts.lift(part) is part


def test_one_number_at_the_end():
  assert parts.at_the_end(made.trajectory(0, 0, 0), 0.5) == [0.0, 0.0, 0.5]
  assert parts.at_the_end(made.trajectory(), 0.5) == []
