"""How good is the policy on tasks that it was not trained on?"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import ml_collections

from agentrl_jax import distributed, types
from agentrl_jax.rollout import hosts, loop, measures, store

# Drawn at temperature 1, and greedily: purpose of the keys, temperature.
_MODES = {'': 1.0, '_greedy': 0.0}


def evaluate(
  collector: loop.Collector,
  tasks: Sequence[types.Task],
  *,
  seed: int,
  name: str = 'eval',
  iteration: int = 0,
  modes: Sequence[str] = tuple(_MODES),
) -> tuple[dict[str, float], list[types.Trajectory]]:
  """Plays every task once sampled at temperature 1 and once greedily.

  Args:
    collector: with the weights to judge published.
    tasks: a fixed panel.
    seed: of the run.
    name: prefix of the metrics, 'eval' or 'test'.
    iteration: enters the sampling keys of the sampled episodes.
    modes: '' (sampled), '_greedy'.

  Returns:
    Metrics (`NAME/success`, `NAME/success_greedy`, `NAME/interval`, ...) and
    the sampled trajectories (greedy ones if nothing was sampled).
  """
  entries = [loop.Entry(task, 0) for task in tasks]
  metrics, shown = {}, []
  for mode in modes:
    draws = loop.Draws(seed, name + mode, iteration, _MODES[mode])
    played = collector.collect(entries, draws)
    shown = shown or played
    numbers = measures.summarize(played, name)
    kept = [key for key in numbers if key.startswith(f'{name}/success')]
    for key in ('turns', 'invalid_turns', 'grounded_arguments'):
      kept.append(f'{name}/{key}')
    metrics |= {key + mode: numbers[key] for key in kept}
    if not mode:
      success = numbers[f'{name}/success']
      metrics[f'{name}/interval'] = measures.interval(success, len(tasks))
  return metrics, shown


class Panels:
  """The fixed panels of a run: when each is played, and where it is kept.

  Args:
    config: of the run.
    collector: plays.
    workdir: run directory, for trajectories.
    display: says what goes on.
    panels: by split, 'validation' and 'test', indexable.
  """

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    collector: loop.Collector,
    workdir: str,
    display: Any,
    panels: Callable[[str], Sequence[types.Task]],
  ):
    self._config, self._collector = config, collector
    self._workdir, self._display, self._panels = workdir, display, panels
    self._validation = _first(panels('validation'), config.eval.tasks)

  def due(self, done: int) -> bool:
    """Says whether a panel is played after `done` iterations."""
    return bool(self._due(done))

  def judge(self, done: int, publish: Callable[[], bool]) -> dict[str, float]:
    """Validates on the interval; tests once at the end.

    Args:
      done: iterations.
      publish: hands the weights to the sampler.

    Returns:
      Metrics; {} where nothing is due.
    """
    row: dict[str, float] = {}
    names, start = self._due(done), time.monotonic()
    if 'eval' in names:
      row |= self._play('eval', self._validation, done, publish)
    if 'test' in names:
      tasks = _first(self._panels('test'), self._config.eval.test_tasks)
      row |= self._play('test', tasks, done, publish)
    if row:
      self._collector.engine.reset_counters()
      row['time/evaluate_s'] = time.monotonic() - start
    return row

  def _due(self, done):
    c, total = self._config.eval, self._config.train.iterations
    on_interval = done in (0, total) or (c.every and done % c.every == 0)
    names = ['eval'] if on_interval and self._validation else []
    return names + ['test'] * bool(done == total and c.test_tasks)

  def _play(self, name, tasks, done, publish):
    self._display.stage(f'{name}: {len(tasks)} held-out tasks')
    publish()
    mine = tasks[distributed.own(len(tasks))]
    row, played = distributed.together(
      lambda: evaluate(
        self._collector, mine, seed=self._config.seed, name=name
      ),
      loop.Interrupted,
    )
    row = hosts.combine(row, len(mine))
    success = row[f'{name}/success']
    row[f'{name}/interval'] = measures.interval(success, len(tasks))
    limit = self._config.log.trajectories
    store.write(
      self._workdir,
      done,
      played,
      kind=hosts.kind(name),
      limit=None if limit < 0 else limit,
    )
    return row


def _first(tasks: Sequence[types.Task], count: int) -> list[types.Task]:
  return [tasks[i] for i in range(min(count, len(tasks)))]
