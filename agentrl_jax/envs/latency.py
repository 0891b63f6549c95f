"""What if tools took their time? An environment with an artificial delay."""

import math
import time
from collections.abc import Callable
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import noise

# Of the logarithm: one call in a hundred takes 25 times the median.
SIGMA = math.log(25) / 2.326


class Slow:
  """An environment whose calls take longer, the same calls as long each time.

  Seconds of a step are lognormal, exp(N(log median, SIGMA)), by task, member
  of the group and number of the step. What the environment answers is as ever.

  Args:
    env: that answers.
    median_s: seconds, > 0.
  """

  def __init__(self, env: Any, median_s: float):
    self._env, self._median_s = env, median_s
    self._place, self._step = ('', 0), 0

  def __getattr__(self, name: str) -> Any:
    return getattr(self._env, name)

  def reset(self, task: types.Task, *, sample: int = 0) -> types.Observation:
    """Opens at once."""
    self._place = task.name, sample
    return self._env.reset(task, sample=sample)

  def step(self, action: types.Action) -> types.StepResult:
    """Answers after the delay."""
    self._step += 1
    time.sleep(seconds(self._median_s, *self._place, self._step))
    return self._env.step(action)


def seconds(median_s: float, *parts: Any) -> float:
  """Returns the delay of a call that `parts` name, by Box and Muller."""
  first, second = (noise.fraction('latency', i, *parts) for i in (0, 1))
  radius = math.sqrt(-2 * math.log(1 - first))
  return median_s * math.exp(SIGMA * radius * math.cos(2 * math.pi * second))


def make(make_env: Callable[[], Any], median_s: float) -> Slow:
  """Makes an environment that takes its time."""
  return Slow(make_env(), median_s)
