"""How long would a run take on a device that is not here?

The rollout's own code (scheduler, lanes of the sampler, admission, queues) on a
device that only tells how long it takes, and draws tokens by their keys alone:
by any schedule, with any weights, a turn has the same tokens. By `Clock` a run
takes no longer than the host's own work, and the same run takes the same time.
"""

import dataclasses
import heapq
import itertools
import math
import statistics
import time
import types as types_lib
from collections.abc import Callable, Hashable, Sequence
from concurrent import futures
from typing import Any

import numpy as np

from agentrl_jax import types
from agentrl_jax.envs import latency, noise
from agentrl_jax.rollout import ahead
from agentrl_jax.sampler import decode as decode_lib
from agentrl_jax.sampler import engine as engine_lib
from agentrl_jax.sampler import lane as lane_lib


class Clock:
  """Time that passes where somebody sleeps, and only there."""

  def __init__(self):
    self.now = 1.0
    self._aside: float | None = None

  def __call__(self) -> float:
    return self.now

  def sleep(self, seconds: float) -> None:
    """Lets time pass."""
    if self._aside is None:
      self.now += seconds
    else:
      self._aside += seconds

  def aside(self, function: Callable[[], Any]) -> tuple[Any, float]:
    """Calls a function beside what else goes on.

    Returns:
      What it returns, and for how many seconds it slept.
    """
    self._aside = 0.0
    try:
      return function(), self._aside
    finally:
      self._aside = None


class Fast:
  """Real time, made to pass faster: to hold `Clock` against threads.

  Args:
    speed: seconds that it counts in one.
  """

  def __init__(self, speed: float):
    self._speed = speed

  def __call__(self) -> float:
    return time.monotonic() * self._speed

  def sleep(self, seconds: float) -> None:
    """Waits."""
    time.sleep(seconds / self._speed)


class Pool:
  """As `envs.pool.Pool` with a thread for each call, in simulated time."""

  def __init__(self, clock: Clock):
    self._clock = clock
    self._tickets = itertools.count()
    self._due: list[tuple[float, int, Hashable, Any]] = []

  def submit(
    self,
    key: Hashable,
    function: Callable,
    *arguments: Any,
    within_s: float = np.inf,
  ) -> None:
    """Starts a call; none is ever late."""
    del within_s
    result, seconds = self._clock.aside(lambda: function(*arguments))
    due = self._clock() + seconds, next(self._tickets), key, result
    heapq.heappush(self._due, due)

  def ready(
    self, block: bool = True, timeout: float | None = None
  ) -> list[tuple[Any, Any]]:
    """Takes all results that are there, see `envs.pool.Pool`."""
    if block and self._due:
      wait = max(self._due[0][0] - self._clock(), 0.0)
      self._clock.sleep(wait if timeout is None else min(wait, timeout))
    done = []
    # Sums of the same seconds differ in their last bits.
    while self._due and self._due[0][0] <= self._clock() + 1e-9:
      done.append(heapq.heappop(self._due)[2:])
    return done

  def close(self) -> None:
    """Ends nothing: there are no threads."""


class Inline:
  """Runs a call where it is submitted, as an executor of one thread."""

  def submit(self, function: Callable, *arguments: Any) -> futures.Future:
    """Returns the outcome."""
    out = futures.Future()
    out.set_result(function(*arguments))
    return out


@dataclasses.dataclass
class State:
  """What `sampler.decode.State` says of N slots; drawn ahead of its time.

  Attributes:
    live, count, length, tokens, logprobs: see there.
    left: [N] int32, tokens of the turn that are not drawn yet.
    cache: records no experts.
  """

  live: np.ndarray
  count: np.ndarray
  length: np.ndarray
  tokens: np.ndarray
  logprobs: np.ndarray
  left: np.ndarray
  cache = types_lib.SimpleNamespace(routes=None)


