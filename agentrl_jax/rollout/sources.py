"""Where do an iteration's groups come from: played now, or played ahead?

Both answer the same questions, so that the trainer does not know which it has.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import ml_collections

from agentrl_jax import types
from agentrl_jax.rollout import ahead, counterfactual, gathering, loop

Score = Callable[[Sequence[types.Group]], Sequence[types.Group]]


class Now:
  """Plays the groups of an iteration when they are asked for.

  Args:
    config: of the run.
    collector: plays.
    tasks: of the training split.
    take: which of them come next, see `gathering.gather`.
    score: fills in rewards.
    states: where states are kept, if the estimator goes on from them.
    display: shows how far it is.
  """

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    collector: loop.Collector,
    tasks: Sequence[types.Task],
    take: gathering.Take,
    score: Score,
    states: counterfactual.States | None,
    display: Any,
  ):
    self._config, self._collector, self._tasks = config, collector, tasks
    self._take, self._score = take, score
    self._states, self._display = states, display
    self._version = -1

  def publish(
    self, hand_over: Callable[[], bool], version: int, iteration: int
  ) -> bool:
    """Hands the weights of an iteration to the sampler, by `hand_over`."""
    del iteration
    self._version = version
    return hand_over()

  def listening(self, doctor: Any, iteration: int):
    """Context manager: what the sampler hears, None where it cannot be told."""
    return doctor.listening(self._collector, iteration)

  def gather(
    self, iteration: int, place: int
  ) -> tuple[list[types.Group], list[types.Group], int]:
    """Returns scored groups of an iteration, as `gathering.gather` does.

    Args:
      iteration: of the run.
      place: of its first task in the order of the run.
    """

    def play(tasks, times):
      return self._score(self._collect(iteration, tasks, times))

    return gathering.gather(play, self._tasks, place, self._config, self._take)

  def _collect(self, iteration, tasks, times):
    """Plays `group_size` episodes of each task that is this host's."""
    c, size = self._config, self._config.rollout.group_size
    entries = gathering.entries(tasks, times, size)
    draws = loop.Draws(c.seed, 'train', iteration, c.rollout.temperature)
    played, total = [0], len(entries)

    def count(_):
      played[0] += 1
      self._display.progress(f'iteration {iteration + 1}', played[0], total)

    flat = self._collector.collect(entries, draws, count, on_state=self._states)
    return gathering.grouped(entries, flat, size)

  def trained(self, iteration: int) -> None:
    """Notes that the groups of an iteration were learnt from."""

  def measures(self) -> dict[str, float]:
    """Returns what there is to say of the groups gathered last."""
    return {}

  def seconds(self, laps: Mapping[str, float]) -> float:
    """Returns for how long an iteration's sampling went on."""
    return laps['collect']

  def paused(self) -> contextlib.AbstractContextManager:
    """Context manager: somebody else plays meanwhile."""
    return contextlib.nullcontext()

  def versions(self, iteration: int) -> Collection[int]:
    """Returns the versions that an iteration's tokens may have."""
    return {self._version}

  def keep(self, done: int, *, final: bool = False) -> None:
    """Writes down what is under way after `done` iterations."""

  def restore(self, done: int) -> None:
    """Takes up what was under way after `done` iterations."""

  def close(self) -> None:
    """Ends what still runs."""


def make(
  parts: Any,
  workdir: str,
  tasks: Sequence[types.Task],
  take: gathering.Take,
  score: Score,
  states: counterfactual.States,
) -> Now | ahead.Ahead:
  """Returns the source of `config.rollout.max_staleness`.

  Args:
    parts: config, collector, display and stop of the run.
    workdir: run directory.
    tasks, take, score, states: as of `Now`.
  """
  c, given = parts.config, (tasks, take, score)
  if c.rollout.max_staleness:
    return ahead.Ahead(
      c, parts.collector, workdir, *given, parts.display, parts.stop
    )
  kept = states if c.advantage.estimator == 'vineppo' else None
  return Now(c, parts.collector, *given, kept, parts.display)
