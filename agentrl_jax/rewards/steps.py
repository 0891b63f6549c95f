"""How are labels of steps exchanged? In the JSON lines of PRM800K and of TRL.

PRM800K (Lightman et al. 2023): each step has completions with a rating of -1, 0
or 1, one of which was chosen to go on from. TRL's stepwise supervision: a
prompt, completions, one bool each.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentrl_jax import types


@dataclasses.dataclass(frozen=True)
class Steps:
  """A solution with a label a step.

  Attributes:
    prompt: the problem.
    steps: texts.
    labels: one number a step: a rating of -1, 0, 1, or a value.
  """

  prompt: str
  steps: tuple[str, ...]
  labels: tuple[float, ...]

  def __post_init__(self):
    if len(self.steps) != len(self.labels):
      raise ValueError(f'{len(self.labels)} labels for {len(self.steps)} steps')
    if not all(map(math.isfinite, self.labels)):
      raise ValueError(f'labels {self.labels}: must be finite')


def of_trajectory(
  trajectory: types.Trajectory, labels: Sequence[float]
) -> Steps:
  """Writes turns as steps: what the agent wrote, and what came back.

  The system prompt, the same for all tasks, is left out.

  Args:
    trajectory: finished.
    labels: [S].
  """
  steps = [
    '\n'.join([turn.text, *(message.content for message in turn.observation)])
    for turn in trajectory.turns
  ]
  asked = [m.content for m in trajectory.prompt if m.role != 'system']
  prompt = '\n'.join(asked)
  return Steps(prompt, tuple(steps), tuple(map(float, labels)))


def to_trl(steps: Steps, *, threshold: float = 0.5) -> dict[str, Any]:
  """Returns prompt, completions, labels; True where a label is >= threshold.

  Ratings of 0 (neither wrong nor of use) are False by default; `threshold=0`
  makes them True.
  """
  return {
    'prompt': steps.prompt,
    'completions': list(steps.steps),
    'labels': [label >= threshold for label in steps.labels],
  }


def from_trl(record: Mapping[str, Any]) -> Steps:
  """Reads a stepwise record; True is 1, False 0.

  Raises:
    ValueError: it is none.
  """
  prompt, texts = record.get('prompt'), record.get('completions')
  labels = record.get('labels')
  if not (isinstance(prompt, str) and _all(texts, str) and _all(labels, bool)):
    raise ValueError(
      'no stepwise record: needs prompt (text), completions (texts), labels '
      f'(bools); got {sorted(record)}'
    )
  return Steps(prompt, tuple(texts), tuple(map(float, labels)))


def to_prm800k(steps: Steps, *, labeler: str = 'agentrl_jax') -> dict[str, Any]:
  """Returns a labelled solution, one completion a step.

  Raises:
    ValueError: a label is no rating.
  """
  strange = [label for label in steps.labels if label not in (-1, 0, 1)]
  if strange:
    raise ValueError(
      f'labels {strange}: PRM800K rates -1, 0 or 1; give those, or write TRL'
    )
  wrong = -1 in steps.labels
  return {
    'labeler': labeler,
    'timestamp': None,
    'generation': None,
    'is_quality_control_question': False,
    'is_initial_screening_question': False,
    'question': {'problem': steps.prompt, 'ground_truth_answer': None},
    'label': {
      'steps': [
        {
          'completions': [
            {'text': text, 'rating': int(rating), 'flagged': False}
          ],
          'human_completion': None,
          'chosen_completion': 0,
        }
        for text, rating in zip(steps.steps, steps.labels)
      ],
      'total_time': 0,
      'finish_reason': 'found_error' if wrong else 'solution',
    },
  }


def from_prm800k(
  record: Mapping[str, Any], *, alternatives: bool = False
) -> list[Steps]:
  """Reads a labelled solution: the path that was chosen, and what else was.

  A step that a person wrote counts 1. Where nothing was chosen the path ends
  with the first completion, which is the solution's own; it ends before a step
  without a rating.

  Args:
    record: one line of the data set.
    alternatives: also each other completion, after the steps before it.

  Raises:
    ValueError: it is none.
  """
  try:
    prompt, given = record['question']['problem'], record['label']['steps']
    path: list[tuple[str, float]] = []
    out, others = [], []
    for step in given:
      completions = step['completions'] or []
      chosen, human = step['chosen_completion'], step['human_completion']
      place = 0 if chosen is None and human is None else chosen
      others += [
        [*path, (each['text'], each['rating'])]
        for i, each in enumerate(completions)
        if i != place and each['rating'] is not None
      ]
      if place is None:
        text = human['text'] if isinstance(human, Mapping) else human
        path.append((text, 1))
      elif completions and completions[place]['rating'] is not None:
        found = completions[place]
        path.append((found['text'], found['rating']))
      else:
        break
  except (IndexError, KeyError, TypeError) as error:
    raise ValueError(
      f'no labelled solution of PRM800K: {type(error).__name__}: {error}'
    ) from error
  for pairs in [path, *others] if alternatives else [path]:
    if pairs:
      texts, ratings = zip(*pairs)
      out.append(Steps(prompt, texts, tuple(map(float, ratings))))
  return out


# Format -> (Steps -> record, record -> list of Steps).
FORMATS: dict[str, tuple[Callable, Callable]] = {
  'trl': (to_trl, lambda record: [from_trl(record)]),
  'prm800k': (to_prm800k, from_prm800k),
}


def dumps(steps: Iterable[Steps], *, style: str = 'trl') -> str:
  """Writes JSON lines in a style of `FORMATS`."""
  write, _ = FORMATS[style]
  lines = (json.dumps(write(each), ensure_ascii=False) for each in steps)
  return ''.join(f'{line}\n' for line in lines)


def loads(text: str, *, style: str = 'trl') -> list[Steps]:
  """Reads JSON lines in a style of `FORMATS`.

  Raises:
    ValueError: a line is none; says which.
  """
  _, read = FORMATS[style]
  out = []
  for number, line in enumerate(text.split('\n'), 1):
    if not line.strip():
      continue
    try:
      out += read(json.loads(line))
    except (AttributeError, ValueError) as error:
      raise ValueError(f'line {number}: {error}') from error
  return out


def _all(values: Any, kind: type) -> bool:
  return isinstance(values, list | tuple) and all(
    isinstance(value, kind) for value in values
  )
