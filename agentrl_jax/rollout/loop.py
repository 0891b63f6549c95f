"""The rollout loop: environments and the sampler, neither waiting in line.

Trajectories wait for a slot, then alternate between the sampler and the pool of
environments until they end. What a trajectory holds depends on the weights,
its task and its keys, never on who arrived first.
"""

import collections
import contextlib
import copy
import functools
import itertools
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from agentrl_jax import rng, types
from agentrl_jax.envs import pool as pool_lib
from agentrl_jax.rollout import episode as episode_lib
from agentrl_jax.rollout import queues
from agentrl_jax.rollout.breaker import Breaker
from agentrl_jax.rollout.busy import Busy
from agentrl_jax.rollout.entries import Draws, Entry, OnState, Player, Start
from agentrl_jax.rollout.episode import Episode, Language, Limits

_SOON_S = 1e-6  # is now


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
    order: who gets a slot next, a name in `queues.ORDERS`.
    yield_s: seconds that a slot waits for an environment before it is given to
      who has none; the context is read again. 0 = it always waits.
    should_stop: asked between pieces of work; True raises `Interrupted`.
    make_pool: makes the pool of environments; None = threads, as `workers` and
      `deadline_s` say.
    clock: tells the time in seconds.

  Attributes:
    busy: of the devices, while the sampler computes.
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
    order: str = 'given',
    yield_s: float = 0.0,
    should_stop: Callable[[], bool] = lambda: False,
    make_pool: Callable[[], pool_lib.Pool] | None = None,
    clock: Callable[[], float] = time.monotonic,
  ):
    self.engine, self.clock = engine, clock
    self._make_env = make_env
    self._language = language
    self._limits = limits
    self._make_pool = make_pool or functools.partial(
      pool_lib.Pool, workers, deadline_s
    )
    self._pool = self._make_pool()
    self._episode_deadline_s = episode_deadline_s or math.inf
    self._breaker, self._order = breaker, order
    self._yield_s = yield_s
    self._should_stop = should_stop
    self._tickets = itertools.count()
    self.busy = Busy(clock)

  def twin(self) -> 'Collector':
    """Returns one with the same engine, and environment threads of its own."""
    other = copy.copy(self)
    other._pool = self._make_pool()
    other._tickets = itertools.count()
    return other

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
    failed: list[types.Trajectory] = []

    def ended(player):
      if on_finish is not None:
        on_finish(player.done)
      if not player.done.stop_reason.trainable:
        failed.append(player.done)
        self._breaker.check(failed, len(entries))

    play = Play(self, ended, on_state)
    players = play.add(entries, draws)
    try:
      while play.num_open:
        if self._should_stop():
          raise Interrupted
        play.advance()
    except BaseException:
      play.abandon()
      self.engine.reset()
      raise
    return [player.done for player in players]


