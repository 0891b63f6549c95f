"""How are other codebases' rollouts read? One JSON object a line.

Whatever the names, a line becomes a `Sample`. The names that are understood
stand in `NAMES`; docs/doctor.md explains them.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.rollout import store

# Field of Sample -> names that are looked for, first hit first.
NAMES = {
  'tokens': ('tokens', 'token_ids', 'input_ids', 'input_tokens'),
  'prompt': (
    'prompt_ids',
    'prompt_token_ids',
    'prompt_tokens',
    'prompts',
  ),
  'response': (
    'response_ids',
    'completion_ids',
    'completion_token_ids',
    'output_tokens',
    'responses',
  ),
  'mask': (
    'loss_mask',
    'response_mask',
    'completion_mask',
    'assistant_masks',
    'action_mask',
    'env_mask',
    'loss_masks',
    'mask',
  ),
  'attention': ('attention_mask',),
  'logprobs': (
    'rollout_log_probs',
    'sampling_logprobs',
    'completion_logprobs',
    'inference_logprobs',
    'response_logprobs',
    'sampling_per_token_logps',
    'output_logprobs',
    'logprobs',
  ),
  'learner_logprobs': (
    'old_log_probs',
    'trainer_logprobs',
    'old_per_token_logps',
    'learner_logprobs',
  ),
  'reward': ('reward', 'score', 'rewards', 'scores', 'token_level_scores'),
  'advantage': ('advantage', 'advantages'),
  'group': (
    'uid',
    'group_id',
    'group',
    'prompt_id',
    'example_id',
    'problem_id',
    'input',
    'prompt',
  ),
  'trajectory': ('traj_uid', 'trajectory_id', 'rollout_id', 'trajectory'),
  'anchor': ('anchor_obs', 'anchor', 'state_key', 'state'),
  'text': ('output', 'completion', 'response'),
}


class DumpError(ValueError):
  """A file that cannot be read as rollouts."""


@dataclasses.dataclass(frozen=True)
class Sample:
  """One line, or one context of one line, of a dump.

  Attributes:
    line: number in the file, from 1.
    tokens: prompt and response; () = the dump has text only.
    prompt: how many tokens come before the first that may be sampled.
    mask: True = trained, as long as tokens; None = not given.
    attention: False = padding; None = not given.
    logprobs: at sampling, aligned with tokens, None where not given.
    learner_logprobs: recomputed by the learner, likewise.
    reward: of the episode; None = not given.
    advantages: () = not given; one, or one a token.
    group: task; None = not given.
    trajectory: episode of which this is a step; None = not given.
    anchors: state keys; () = not given.
    text: of the response, where there are no tokens.
    faults: what is wrong with the line itself.
  """

  line: int
  tokens: tuple[int, ...] = ()
  prompt: int = 0
  mask: tuple[bool, ...] | None = None
  attention: tuple[bool, ...] | None = None
  logprobs: tuple[float | None, ...] | None = None
  learner_logprobs: tuple[float | None, ...] | None = None
  reward: float | None = None
  advantages: tuple[float, ...] = ()
  group: str | None = None
  trajectory: str | None = None
  anchors: tuple[Any, ...] = ()
  text: str = ''
  faults: tuple[str, ...] = ()


def read(
  path: str | os.PathLike[str],
) -> tuple[list[Sample], list[tuple[int, types.Trajectory]]]:
  """Reads a dump.

  Returns:
    Samples of every line, and for lines in our own format the trajectories
    with their line numbers.

  Raises:
    DumpError: no such file, a line that is no JSON object, nothing in it.
  """
  file = pathlib.Path(path)
  if not file.is_file():
    raise DumpError(f'{path}: no such file')
  samples, own, failures = [], [], 0
  for number, line in enumerate(file.open('rb'), 1):
    if not line.strip():
      continue
    try:
      data = json.loads(line)
    except (ValueError, RecursionError) as e:
      raise DumpError(f'{path}, line {number}: no JSON ({e})') from e
    if not isinstance(data, dict):
      raise DumpError(f'{path}, line {number}: {data!r:.40} is no object')
    if 'contexts' in data and 'turns' in data:
      record = _own(path, number, line)
      if not record.trajectory.stop_reason.trainable:
        failures += 1
        continue  # what was drawn last is in no turn: the environment failed
      own.append((number, record.trajectory))
      samples += _contexts(number, record)
    else:
      samples.append(_foreign(number, data))
  if not samples:
    what = f'{failures} failures alone' if failures else 'no rollouts'
    raise DumpError(f'{path}: {what} in it')
  return samples, own


def _own(path, number, line):
  try:
    return store.loads(line)
  except (KeyError, TypeError, ValueError) as e:
    raise DumpError(f'{path}, line {number}: not our format: {e!r}') from e


def _contexts(number: int, record: store.Record) -> list[Sample]:
  trajectory = record.trajectory
  out = []
  for c, context in enumerate(trajectory.contexts):
    turns = [s for s, t in enumerate(trajectory.turns) if t.context == c]
    first = trajectory.turns[turns[0]].start if turns else len(context.tokens)
    values = record.advantages or ()
    out.append(
      Sample(
        line=number,
        tokens=context.tokens,
        prompt=first,
        mask=context.sampled_mask,
        logprobs=context.logprobs,
        reward=trajectory.outcome,
        advantages=tuple(values[s] for s in turns if s < len(values)),
        group=trajectory.task.name,
        anchors=tuple(trajectory.turns[s].state_key for s in turns),
      )
    )
  return out


def _foreign(number: int, data: Mapping[str, Any]) -> Sample:
  """Reads a line by the names it has."""
  faults: list[str] = []
  prompt = _ids(_get(data, 'prompt'))
  response = _ids(_get(data, 'response'))
  tokens = _ids(_get(data, 'tokens'))
  if response and not tokens:
    tokens = prompt + response
  size = len(tokens)
  # Padded on the left, the whole is longer than prompt and response.
  start = size - len(response) if response else min(len(prompt), size)

  def per_token(name):
    values = _get(data, name)
    if not isinstance(values, list) or not tokens:
      return None
    if len(values) == size:
      return tuple(values)
    if len(values) == size - 1:  # of the next token: the first has none
      return (None, *values)
    if start and len(values) == size - start:
      return (*[None] * start, *values)
    faults.append(f'{name} has {len(values)} entries for {size} tokens')
    return None

  mask, attention = per_token('mask'), per_token('attention')
  rewards, advantage = _get(data, 'reward'), _get(data, 'advantage')
  anchor = _get(data, 'anchor')
  return Sample(
    line=number,
    tokens=tokens,
    prompt=start,
    mask=None if mask is None else tuple(bool(m) for m in mask),
    attention=None if attention is None else tuple(map(bool, attention)),
    logprobs=per_token('logprobs'),
    learner_logprobs=per_token('learner_logprobs'),
    reward=_number(rewards, faults),
    advantages=_advantages(advantage),
    group=_key(_get(data, 'group')),
    trajectory=_key(_get(data, 'trajectory')),
    anchors=() if anchor is None else (anchor,),
    text=str(_get(data, 'text') or ''),
    faults=tuple(faults),
  )


def _get(data: Mapping[str, Any], field: str) -> Any:
  return next((data[n] for n in NAMES[field] if data.get(n) is not None), None)


def _ids(value: Any) -> tuple[int, ...]:
  if not isinstance(value, list):
    return ()
  if not all(isinstance(v, int) and not isinstance(v, bool) for v in value):
    return ()
  return tuple(value)


def _key(value: Any) -> str | None:
  return None if value is None else json.dumps(value, sort_keys=True)


def _number(value: Any, faults: list[str]) -> float | None:
  if isinstance(value, Mapping):  # parts by name
    value = list(value.values())
  if isinstance(value, list):
    value = sum(v for v in value if isinstance(v, int | float))
  if value is None or isinstance(value, int | float):
    return value if value is None else float(value)
  faults.append(f'reward {value!r:.40} is no number')
  return None


def _advantages(value: Any) -> tuple[float, ...]:
  values: Sequence[Any] = value if isinstance(value, list) else [value]
  if values and isinstance(values[0], Mapping):  # streams of values a token
    values = [v for stream in values for v in stream.get('values', ())]
  return tuple(float(v) for v in values if isinstance(v, int | float))
