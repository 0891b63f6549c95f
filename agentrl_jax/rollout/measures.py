"""Numbers that describe a set of trajectories."""

import collections
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from agentrl_jax import types


def _values(arguments) -> Iterable[str]:
  """Leaves of JSON arguments, as text."""
  if isinstance(arguments, dict):
    for value in arguments.values():
      yield from _values(value)
  elif isinstance(arguments, list | tuple):
    for value in arguments:
      yield from _values(value)
  else:
    yield str(arguments)


def grounded(trajectory: types.Trajectory) -> tuple[int, int]:
  """Counts call arguments that occur in the task or an earlier observation.

  Returns:
    (grounded arguments, all arguments).
  """
  seen = '\n'.join(message.content for message in trajectory.prompt)
  hits = total = 0
  for turn in trajectory.turns:
    for call in turn.calls:
      for value in _values(dict(call.arguments)):
        total += 1
        hits += value in seen
    seen += '\n' + '\n'.join(m.content for m in turn.observation)
  return hits, total


def canonical_action(turn: types.Turn) -> str:
  """Returns text that is equal for equal actions, whatever the key order."""
  if turn.error or not turn.calls:
    return turn.text
  return json.dumps(
    [[call.name, dict(call.arguments)] for call in turn.calls], sort_keys=True
  )


def summarize(
  trajectories: Sequence[types.Trajectory], prefix: str = 'rollout'
) -> dict[str, float]:
  """Returns success, return, lengths, validity and stop reasons.

  Means are over trajectories that may be judged: infrastructure failures are
  counted under `stop/` and in no mean. Tasks of a mix say which world they are
  of (`data['env']`): `success_WORLD` is that of each. What an environment
  measures itself (`info['measures']` of a last turn, numbers by name) is
  `env_NAME`, a mean over the trajectories that have it.
  """
  judged = [t for t in trajectories if t.stop_reason.trainable]
  turns = [turn for t in judged for turn in t.turns]
  sampled = [turn.end - turn.start for turn in turns]
  pairs = [grounded(t) for t in judged]
  arguments = sum(total for _, total in pairs)
  stops = collections.Counter(t.stop_reason for t in trajectories)

  def mean(values):
    return float(np.mean(values)) if len(values) else float('nan')

  numbers = {
    'success': mean([t.outcome > 0 for t in judged]),
    'return': mean([t.outcome for t in judged]),
    'turns': mean([len(t.turns) for t in judged]),
    'turn_tokens': mean(sampled),
    'context_tokens': mean([len(c.tokens) for t in judged for c in t.contexts]),
    'truncated': mean(['num_cut' in t.info for t in judged]),
    'invalid_turns': mean([not turn.info.get('valid', True) for turn in turns]),
    'grounded_arguments': (
      sum(hits for hits, _ in pairs) / arguments if arguments else float('nan')
    ),
    'sampled_tokens': float(sum(sampled)),
    'trajectories': float(len(trajectories)),
  }
  worlds = collections.defaultdict(list)
  for t in judged:
    if 'env' in t.task.data:
      worlds[t.task.data['env']].append(t.outcome > 0)
  for world in sorted(worlds):
    numbers[f'success_{world}'] = mean(worlds[world])
  measured = collections.defaultdict(list)
  for t in judged:
    for name, value in _measures(t).items():
      measured[name].append(value)
  for name in sorted(measured):
    numbers[f'env_{name}'] = mean(measured[name])
  out = {f'{prefix}/{name}': value for name, value in numbers.items()}
  if prefix == 'rollout':
    for reason in types.StopReason:
      out[f'stop/{reason.value}'] = float(stops[reason])
  return out


def _measures(trajectory: types.Trajectory) -> Mapping[str, float]:
  """What the environment measured of an episode, at its end."""
  last = trajectory.turns[-1:]
  return last[0].info.get('measures', {}) if last else {}


def reward_means(
  trajectories: Sequence[types.Trajectory], names: Iterable[str]
) -> dict[str, float]:
  """Returns the mean episode sum of each reward part, `reward/NAME`.

  Infrastructure failures are in no mean, nor is who lost the part.
  """
  judged = [t for t in trajectories if t.stop_reason.trainable]
  out = {}
  for name in names:
    values = [sum(t.rewards[name]) for t in judged if name in t.rewards]
    out[f'reward/{name}'] = float(np.mean(values)) if values else float('nan')
  return out


def interval(success: float, num: int) -> float:
  """Returns the half-width of a 95 % interval of a rate (Wald)."""
  return 1.96 * float(np.sqrt(max(success * (1 - success), 0) / max(num, 1)))


def sampler(counted: Any, seconds: float) -> dict[str, float]:
  """Returns what a sampler's counters say.

  Args:
    counted: `sampler.engine.Counters` of a collection.
    seconds: that it took.
  """
  return {
    'host/sampler_live_share': counted.live_slot_steps
    / max(counted.slot_steps, 1),
    'host/sampler_decode_steps': float(counted.decode_steps),
    'host/sampler_extend_calls': float(counted.extend_calls),
    'sampler/extend_tokens': float(counted.extend_tokens),
    'sampler/forked_tokens': float(counted.forked_tokens),
    'rollout/tokens_per_s': counted.sampled_tokens / seconds,
  }
