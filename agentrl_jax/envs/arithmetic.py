"""Does single-turn RL run by the same code? One question, one answer.

The degenerate case of an agent: no tools, `max_turns=1`, a verifiable reward.
"""

import random
import re
from collections.abc import Mapping
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base

TASK_DEFAULTS = {
  'low': 0,  # smallest operand
  'high': 49,  # largest operand
  'operators': '+-',  # any of + - *
}
_NUMBER = re.compile(r'-?\d{1,12}')
_SOLVE = {
  '+': lambda a, b: a + b,
  '-': lambda a, b: a - b,
  '*': lambda a, b: a * b,
}


def generate(
  seed: int,
  *,
  low: int = TASK_DEFAULTS['low'],
  high: int = TASK_DEFAULTS['high'],
  operators: str = TASK_DEFAULTS['operators'],
) -> dict[str, Any]:
  """Draws a question such as '17+25=?'. Differences are never negative."""
  if not low <= high:
    raise ValueError(f'low={low} is above high={high}')
  if not operators or set(operators) - set(_SOLVE):
    raise ValueError(f'operators={operators!r}: give any of + - *')
  draw = random.Random(seed)
  operator = draw.choice(operators)
  left, right = draw.randint(low, high), draw.randint(low, high)
  if operator == '-' and right > left:
    left, right = right, left
  return {'left': left, 'operator': operator, 'right': right}


class _Solver:
  """Answers right, or off by one at the given rate."""

  def __init__(self, *, seed: int, error: float = 0.0):
    self._draw = random.Random(f'arithmetic {seed}')
    self._error = error

  def act(self, messages) -> types.Action:
    """Computes what the question asks."""
    question = messages[-1].content
    left, operator, right = re.match(r'(\d+)(.)(\d+)', question).groups()
    answer = _SOLVE[operator](int(left), int(right))
    if self._draw.random() < self._error:
      answer += self._draw.choice((-10, -1, 1, 10))
    return types.Action(str(answer))


class ArithmeticEnv(base.ToolEnv):
  """One question; the last number of the answer's text counts."""

  task_defaults = TASK_DEFAULTS
  generate = staticmethod(generate)
  disjoint_splits = True  # there are few questions
  card = base.Card(
    observation='one question',
    action='the answer, as text',
    reward='1 if its last number is right',
    termination='after one turn',
    oracle='computes it',
    state_key='nothing was seen but the question',
  )

  @classmethod
  def oracle(cls, task: types.Task):
    """Answers right."""
    return _Solver(seed=task.index)

  @classmethod
  def demonstrate(
    cls,
    task: types.Task,
    *,
    seed: int,
    rates: Mapping[str, float] | None = None,
  ) -> tuple[list[types.Message], float]:
    """Answers once, wrong at the rate `error` (default 0.5)."""
    env = cls()
    (question,) = env.reset(task).messages
    error = (rates or {}).get('error', 0.5)
    action = _Solver(seed=seed, error=error).act([question])
    reward = env.step(action).reward
    return [question, types.Message('assistant', action.text)], reward

  def snapshot(self) -> dict[str, Any]:
    """Everything that the rest of the episode depends on."""
    return dict(vars(self))

  def restore(self, snapshot: dict[str, Any]) -> None:
    """Continues from a snapshot."""
    vars(self).update(snapshot)

  def _start(self, task: types.Task, sample: int) -> str:
    del sample
    data = task.data
    operator = data['operator']
    self._truth = _SOLVE[operator](data['left'], data['right'])
    return f'{data["left"]}{operator}{data["right"]}=?'

  def _judge(self, text: str) -> float:
    numbers = _NUMBER.findall(text)
    return float(bool(numbers) and int(numbers[-1]) == self._truth)
