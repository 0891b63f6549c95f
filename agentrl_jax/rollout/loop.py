"""The rollout loop: environments and the sampler, neither waiting in line.

Trajectories wait for a slot, then alternate between the sampler and the pool of
environments until they end. What a trajectory holds depends on the weights,
its task and its keys, never on who arrived first.
"""

import collections
import dataclasses
import itertools
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from agentrl_jax import rng, types
from agentrl_jax.envs import pool as pool_lib
from agentrl_jax.rollout import episode as episode_lib
from agentrl_jax.rollout.breaker import Breaker
from agentrl_jax.rollout.episode import Episode, Language, Limits


@dataclasses.dataclass(frozen=True)
class Start:
  """A state of an episode in which a turn is about to be drawn.

  Attributes:
    snapshot: of the environment.
    episode: its past; to be forked, never continued itself.
  """

  snapshot: Any
  episode: Episode


@dataclasses.dataclass(frozen=True)
class Entry:
  """A trajectory to collect: member `sample` of the group of `task`.

  Attributes:
    attempt: tells several plays of one member apart.
    start: where it goes on from, None = the beginning. The trajectory then
      holds the turns before it as well.
  """

  task: types.Task
  sample: int
  attempt: int = 0
  start: Start | None = None

  @property
  def name(self) -> tuple[str, int, int]:
    """What its sampling keys are made of."""
    return self.task.name, self.sample, self.attempt


OnState = Callable[[Entry, Start], None]


@dataclasses.dataclass(frozen=True)
class Draws:
  """What sampling keys are made of, and how tokens are drawn.

  Attributes:
    seed: of the run.
    purpose: 'train', 'eval', ... : never share samples.
    iteration: of the run.
    temperature: 0 = greedy.
  """

  seed: int
  purpose: str
  iteration: int
  temperature: float = 1.0


class Interrupted(Exception):
  """The run was asked to stop while episodes were running."""


class Collector:
  """Plays episodes with a sampler engine and a pool of environments.

  Args:
    engine: `sampler.engine.Engine`, weights published.
    make_env: makes a single-use environment.
    language: tokenizer and style.
    limits: budgets of an episode.
    workers: environment threads, 0 = in the loop.
    deadline_s: of one call of an environment.
    episode_deadline_s: of an episode from its opening on, 0 = none. Looked at
      between turns and while an environment works.
    breaker: says how many failures are too many.
    should_stop: asked between pieces of work; True raises `Interrupted`.
  """

  def __init__(
    self,
    engine: Any,
    make_env: Callable[[], Any],
    language: Language,
    limits: Limits,
    *,
    workers: int = 0,
    deadline_s: float = 60.0,
    episode_deadline_s: float = 0.0,
    breaker: Breaker = Breaker(),  # noqa: B008 (frozen)
    should_stop: Callable[[], bool] = lambda: False,
  ):
    self.engine = engine
    self._make_env = make_env
    self._language = language
    self._limits = limits
    self._pool = pool_lib.Pool(workers, deadline_s)
    self._episode_deadline_s = episode_deadline_s or math.inf
    self._breaker = breaker
    self._should_stop = should_stop
    self._tickets = itertools.count()

  def close(self) -> None:
    """Ends the environment threads."""
    self._pool.close()

  def collect(
    self,
    entries: Sequence[Entry],
    draws: Draws,
    on_finish: Callable[[types.Trajectory], None] | None = None,
    on_state: OnState | None = None,
  ) -> list[types.Trajectory]:
    """Plays every entry once.

    Args:
      entries: what to play.
      draws: keys and temperature.
      on_finish: called with each trajectory as it ends, in order of ending.
      on_state: called with each state before its turn is drawn; needs an
        environment with snapshots.

    Returns:
      Trajectories in the order of `entries`.

    Raises:
      ValueError: two entries would draw the same samples.
      Interrupted: `should_stop` said so; slots and environments are freed.
      TooManyFailures: the breaker said so; freed likewise.
    """
    names = collections.Counter(entry.name for entry in entries)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
      raise ValueError(
        f'entry {twice[0]} (task, sample, attempt) stands '
        f'{names[twice[0]]} times and would be sampled alike each time: give '
        'each a sample or an attempt of its own'
      )
    run = _Run(self, entries, draws, on_finish, on_state)
    try:
      while not run.finished:
        if self._should_stop():
          raise Interrupted
        run.advance()
    except BaseException:
      run.abandon()
      self.engine.reset()
      raise
    return run.trajectories()


