"""Which tasks are played next: all alike, or those from which most is learnt?

Tasks have levels (`level(data)` of their environment). Under 'pass_rate' a
level is drawn the more often the more its outcomes vary.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections

from agentrl_jax import distributed, envs, rng, tables, types
from agentrl_jax.envs import base
from agentrl_jax.rollout import selection

EXPLORED = 0.2  # share of the draws in which all levels are alike
NEWS = 0.3  # weight of an iteration in a level's pass rate
UNSEEN = 0.5  # pass rate of a level that was not played yet


class Epochs:
  """Every task once an epoch, in the order of the run."""

  def __init__(self, tasks: Sequence[types.Task], seed: int, name: str):
    del name
    self._number, self._seed = len(tasks), seed

  def take(self, place: int, count: int) -> list[int]:
    """Tasks at some places of the run's order."""
    return selection.task_order(self._number, self._seed, place, count)

  def learn(self, groups: Sequence[types.Group]) -> dict[str, float]:
    """Nothing."""
    del groups
    return {}

  def state(self) -> dict[str, float]:
    """Nothing."""
    return {}

  def restore(self, state: Mapping[str, float]) -> None:
    """Nothing."""
    del state


class PassRate:
  """Levels by p (1 - p), p being how often their tasks are solved.

  Share of a level: EXPLORED / levels + (1 - EXPLORED) p (1 - p) / Σ p (1 - p).
  p (1 - p) is the variance of an outcome, 0 where all or none is solved: there
  a group teaches nothing. What is drawn at a place depends on the seed, the
  place and the pass rates.

  Args:
    tasks: of the split.
    seed: of the run.
    name: of their environment.

  Raises:
    ValueError: the tasks have one level.
  """

  def __init__(self, tasks: Sequence[types.Task], seed: int, name: str):
    self._seed = seed
    env_class = tables.resolve(envs.ENVS, name)
    self._level = getattr(env_class, 'level', base.ToolEnv.level)
    found = collections.defaultdict(list)
    for index in range(len(tasks)):
      found[self._level(tasks[index].data)].append(index)
    self._tasks = dict(sorted(found.items()))
    if len(self._tasks) < 2:
      raise ValueError(
        "config.env.curriculum='pass_rate': all tasks of "
        f"{name!r} have level {min(self._tasks)}; set it to 'none', or "
        'config.env.options so that levels differ'
      )
    self._rates = dict.fromkeys(self._tasks, UNSEEN)

  def take(self, place: int, count: int) -> list[int]:
    """Draws the tasks of some places, by the pass rates as they are now."""
    levels, shares = list(self._tasks), list(self.shares().values())
    out = []
    for each in range(place, place + count):
      draw = rng.generator(self._seed, 'curriculum', each)
      among = self._tasks[levels[draw.choice(len(levels), p=shares)]]
      out.append(among[draw.integers(len(among))])
    return out

  def shares(self) -> dict[int, float]:
    """Probability of each level; they add up to 1."""
    spread = {level: p * (1 - p) for level, p in self._rates.items()}
    total, alike = sum(spread.values()), 1 / len(spread)
    return {
      level: EXPLORED * alike
      + (1 - EXPLORED) * (value / total if total else alike)
      for level, value in spread.items()
    }

  def learn(self, groups: Sequence[types.Group]) -> dict[str, float]:
    """Counts successes of an iteration, over all hosts; returns metrics."""
    seen = collections.defaultdict(list)
    for group in groups:
      for t in group.trajectories:
        if t.stop_reason.trainable:
          seen[self._level(group.task.data)].append(t.outcome > 0)
    mine = [[level, int(sum(hits)), len(hits)] for level, hits in seen.items()]
    counts = collections.defaultdict(lambda: [0, 0])
    for level, hits, number in sum(distributed.exchange(mine), []):
      counts[level][0] += hits
      counts[level][1] += number
    for level, (hits, number) in counts.items():
      self._rates[level] += NEWS * (hits / number - self._rates[level])
    shares = self.shares()
    return {f'curriculum/pass_{n}': p for n, p in self._rates.items()} | {
      f'curriculum/share_{n}': p for n, p in shares.items()
    }

  def state(self) -> dict[str, float]:
    """Pass rates by level, for a checkpoint."""
    return {str(level): rate for level, rate in self._rates.items()}

  def restore(self, state: Mapping[str, float]) -> None:
    """Goes on with the pass rates of a checkpoint."""
    self._rates |= {int(level): rate for level, rate in state.items()}


CURRICULA = {'none': Epochs, 'pass_rate': PassRate}


def make(c: ml_collections.ConfigDict, tasks: Any) -> Epochs | PassRate:
  """Returns the order of a run's training tasks."""
  return CURRICULA[c.env.curriculum](tasks, c.seed, c.env.name)