class Play:
  """Who waits, who plays, in which slot.

  A player has a slot while it plays; `vacate` takes all slots back between two
  calls of the sampler, and players go on in others as soon as there are some.

  Args:
    collector: of whose engine and environments it is.
    on_finish: called with each player as it ends.
    on_state: as of `Collector.collect`.

  Attributes:
    num_open: players that have not ended.
    num_restarted: players whose past could not be played again.
  """

  def __init__(
    self,
    collector: Collector,
    on_finish: Callable[['Player'], None],
    on_state: OnState | None = None,
  ):
    self.num_open = self.num_restarted = 0
    self._engine = collector.engine
    self._pool = collector._pool
    self._tickets = collector._tickets
    self._make_env = collector._make_env
    self._language = collector._language
    self._limits = collector._limits
    self._deadline_s = collector._episode_deadline_s
    self._yield_s = collector._yield_s
    self._busy, self._clock = collector.busy, collector.clock
    self._on_finish, self._on_state = on_finish, on_state
    self._waiting = queues.ORDERS[collector._order]()  # without a slot
    self._seated = {}  # slot -> player
    self._pending = {}  # ticket -> (player, action)

  def add(self, entries: Sequence[Entry], draws: Draws) -> list['Player']:
    """Lets more entries wait for a slot, behind those that wait."""
    players = [Player(entry, draws, self._episode(entry)) for entry in entries]
    for player in players:
      self._waiting.append(player)
    self.num_open += len(players)
    return players

  def advance(self, patience_s: float | None = None) -> None:
    """Starts what can start, does device work, moves environments on.

    Args:
      patience_s: waited for environments at most; None = until one answers.
    """
    wait = self._seat_all()
    if wait is not None:
      patience_s = wait if patience_s is None else min(wait, patience_s)
    self._take(block=not self._engine.busy, patience_s=patience_s)
    with self._busy if self._engine.busy else contextlib.nullcontext():
      completions = self._engine.pump(expecting=bool(self._pending))
    for completion in completions:
      self._hear(completion)
    self._take(block=False)

  def _seat_all(self) -> float | None:
    """Gives slots to those that wait; returns when to look again, or None."""
    wait = 0.0
    while self._waiting and not wait:
      slot = self._engine.acquire()
      if slot is None:
        wait = self._yield()
        if wait is None:
          return None
      else:
        self._seat(self._waiting.pop(), slot)
    return wait or None

  def _yield(self) -> float | None:
    """Frees the slot of who has waited longest for its environment, if long.

    Returns:
      Seconds until there is one to free, None = never; 0 = one was freed.
    """
    away = [p for p, _ in self._pending.values() if p.slot is not None]
    if not away or not self._yield_s:
      return None
    player = min(away, key=lambda p: p.away)
    wait = player.away + self._yield_s - self._clock()
    if wait > _SOON_S:
      return wait
    del self._seated[player.slot]
    self._engine.release(player.slot)
    player.slot = None
    return 0.0

  def vacate(self) -> None:
    """Gives back all slots; what was drawn of turns is kept and gone on from.

    Those that had a slot are the first to get one again.
    """
    for completion in self._engine.withdraw():
      if completion.whole:
        self._hear(completion)
        continue
      self._seated[completion.slot].episode.note_part(
        completion.tokens, completion.logprobs, completion.version
      )
    away = {id(player) for player, _ in self._pending.values()}
    for slot, player in list(self._seated.items())[::-1]:
      player.slot = None
      self._engine.release(slot)
      if id(player) not in away:
        self._waiting.put_back(player)
    self._seated.clear()

  def prolong(self, seconds: float) -> None:
    """Gives all episodes more time, such as nobody played."""
    for player in {id(p): p for p in self._players()}.values():
      if player.began:
        player.began += seconds

  def drop(self, players: Sequence[Player]) -> None:
    """Ends players that nobody waits for; takes all slots back."""
    self.vacate()
    away = {id(player) for player, _ in self._pending.values()}
    for player in players:
      if player.done is not None:
        continue
      player.is_dropped = True
      self.num_open -= 1
      if id(player) not in away:
        self._waiting.remove(player)
        if player.env is not None:
          _close(player.env)

  def abandon(self) -> None:
    """Drops what runs; results that still come find no ticket here."""
    away = {id(player) for player, _ in self._pending.values()}
    for player in self._players():
      # A thread may be inside the others: they are left to it.
      if player.env is not None and id(player) not in away:
        _close(player.env)
    self._pending.clear()

  def _players(self):
    """All that have not ended, some of them twice."""
    away = [player for player, _ in self._pending.values()]
    return [*self._waiting, *self._seated.values(), *away]

  def _episode(self, entry):
    if entry.start is not None:
      return entry.start.episode.fork(entry.sample)
    return Episode(entry.task, entry.sample, self._language, self._limits)

  def _seat(self, player, slot):
    self._seated[slot] = player
    player.slot, player.is_read = slot, False
    if player.env is None:
      player.began = self._clock()
      self._submit(player, None, self._opening(player))
    else:
      self._request(player, ())

  def _hear(self, completion):
    player = self._seated[completion.slot]
    player.episode.complete(
      completion.tokens,
      completion.logprobs,
      completion.version,
      completion.routes,
    )
    self._act(player, completion.stopped)

  def _act(self, player, stopped):
    """Lets the environment answer the turn that has ended."""
    action = player.episode.parse(stopped)
    if action is None:
      self._finish(player)
    else:
      self._submit(player, action, self._stepping(player, action))

  def _opening(self, player):
    make_env, episode = self._make_env, player.episode
    start, keep = player.entry.start, self._on_state is not None

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

  def _stepping(self, player, action):
    env, keep = player.env, self._on_state is not None

    def work():
      result = episode_lib.checked_result(env.step(action))
      if result.done:
        return result, None, None
      return result, env.state_key(), env.snapshot() if keep else None

    return work

  def _submit(self, player, action, work):
    left = self._left(player)
    if left <= 0:
      self._overdue(player)
      self._finish(player)
      return
    ticket, player.away = next(self._tickets), self._clock()
    self._pending[ticket] = (player, action)
    self._pool.submit(ticket, work, within_s=left)

  def _left(self, player):
    """Seconds that an episode still has."""
    return player.began + self._deadline_s - self._clock()

  def _overdue(self, player):
    player.episode.fail(
      types.StopReason.ENV_TIMEOUT,
      f'not over within {self._deadline_s:g} s '
      '(config.rollout.episode_deadline_s)',
    )

  def _take(self, block, patience_s=None):
    if not self._pending:
      return
    for ticket, result in self._pool.ready(block=block, timeout=patience_s):
      if ticket not in self._pending:
        continue  # of a collection that was interrupted
      player, action = self._pending.pop(ticket)
      if player.is_dropped:
        _close_late(player, action, result)
        continue
      episode = player.episode
      if isinstance(result, pool_lib.Failure):
        episode.fail(result.stop_reason, result.message)
        if result.stop_reason is types.StopReason.ENV_TIMEOUT:
          player.env = None  # a thread may still be inside: not closed
          if self._left(player) <= 0:
            self._overdue(player)
        new, snapshot = (), None
      elif action is None:
        player.env, first, snapshot = result
        new = episode.tokens if first is None else episode.begin(*first)
      else:
        *answer, snapshot = result
        new = episode.answer(action, *answer)
      self._go_on(player, new, snapshot)

  def _go_on(self, player, new, snapshot):
    """Asks for the next turn, or takes up what was drawn of it before."""
    episode, reason = player.episode, player.episode.stop_reason
    if player.past and (reason is None or reason.trainable):
      turn, over = player.past.popleft(), bool(player.past)
      if turn.tokens and (reason is not None or not episode.take_up(turn)):
        self._restart(player)
        return
      if over:
        episode.complete((), (), -1)
        self._act(player, turn.stopped)
        return
    if reason is not None:
      self._finish(player)
      return
    if self._on_state is not None:
      start = Start(snapshot, episode.fork(episode.sample))
      self._on_state(player.entry, start)
    self._request(player, new)

  def _restart(self, player):
    """Begins anew: the world is not as it was."""
    self.num_restarted += 1
    _close(player.env)
    player.env, player.episode = None, self._episode(player.entry)
    player.past.clear()
    self._submit(player, None, self._opening(player))

  def _request(self, player, new):
    episode, draws = player.episode, player.draws
    if player.slot is None:
      self._waiting.put_back(player)
      return
    if not player.is_read:
      new = episode.tokens
    self._engine.rewind(player.slot, episode.kept if player.is_read else 0)
    player.is_read = True
    self._engine.request(
      player.slot,
      new,
      words=rng.sampling_words(
        draws.seed,
        draws.purpose,
        draws.iteration,
        episode.task.name,
        episode.sample,
        player.entry.attempt,
        episode.num_turns,
      ),
      temperature=draws.temperature,
      budget=self._limits.max_turn_tokens - len(episode.part.tokens),
    )

  def _finish(self, player):
    player.done = player.episode.trajectory()
    self._waiting.learn(player)
    self.num_open -= 1
    if player.slot is not None:
      del self._seated[player.slot]
      self._engine.release(player.slot)
    if player.env is not None:
      _close(player.env)
    self._on_finish(player)


def _close_late(player, action, result):
  """Closes the environment of a dropped player, no thread being inside."""
  if not isinstance(result, pool_lib.Failure):
    _close(player.env if action is not None else result[0])
  elif result.stop_reason is not types.StopReason.ENV_TIMEOUT and player.env:
    _close(player.env)


def _close(env):
  """What an environment raises when its episode is over costs nothing."""
  try:
    env.close()
  except Exception as e:  # noqa: BLE001 (whatever a world raises)
    logging.getLogger(__name__).warning('closing an environment: %r', e)