class _Run:
  """State of one `collect`: who waits, who plays, in which slot."""

  def __init__(self, collector, entries, draws, on_finish, on_state):
    self._engine = collector.engine
    self._pool = collector._pool
    self._tickets = collector._tickets
    self._make_env = collector._make_env
    self._limits = collector._limits
    self._deadline_s = collector._episode_deadline_s
    self._breaker = collector._breaker
    self._draws = draws
    self._on_finish, self._on_state = on_finish, on_state
    self._entries = entries
    self._episodes = [
      e.start.episode.fork(e.sample)
      if e.start is not None
      else Episode(e.task, e.sample, collector._language, collector._limits)
      for e in entries
    ]
    self._envs = [None] * len(entries)
    self._slots = [None] * len(entries)
    self._player = {}  # slot -> episode index
    self._waiting = list(range(len(entries)))[::-1]
    self._pending = {}  # ticket -> (episode index, action)
    self._began = [0.0] * len(entries)
    self._done = [None] * len(entries)
    self._failed = []
    self._num_done = 0

  @property
  def finished(self) -> bool:
    return self._num_done == len(self._episodes)

  def trajectories(self) -> list[types.Trajectory]:
    return list(self._done)

  def advance(self) -> None:
    """Starts what can start, does device work, moves environments on."""
    while self._waiting:
      slot = self._engine.acquire()
      if slot is None:
        break
      i = self._waiting.pop()
      self._slots[i], self._player[slot] = slot, i
      self._began[i] = time.monotonic()
      self._submit(i, None, self._opening(i))
    self._take(block=not self._engine.busy)
    for completion in self._engine.pump(expecting=bool(self._pending)):
      i = self._player[completion.slot]
      episode = self._episodes[i]
      episode.complete(
        completion.tokens,
        completion.logprobs,
        completion.version,
        completion.routes,
      )
      action = episode.parse(completion.stopped)
      if action is None:
        self._finish(i)
      else:
        self._submit(i, action, self._stepping(i, action))
    self._take(block=False)

  def abandon(self) -> None:
    """Drops what runs; results that still come find no ticket here."""
    waited_for = {i for i, _ in self._pending.values()}
    for i, env in enumerate(self._envs):
      # A thread may be inside the others: they are left to it.
      if env is not None and self._done[i] is None and i not in waited_for:
        _close(env)

  def _opening(self, i):
    make_env, episode = self._make_env, self._episodes[i]
    start, keep = self._entries[i].start, self._on_state is not None

    def work():
      env = make_env()
      if start is not None:
        env.restore(start.snapshot)
        return env, None, start.snapshot
      observation = env.reset(episode.task, sample=episode.sample)
      episode_lib.checked_observation(observation)
      first = env.system, observation, env.state_key(), env.tools
      return env, first, env.snapshot() if keep else None

    return work

  def _stepping(self, i, action):
    env, keep = self._envs[i], self._on_state is not None

    def work():
      result = episode_lib.checked_result(env.step(action))
      if result.done:
        return result, None, None
      return result, env.state_key(), env.snapshot() if keep else None

    return work

  def _submit(self, i, action, work):
    left = self._left(i)
    if left <= 0:
      self._overdue(i)
      self._finish(i)
      return
    ticket = next(self._tickets)
    self._pending[ticket] = (i, action)
    self._pool.submit(ticket, work, within_s=left)

  def _left(self, i):
    """Seconds that an episode still has."""
    return self._began[i] + self._deadline_s - time.monotonic()

  def _overdue(self, i):
    self._episodes[i].fail(
      types.StopReason.ENV_TIMEOUT,
      f'not over within {self._deadline_s:g} s '
      '(config.rollout.episode_deadline_s)',
    )

  def _take(self, block):
    if not self._pending:
      return
    for ticket, result in self._pool.ready(block=block):
      if ticket not in self._pending:
        continue  # of a collection that was interrupted
      i, action = self._pending.pop(ticket)
      episode = self._episodes[i]
      if isinstance(result, pool_lib.Failure):
        episode.fail(result.stop_reason, result.message)
        if result.stop_reason is types.StopReason.ENV_TIMEOUT:
          self._envs[i] = None  # a thread may still be inside: not closed
          if self._left(i) <= 0:
            self._overdue(i)
        new, snapshot = (), None
      elif action is None:
        self._envs[i], first, snapshot = result
        new = episode.tokens if first is None else episode.begin(*first)
      else:
        *answer, snapshot = result
        new = episode.answer(action, *answer)
      if episode.stop_reason is not None:
        self._finish(i)
        continue
      if self._on_state is not None:
        start = Start(snapshot, episode.fork(episode.sample))
        self._on_state(self._entries[i], start)
      self._request(i, new)

  def _request(self, i, new):
    episode, draws = self._episodes[i], self._draws
    self._engine.rewind(self._slots[i], episode.kept)
    self._engine.request(
      self._slots[i],
      new,
      words=rng.sampling_words(
        draws.seed,
        draws.purpose,
        draws.iteration,
        episode.task.name,
        episode.sample,
        self._entries[i].attempt,
        episode.num_turns,
      ),
      temperature=draws.temperature,
      budget=self._limits.max_turn_tokens,
    )

  def _finish(self, i):
    self._done[i] = self._episodes[i].trajectory()
    self._num_done += 1
    slot = self._slots[i]
    del self._player[slot]
    self._engine.release(slot)
    if self._envs[i] is not None:
      _close(self._envs[i])
    if self._on_finish is not None:
      self._on_finish(self._done[i])
    if not self._done[i].stop_reason.trainable:
      self._failed.append(self._done[i])
      self._breaker.check(self._failed, len(self._episodes))


def _close(env):
  """What an environment raises when its episode is over costs nothing."""
  try:
    env.close()
  except Exception as e:  # noqa: BLE001 (whatever a world raises)
    logging.getLogger(__name__).warning('closing an environment: %r', e)
