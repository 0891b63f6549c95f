"""Rewards by name: parts of one number a turn, added by weight.

To add one: a function `trajectory -> [S] numbers`, a line in `REWARDS`.
"""

from collections.abc import Sequence

from agentrl_jax import tables
from agentrl_jax.rewards import outcome
from agentrl_jax.rewards.outcome import score, turn_rewards

__all__ = ['REWARDS', 'compose', 'score', 'turn_rewards']

REWARDS = {
  'outcome': outcome.outcome,
  'invalid': outcome.invalid,
}


def compose(
  config: Sequence[tuple[str, float]],
) -> tuple[dict[str, outcome.Part], dict[str, float]]:
  """Reads [('outcome', 1.0), ...] into parts and weights by name.

  Raises:
    ValueError: unknown name, or the same one twice.
  """
  names = [name for name, _ in config]
  if len(set(names)) < len(names):
    raise ValueError(f'rewards {names}: name each part once')
  parts = {name: tables.resolve(REWARDS, name) for name in names}
  return parts, {name: float(weight) for name, weight in config}