class Device:
  """Programs that take their time and draw turns by their keys.

  Args:
    clock: of which it takes time.
    letters: tokens that turns are made of.
    end: token that ends a turn.
    max_turn_tokens: of a turn at most, W.
    median, sigma: of the lognormal number of a turn's tokens.
    step_s: seconds of a decode step, and of an extension; a copy takes none.
  """

  def __init__(
    self,
    clock: Clock | Fast,
    *,
    letters: Sequence[int],
    end: int,
    max_turn_tokens: int,
    median: float = 60.0,
    sigma: float = 1.0,
    step_s: float = 0.04,
  ):
    self._clock, self._step_s = clock, step_s
    self._letters, self._end = np.array(letters, np.int32), end
    self._most, self._median, self._sigma = max_turn_tokens, median, sigma
    self.lengths: list[int] = []  # of turns, in the order of their beginnings

  def turn(self, words: np.ndarray) -> np.ndarray:
    """Returns [n] int32, all tokens of the turn of a key."""
    draw = np.random.default_rng(words)
    n = round(self._median * float(np.exp(self._sigma * draw.normal())))
    letters = draw.choice(self._letters, min(max(n, 1), self._most) - 1)
    return np.append(letters, np.int32(self._end))

  def extend(
    self, params: Any, state: State, new: decode_lib.Extension
  ) -> State:
    """Reads tokens; where a prompt ends, a turn begins."""
    del params
    self._clock.sleep(self._step_s)
    for row in np.flatnonzero(new.count):
      slot = int(new.slots[row])
      state.length[slot] = new.start[row] + new.count[row]
      if new.final[row]:
        self._start(state, slot, new, row)
    return state

  def fork(self, params: Any, state: State, new: decode_lib.Fork) -> State:
    """Copies prompts."""
    del params
    for row in np.flatnonzero(new.count):
      slot = int(new.slots[row])
      state.length[slot] = new.count[row]
      self._start(state, slot, new, row)
    return state

  def decode(
    self, params: Any, state: State, max_steps: int, stop_below: int
  ) -> tuple[State, np.ndarray]:
    """Takes steps until few slots are live or the steps are spent."""
    del params
    left = state.left[state.live]
    order, below = np.sort(left)[::-1], max(int(stop_below), 1)
    steps = 0 if len(order) < below else min(int(order[below - 1]), max_steps)
    drawn = np.where(state.live, np.minimum(state.left, steps), 0)
    state.count += drawn
    state.length += drawn
    state.left -= drawn
    state.live &= state.left > 0
    self._clock.sleep(steps * self._step_s)
    return state, np.array([steps, int(drawn.sum())])

  def _start(self, state, slot, new, row):
    """Begins a turn, or goes on where it was withdrawn."""
    had = self._most - int(new.budget[row])
    tokens = self.turn(new.words[row])[had:]
    state.tokens[slot, : len(tokens)] = tokens
    state.logprobs[slot, : len(tokens)] = -1.0 / (1 + tokens)
    state.count[slot], state.left[slot] = 1, len(tokens) - 1
    state.live[slot] = len(tokens) > 1


class Engine(engine_lib.Engine):
  """The sampler's engine with one lane, and a `Device` that is not there.

  Args:
    device: draws.
    thread: runs its programs: `Inline`, or an executor of one thread.
    num_slots: contexts decoded together.
    context_length: tokens of a context at most.
    max_turn_tokens: of the device.
    shape: rows, tokens and steps of its calls.
    stop_ids: tokens that end a turn.
  """

  def __init__(
    self,
    device: Device,
    thread: Any,
    *,
    num_slots: int,
    context_length: int,
    max_turn_tokens: int,
    shape: lane_lib.Shape,
    stop_ids: Sequence[int],
  ):
    self.num_slots, self._width = num_slots, num_slots
    self.context_length = context_length
    self.max_turn_tokens = max_turn_tokens
    self.counters, self.version = lane_lib.Counters(), -1
    self._params = None
    programs = lane_lib.Programs(
      extend=lane_lib.Program(device.extend),
      decode=lane_lib.Program(device.decode),
      fork=lane_lib.Program(device.fork),
      stop_ids=tuple(stop_ids),
      shape=shape,
    )
    state = State(
      np.zeros(num_slots, bool),
      np.zeros(num_slots, np.int32),
      np.zeros(num_slots, np.int32),
      np.zeros((num_slots, max_turn_tokens), np.int32),
      np.zeros((num_slots, max_turn_tokens), np.float32),
      np.zeros(num_slots, np.int32),
    )
    self._lanes = [_Lane(programs, state, num_slots, thread)]

  def publish(self, params: Any, version: int) -> bool:
    """Takes the number of weights; says that they came over well."""
    del params
    if not all(lane.is_empty for lane in self._lanes):
      raise RuntimeError('publish needs all slots free or withdrawn')
    for lane in self._lanes:
      lane.forget_prompts()
    self.version = version
    return True


