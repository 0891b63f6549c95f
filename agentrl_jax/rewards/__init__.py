"""Rewards by name: parts of one number a turn, added by weight.

To add one: a function `trajectory -> [S] numbers`, its options keyword-only, a
line in `REWARDS`. A part that compares the members of a group takes the group
and is marked `parts.over_group`; a class is made once, with its options.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentrl_jax import tables, types
from agentrl_jax.rewards import (
  hacking,
  learned,
  outcome,
  parts,
  process,
  ruler,
  shaping,
  stand_in,
  terms,
)
from agentrl_jax.rewards.parts import Failure, Judged, Part, over_group
from agentrl_jax.rewards.scoring import score, score_groups, turn_rewards

__all__ = [
  'REWARDS',
  'Failure',
  'Judged',
  'Part',
  'compose',
  'faults',
  'measures',
  'over_group',
  'score',
  'score_groups',
  'turn_rewards',
]

REWARDS = {
  'outcome': outcome.outcome,
  'audit': hacking.audit,
  'process': process.process,
  'ruler': ruler.Ruler,
  'stand_in': stand_in.StandIn,
  'shaping': shaping.shaping,
  'format': terms.layout,
  'invalid': terms.invalid,
  'learned': learned.Learned,
  'length': terms.length,
  'turns': terms.turns,
}

_TASK = types.Task('none', 'none', 0, {})
_EMPTY = types.Trajectory(_TASK, 0, (), (), (), types.StopReason.DONE)


def compose(
  config: Sequence[Sequence[Any]],
) -> tuple[dict[str, Callable], dict[str, float]]:
  """Reads [('outcome', 1.0), ('length', 0.1, {...}), ...].

  Args:
    config: (name, weight) or (name, weight, options) of each part; a name is a
      key of `REWARDS` or 'package.module:name'.

  Returns:
    Parts and weights by name.

  Raises:
    ValueError: unknown name, the same one twice, options it does not take.
  """
  names = [entry[0] for entry in config]
  if len(set(names)) < len(names):
    raise ValueError(f'rewards {names}: name each part once')
  made = {name: _make(name, *options) for name, _, *options in config}
  return made, {name: float(weight) for name, weight, *_ in config}


def faults(config: Sequence[Sequence[Any]]) -> list[str]:
  """Returns what `compose` would say of each part, and of them together."""
  out = []
  for entry in config:
    try:
      compose([entry])
    except ValueError as error:
      out.append(str(error))
  names = [entry[0] for entry in config]
  if len(set(names)) < len(names):
    out.append(f'{names}: name each part once')
  return out


def measures(composed: Mapping[str, Callable]) -> dict[str, float]:
  """Returns, and sets to zero, what the parts counted: `judge/calls`, ..."""
  out = {}
  for part in composed.values():
    drain = getattr(part, 'drain', dict)
    for key, value in drain().items():
      out[key] = out.get(key, 0.0) + value
  return out


def _make(name: str, options: Mapping[str, Any] | None = None) -> Callable:
  entry, options = tables.resolve(REWARDS, name), dict(options or {})
  over_group = getattr(entry, 'over_group', False)
  try:
    if isinstance(entry, type):
      return entry(**options)
    inspect.signature(entry).bind(_EMPTY, **options)
    made = functools.partial(entry, **options)
    if name in REWARDS and not over_group:
      made(_EMPTY)  # ours say at once which values they refuse
  except (ImportError, TypeError, ValueError) as error:
    raise ValueError(f'{name}: {error}') from error
  return parts.over_group(made) if over_group else made
