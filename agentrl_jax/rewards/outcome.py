"""What did the environment pay? Its verifier's word, never the agent's."""

from agentrl_jax import types


def outcome(trajectory: types.Trajectory) -> list[float]:
  """What the environment paid: the verified outcome, at the last turn."""
  return [turn.reward for turn in trajectory.turns]
