"""Which tasks does an iteration play, on which host, and how often?"""

import collections
import functools
from collections.abc import Callable, Sequence

import ml_collections

from agentrl_jax import distributed, types
from agentrl_jax.rollout import loop, selection

Times = collections.Counter[str]
Play = Callable[[Sequence[types.Task], Times], Sequence[types.Group]]
Take = Callable[[int, int], Sequence[int]]


def gather(
  play: Play,
  tasks: Sequence[types.Task],
  place: int,
  c: ml_collections.ConfigDict,
  take: Take | None = None,
) -> tuple[list[types.Group], list[types.Group], int]:
  """Plays tasks; where the config refills, until enough groups vary.

  All hosts play equally many tasks in each round, those of one after those of
  the other; where one lacks groups, all go on.

  Args:
    play: takes the tasks of all hosts, and how often each was played so far in
      this iteration; plays this host's (see `entries`) and scores them.
    tasks: of the split.
    place: of the next task in the order of the run.
    c: of the run.
    take: from a place and a number to indices of that many tasks; None = all
      tasks once an epoch.

  Returns:
    (groups to learn from, all that were played), of each this host's, and the
    place of the task after them.

  Raises:
    loop.Interrupted: a host was asked to end.
  """
  take = take or functools.partial(selection.task_order, len(tasks), c.seed)
  number = distributed.share(c.rollout.tasks)
  refills = c.train.constant_groups == 'refill'
  missing = c.rollout.tasks
  played: list[types.Group] = []
  times: Times = collections.Counter()
  for _ in range(1 + refills * c.rollout.max_refills):
    chosen = [tasks[i] for i in take(place, missing)]
    place += missing
    played += distributed.together(
      lambda chosen=chosen: play(chosen, times), loop.Interrupted
    )
    varying = sum(selection.varying(played))
    missing = distributed.count() * distributed.most(number - varying)
    if missing <= 0:
      break
  groups = selection.fill(played, number) if refills else played
  return groups, played, place


def entries(
  tasks: Sequence[types.Task], times: Times, group_size: int
) -> list[loop.Entry]:
  """Returns the episodes of this host: `group_size` of each of its tasks.

  Args:
    tasks: of all hosts, one group each.
    times: how often each task was played in this iteration, counted here: a
      task that comes again has other samples, or they would be the same.
    group_size: G.
  """
  own, out = distributed.own(len(tasks)), []
  for at, task in enumerate(tasks):
    first = times[task.name] * group_size
    times[task.name] += 1
    if own.start <= at < own.stop:
      out += [loop.Entry(task, first + i) for i in range(group_size)]
  return out


def grouped(
  entries: Sequence[loop.Entry],
  played: Sequence[types.Trajectory],
  group_size: int,
) -> list[types.Group]:
  """Puts trajectories, in the order of their entries, into groups."""
  return [
    types.Group(entries[i].task, tuple(played[i : i + group_size]))
    for i in range(0, len(entries), group_size)
  ]