class _Lane(lane_lib.Lane):
  """A lane whose state lies on the host."""

  def _silence(self):
    self._idle = 0
    self.queue.clear()
    self.forget_prompts()
    self._in_turn[:] = False
    self._state.live[:] = False


class World:
  """An environment of 1 + Geom(stop) turns whose tools take their time.

  Turns and seconds belong to task and member of the group.

  Args:
    clock: on which tools sleep.
    tool_s: median seconds of a call, see `envs.latency`.
    most: turns at most.
    reply: what a tool says.
    stop: probability that a turn after the first does not come.
    alike: how far members of a group have equally many turns, 0 = not at all,
      1 = all the same.
  """

  tools, system = (), 'Work.'

  def __init__(
    self,
    clock: Clock | Fast,
    tool_s: float,
    *,
    most: int = 20,
    reply: str = '',
    stop: float = 0.2,
    alike: float = 0.0,
  ):
    self._clock, self._tool_s = clock, tool_s
    self._reply, self._turns = reply, (most, stop, alike)
    self._place, self._turn = ('', 0), 0

  def reset(self, task: types.Task, *, sample: int = 0) -> types.Observation:
    """Opens at once."""
    self._place = task.name, sample
    return types.Observation((types.Message('user', task.name),))

  def step(self, action: types.Action) -> types.StepResult:
    """Answers after the delay."""
    del action
    self._turn += 1
    self._clock.sleep(_tool_s(self._tool_s, *self._place, self._turn))
    done = self._turn >= num_turns(*self._place, *self._turns)
    reply = types.Observation((types.Message('tool', self._reply),))
    return types.StepResult(reply, float(done), done, None, {'valid': True})

  def state_key(self) -> None:
    """Has no states that others reach."""

  def close(self) -> None:
    """Holds nothing."""


def num_turns(
  task: str, sample: int, most: int = 20, stop: float = 0.2, alike: float = 0.0
) -> int:
  """Returns 1 + Geom(stop), the turns of an episode, `most` at most.

  Of two normal variables, one of the task and one of the member, the sum with
  variances `alike` and 1 - `alike` says which quantile it is.
  """
  normal, own = statistics.NormalDist(), noise.fraction('turns', task, sample)
  if alike:
    own = normal.inv_cdf(max(own, 1e-12))
    common = normal.inv_cdf(max(noise.fraction('turns', task), 1e-12))
    own = normal.cdf(alike**0.5 * common + (1 - alike) ** 0.5 * own)
  return min(1 + int(math.log(max(1 - own, 1e-12)) / math.log(1 - stop)), most)


def tool_seconds(tool_s: float, task: str, sample: int, turns: int) -> float:
  """Returns for how long the tools of so many turns of an episode work."""
  each = (_tool_s(tool_s, task, sample, 1 + i) for i in range(turns))
  return sum(each)


def _tool_s(median_s, task, sample, turn):
  return latency.seconds(median_s, task, sample, turn) if median_s else 0.0


class Ahead(ahead.Ahead):
  """Plays ahead on a `Clock`: in turns with the learner, not in a thread."""

  def pass_time(self, seconds: float) -> None:
    """Plays while the learner does something else for so long."""
    clock = self._collector.clock
    end = clock() + seconds
    while clock() < end and not self._is_idle():
      self._play.advance(end - clock())
    clock.sleep(max(end - clock(), 0.0))

  def close(self) -> None:
    """Ends what is played."""
    self._play.abandon()
    self._collector.close()

  def _begin(self):
    """There is no thread."""

  def _wait(self):
    left = self._play.num_open
    while self._play.num_open == left:
      self._play.advance()

  def _between(self, work):
    return work()

  def _raise_fault(self):
    """What goes wrong is raised where it happens."""
