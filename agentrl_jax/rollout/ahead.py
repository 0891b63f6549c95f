"""How are episodes played while the learner updates, and never too early?

A thread plays. A group is admitted for one iteration, and so only once the
weights are at most `rollout.max_staleness` iterations older than those that
will learn from it: what is admitted is in time, nothing has to be dropped for
its age, and no iteration prefers short episodes. New weights come between two
calls of the sampler: turns are withdrawn, their contexts read again by the new
weights, and gone on with. So the log-probability of a token is always that of
its version, given all that stands before it.
"""

import collections
import contextlib
import dataclasses
import queue
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any

import ml_collections

from agentrl_jax import types
from agentrl_jax.rollout import breaker, gathering, loop, pending
from agentrl_jax.rollout import entries as entries_lib

# Seconds that a thread waits before it looks what others want.
_PATIENCE_S = 0.05


@dataclasses.dataclass
class Batch:
  """The groups of an iteration that are played or were.

  Attributes:
    entries: group by group.
    players: of each; None where the trajectory came with a file.
    done: by place, trajectories that have ended.
    cut: numbers of groups that were dropped.

  A place is an index of the entries; those of a group follow each other.
  """

  entries: list[loop.Entry]
  players: list[loop.Player | None]
  done: dict[int, types.Trajectory]
  cut: list[int] = dataclasses.field(default_factory=list)

  def whole(self, size: int) -> list[int]:
    """Returns the numbers of groups of `size` that have ended."""
    ended = collections.Counter(place // size for place in self.done)
    return sorted(g for g, number in ended.items() if number == size)


class Ahead:
  """Plays the groups of coming iterations; a source as `sources.Now`.

  What others want done with what is played is done by the thread that plays,
  so that nothing is shared.

  Args:
    config: of the run.
    collector: whose sampler and environments; it plays only while `paused`.
    workdir: run directory.
    tasks, take, score, display: as of `sources.Now`.
    should_stop: asked while the learner waits for groups.
  """

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    collector: loop.Collector,
    workdir: str,
    tasks: Sequence[types.Task],
    take: gathering.Take,
    score: Callable,
    display: Any,
    should_stop: Callable[[], bool],
  ):
    c = config.rollout
    self._config, self._workdir = config, workdir
    self._tasks, self._take, self._score = tasks, take, score
    self._display, self._should_stop = display, should_stop
    self._breaker = breaker.make(c)
    self._size, self._wanted = c.group_size, c.tasks
    self._number = c.tasks + c.oversample  # groups admitted an iteration
    self._collector = collector.twin()
    self._play = loop.Play(self._collector, self._ended)
    self._batches: dict[int, Batch] = {}
    self._admitted = 0  # iterations
    self._published: dict[int, int] = {}  # version -> its last iteration
    self._counts = collections.Counter()
    self._measures: dict[str, float] = {}
    self._changed = threading.Condition()
    self._orders: queue.SimpleQueue = queue.SimpleQueue()
    self._parked, self._closed = True, False
    self._fault: BaseException | None = None
    self._thread = threading.Thread(target=self._work, daemon=True)
    self._begin()

  @property
  def counts(self) -> Mapping[str, int]:
    """Groups of the whole run: admitted = trained + dropped + open."""
    counted = {k: self._counts[k] for k in ('admitted', 'trained', 'dropped')}
    return counted | {
      'open': sum(
        len(b.entries) // self._size - len(b.cut)
        for b in self._batches.values()
      )
    }

  def publish(
    self, hand_over: Callable[[], bool], version: int, iteration: int
  ) -> bool:
    """Hands over weights between two calls; admits what is in time now."""

    def work():
      self._play.vacate()
      equal = hand_over()
      self._published[version] = iteration
      last = min(
        iteration + self._config.rollout.max_staleness,
        self._config.train.iterations - 1,
      )
      for each in range(max(self._admitted, iteration), last + 1):
        self._admit(each)
      self._parked = False
      return equal

    return self._between(work)

  def listening(self, doctor: Any, iteration: int):
    """Nothing: a context that is read again is no new one to the sampler."""
    del doctor, iteration
    return contextlib.nullcontext()

  def gather(
    self, iteration: int, place: int
  ) -> tuple[list[types.Group], list[types.Group], int]:
    """Waits for the groups of an iteration, and scores them.

    Raises:
      loop.Interrupted: the run was asked to end.
      breaker.TooManyFailures: too many episodes of an iteration failed.
    """
    start = self._collector.clock()
    batch = self._batches[iteration]
    with self._changed:
      self._look_around()
      while len(batch.whole(self._size)) < self._wanted:
        self._display.progress(
          f'iteration {iteration + 1}',
          len(batch.done),
          self._wanted * self._size,
        )
        self._wait()
        self._look_around()
    waited = self._collector.clock() - start
    lost = self._between(lambda: self._cut(batch))
    groups = self._groups(batch)
    self._measures = {'time/wait_s': waited} | self._ages(groups, iteration)
    self._measures |= {
      'rollout/open_groups': float(self.counts['open']),
      'rollout/dropped_groups': float(len(batch.cut)),
      'rollout/dropped_turns': lost,
      'rollout/restarted': float(self._play.num_restarted),
    }
    groups = self._score(groups)
    return groups, groups, place + self._number

  def trained(self, iteration: int) -> None:
    """Notes that the groups of an iteration were learnt from."""

    def work():
      batch = self._batches.pop(iteration)
      whole = len(batch.entries) // self._size - len(batch.cut)
      self._counts['trained'] += whole

    self._between(work)

  def measures(self) -> dict[str, float]:
    """Returns what there is to say of the groups gathered last."""
    return self._measures

  def seconds(self, laps: Mapping[str, float]) -> float:
    """Returns for how long an iteration's sampling went on: all along."""
    return sum(laps.values())

  @contextlib.contextmanager
  def paused(self) -> Iterator[None]:
    """All slots are free inside; episodes have as much more time."""
    start, was = self._collector.clock(), self._parked

    def park():
      self._play.vacate()
      self._parked = True

    def resume():
      self._play.prolong(self._collector.clock() - start)
      self._parked = was

    self._between(park)
    try:
      yield
    finally:
      self._between(resume)

  def versions(self, iteration: int) -> Collection[int]:
    """Returns the versions that an iteration's tokens may have."""
    oldest = iteration - self._config.rollout.max_staleness
    return {v for v, last in self._published.items() if last >= oldest}

  def keep(self, done: int, *, final: bool = False) -> None:
    """Writes down what is under way after `done` iterations.

    Args:
      done: iterations.
      final: nothing is played any more: parts of turns are kept as well.
    """

    def work():
      if final:
        self._play.vacate()
        self._parked = True
      return [
        member
        for iteration, batch in sorted(self._batches.items())
        for member in self._members(iteration, batch)
      ]

    members = self._between(work)
    published = sorted(self._published.items())
    head = {'published': published, 'counts': dict(self._counts)}
    pending.write(self._workdir, done, head, members)

  def restore(self, done: int) -> None:
    """Takes up what was under way after `done` iterations."""
    head, members = pending.read(self._workdir, done)
    if done > 0 and not head:
      self._display.warn(
        f'no record of what was under way after iteration {done} '
        '(pending/): its episodes are played anew, groups counted from 0'
      )
    self._admitted = done
    self._published = dict(map(tuple, head.get('published', ())))
    self._counts.update(head.get('counts', {}))
    by_iteration = collections.defaultdict(list)
    for member in members:
      by_iteration[member.iteration].append(self._of_the_panel(member))

    def work():
      for iteration, some in sorted(by_iteration.items()):
        self._add(iteration, some)
        self._admitted = iteration + 1

    self._between(work)
    begun = sum(bool(m.past) for m in members)
    ended = sum(m.done is not None for m in members)
    self._display.note(
      f'episodes of coming iterations: {ended} that ended, {begun} under way'
    )

  def close(self) -> None:
    """Ends the thread, and what it plays."""
    self._closed = True
    self._orders.put((lambda: None, futures.Future()))
    self._thread.join()
    self._collector.close()

  def _begin(self):
    self._thread.start()

  def _wait(self):
    """Waits for a trajectory that ends, not long."""
    self._changed.wait(_PATIENCE_S)

  def _work(self):
    try:
      while not self._closed:
        self._serve()
        if not self._closed and not self._is_idle():
          self._play.advance(_PATIENCE_S)
    except BaseException as e:  # noqa: BLE001 (raised where it is waited for)
      self._fault = e
    finally:
      self._play.abandon()
      self._collector.engine.reset()
      with self._changed:
        self._changed.notify_all()

  def _is_idle(self):
    return self._parked or not self._play.num_open

  def _serve(self):
    """Does what others want; waits for them where there is nothing to play."""
    while not self._orders.empty() or self._is_idle():
      work, order = self._orders.get()
      if self._closed:
        return
      try:
        order.set_result(work())
      except Exception as e:  # noqa: BLE001 (told to who asked)
        order.set_exception(e)

  def _between(self, work):
    """Has something done by the thread, between two calls of the sampler."""
    order = futures.Future()
    self._orders.put((work, order))
    while not futures.wait([order], timeout=1.0).done:
      self._raise_fault()
    return order.result()

  def _look_around(self):
    """Raises if there is nothing to wait for any more."""
    self._raise_fault()
    if self._should_stop():
      raise loop.Interrupted

  def _raise_fault(self):
    if self._fault is not None:
      raise self._fault
    if not self._thread.is_alive():
      raise RuntimeError('the source is closed: nothing is played any more')

  def _admit(self, iteration):
    chosen = self._take(iteration * self._number, self._number)
    tasks = [self._tasks[index] for index in chosen]
    entries = gathering.entries(tasks, collections.Counter(), self._size)
    self._add(
      iteration, [pending.Member(iteration, e.task, e.sample) for e in entries]
    )
    self._admitted = iteration + 1
    self._counts['admitted'] += self._number

  def _add(self, iteration, members):
    """Lets the members of an iteration's groups wait for slots."""
    c = self._config
    draws = loop.Draws(c.seed, 'train', iteration, c.rollout.temperature)
    entries = [loop.Entry(m.task, m.sample, past=m.past) for m in members]
    ended = {i: m.done for i, m in enumerate(members) if m.done is not None}
    left = [i for i in range(len(members)) if i not in ended]
    added = self._play.add([entries[i] for i in left], draws)
    players = dict(zip(left, added, strict=True))
    self._batches[iteration] = Batch(
      entries, [players.get(i) for i in range(len(members))], ended
    )

  def _of_the_panel(self, member):
    """Gives a member the panel's task: as JSON it may be another (tuples)."""
    index = member.task.index
    task = self._tasks[index] if index < len(self._tasks) else member.task
    if task.name != member.task.name:
      return member
    done = member.done and dataclasses.replace(member.done, task=task)
    return dataclasses.replace(member, task=task, done=done)

  def _ended(self, player):
    batch = self._batches[player.draws.iteration]
    with self._changed:
      batch.done[batch.players.index(player)] = player.done
      self._changed.notify_all()
    failed = [t for t in batch.done.values() if not t.stop_reason.trainable]
    self._breaker.check(failed, len(batch.entries))

  def _cut(self, batch):
    """Drops groups that came late; returns how many turns they had."""
    size, number = self._size, len(batch.entries) // self._size
    kept = batch.whole(size)[: self._wanted]
    new = [g for g in range(number) if g not in {*kept, *batch.cut}]
    places = [g * size + i for g in new for i in range(size)]
    late = [batch.players[i] for i in places if i not in batch.done]
    if late:
      self._play.drop(late)
    batch.cut += new
    self._counts['dropped'] += len(new)
    turns = [len(batch.done[i].turns) for i in places if i in batch.done]
    # Some end while slots are taken back: they are in `done`.
    turns += [p.episode.num_turns for p in late if p.done is None]
    return sum(turns) / len(turns) if turns else 0.0

  def _groups(self, batch):
    kept = [
      place
      for place in range(len(batch.entries))
      if place // self._size not in batch.cut
    ]
    return gathering.grouped(
      [batch.entries[i] for i in kept],
      [batch.done[i] for i in kept],
      self._size,
    )

  def _members(self, iteration, batch):
    for place, entry in enumerate(batch.entries):
      done = batch.done.get(place)
      past = entries_lib.past(batch.players[place]) if done is None else ()
      if place // self._size not in batch.cut:
        yield pending.Member(iteration, entry.task, entry.sample, past, done)

  def _ages(self, groups, iteration):
    """Iterations between the weights that drew a token and those that learn."""
    contexts = [
      context
      for group in groups
      for t in group.trajectories
      for context in t.contexts
      if any(context.sampled_mask)
    ]
    versions = collections.Counter(
      v for context in contexts for v in context.versions if v >= 0
    )
    unrouted = sum(context.routes is None for context in contexts)
    if unrouted == len(contexts):
      unrouted = 0  # there are no experts
    ages = {v: iteration - self._published[v] for v in versions}
    total = sum(ages[v] * count for v, count in versions.items())
    return {
      'rollout/staleness_mean': total / max(versions.total(), 1),
      'rollout/staleness_max': float(max(ages.values(), default=0)),
      'rollout/unrouted_contexts': float(unrouted),
    }


def faults(c: ml_collections.ConfigDict) -> list[str]:
  """Returns what cannot be while the learner updates."""
  lag, out = c.rollout.max_staleness, []
  if not lag and c.rollout.oversample:
    return ['config.rollout.oversample: needs config.rollout.max_staleness > 0']
  if not lag:
    return []
  if c.train.constant_groups == 'refill':
    out.append(
      "config.train.constant_groups='refill': more tasks would come too late; "
      "set it to 'drop'"
    )
  if c.advantage.estimator in ('vineppo', 'remax'):
    out.append(
      f'config.advantage.estimator={c.advantage.estimator!r}: plays further '
      'episodes by the same weights'
    )
  if c.rejection.every:
    out.append(
      f'config.rejection.every={c.rejection.every}: imitation changes the '
      'weights and leaves their version; set it to 0'
    )
  sizes = c.mesh.to_dict()
  if set(sizes.values()) != {1} or c.distributed.coordinator:
    out.append(
      f'config.mesh={sizes}: two threads would start their collectives in '
      'different orders; only one device of one host is allowed'
    )
  return [f'{fault} (config.rollout.max_staleness={lag})' for fault in out]
