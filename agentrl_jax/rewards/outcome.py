"""What did each turn earn? Parts that are logged apart and added by weight.

A part is a function of a trajectory that returns one number a turn. It judges
what the environment recorded, never what the agent says about itself.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from agentrl_jax import types

Part = Callable[[types.Trajectory], Sequence[float]]


def outcome(trajectory: types.Trajectory) -> list[float]:
  """What the environment paid: the verified outcome, at the last turn."""
  return [turn.reward for turn in trajectory.turns]


def invalid(trajectory: types.Trajectory) -> list[float]:
  """-1 for each turn that was no well-formed call of a known tool."""
  return [
    0.0 if turn.info.get('valid', True) else -1.0 for turn in trajectory.turns
  ]


def score(
  trajectory: types.Trajectory, parts: Mapping[str, Part]
) -> types.Trajectory:
  """Fills in the parts of a trajectory's rewards.

  A part that raises or gives something other than one finite number a turn
  makes the trajectory an infrastructure failure (REWARD_ERROR): it is counted,
  and left out of group statistics, never scored 0.

  Args:
    trajectory: finished.
    parts: functions by name.

  Returns:
    The trajectory with `rewards`; with `info['reward_error']` if it failed.
  """
  rewards = {}
  for name, part in parts.items():
    try:
      values = tuple(float(value) for value in part(trajectory))
      problem = _problem(values, len(trajectory.turns))
    except Exception as error:  # noqa: BLE001 (a verifier's fault is data)
      problem = f'{type(error).__name__}: {error}'
    if problem:
      return dataclasses.replace(
        trajectory,
        stop_reason=types.StopReason.REWARD_ERROR,
        info={**trajectory.info, 'reward_error': f'{name}: {problem}'},
      )
    rewards[name] = values
  return dataclasses.replace(trajectory, rewards=rewards)


def turn_rewards(
  trajectory: types.Trajectory, weights: Mapping[str, float]
) -> list[float]:
  """Adds the parts of a scored trajectory: r_t = Σ_p w_p r_{p,t}.

  Args:
    trajectory: scored; one whose scoring failed gives zeros, which nobody may
      learn from (`stop_reason.trainable` is False).
    weights: of each part.

  Returns:
    One number a turn.
  """
  total = [0.0] * len(trajectory.turns)
  if trajectory.stop_reason is types.StopReason.REWARD_ERROR:
    return total
  for name, weight in weights.items():
    if name not in trajectory.rewards:
      raise ValueError(
        f'reward {name!r} was not scored; scored: {sorted(trajectory.rewards)}'
      )
    for turn, value in enumerate(trajectory.rewards[name]):
      total[turn] += weight * value
  return total


def _problem(values: Sequence[float], num_turns: int) -> str:
  if len(values) != num_turns:
    return f'{len(values)} values for {num_turns} turns'
  if not all(map(math.isfinite, values)):
    return f'not finite: {values}'
  return ''
