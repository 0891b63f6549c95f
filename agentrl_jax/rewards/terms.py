"""What does the form of an episode cost or earn? Its calls, layout, length.

Each of these can be earned without doing the task: keep their weights small
beside the outcome's, and look at `reward/NAME` apart.
"""

import re

from agentrl_jax import types
from agentrl_jax.rewards import parts

THINK_THEN_ACT = r'\s*<think>.*?</think>\s*\S.*'


def invalid(trajectory: types.Trajectory) -> list[float]:
  """-1 for each turn that was no well-formed call of a known tool."""
  return [
    0.0 if turn.info.get('valid', True) else -1.0 for turn in trajectory.turns
  ]


def layout(
  trajectory: types.Trajectory, *, pattern: str = THINK_THEN_ACT
) -> list[float]:
  """1/S for each of the S turns whose whole text matches: 1 if all do.

  A mean, so that longer episodes earn no more of it.

  Args:
    trajectory: finished.
    pattern: regular expression; '.' takes newlines too.

  Raises:
    ValueError: `pattern` is none.
  """
  try:
    wanted = re.compile(pattern, re.DOTALL)
  except (re.error, TypeError) as error:
    raise ValueError(f'pattern={pattern!r}: {error}') from error
  share = 1 / max(len(trajectory.turns), 1)
  return [
    share if wanted.fullmatch(turn.text) else 0.0 for turn in trajectory.turns
  ]


def length(
  trajectory: types.Trajectory, *, budget: int, buffer: int
) -> list[float]:
  """Soft punishment of overlong episodes, at the last turn.

  With n sampled tokens in all: 0 up to budget - buffer, then falling linearly
  to -1 at budget, -1 beyond.

  Args:
    trajectory: finished.
    budget: sampled tokens from which on it is -1.
    buffer: tokens below it over which the punishment grows, 1 to budget.

  Raises:
    ValueError: impossible bounds.

  Reference: DAPO, Yu et al. 2025, arXiv:2503.14476, equation 13, there of one
  response; here of all turns together, without the tools' replies.
  """
  if not 0 < buffer <= budget:
    raise ValueError(
      f'budget={budget}, buffer={buffer}: give 0 < buffer <= budget'
    )
  tokens = sum(turn.end - turn.start for turn in trajectory.turns)
  over = max(tokens - (budget - buffer), 0)
  return parts.at_the_end(trajectory, -min(over / buffer, 1.0))


def turns(trajectory: types.Trajectory, *, free: int = 0) -> list[float]:
  """-1 for each turn after the first `free` ones.

  Raises:
    ValueError: `free` is negative.
  """
  if free < 0:
    raise ValueError(f'free={free}: give 0 or more')
  return [-1.0 if s >= free else 0.0 for s in range(len(trajectory.turns))]
