"""The outcome is what the environment paid, turn by turn."""

import reward_fakes as made

from agentrl_jax.rewards import outcome


def test_the_outcome_is_what_was_paid():
  assert outcome.outcome(made.trajectory(0.0, 0.5, 1.0)) == [0.0, 0.5, 1.0]
  assert outcome.outcome(made.trajectory()) == []
