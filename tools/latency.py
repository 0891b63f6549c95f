"""How long do iterations take on a simulated device, by schedule?

The rollout's own code (`agentrl_jax.rollout`) on a device that takes 40 ms for
a decode step of 64 slots or an extension, and 8 s for an update; see
`agentrl_jax.rollout.simulated`. A load is 256 trajectories of 1 + Geom(0.2)
turns, 20 at most; tokens of a turn are lognormal (median 60, sigma 1), seconds
of a tool too, a hundredth above 25 times the median.

Schedules: `waves` collects as many trajectories at a time as there are slots
and waits for the last, then for the update; `sync` gives a slot that comes free
to the next; `longest` prefers long ones; `ahead` plays while the learner
updates, by weights at most two iterations old; `divided` does so and gives
slots away whose tools have worked for 0.3 s.
"""

import dataclasses
import functools
import hashlib
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent import futures

import numpy as np

from agentrl_jax import config as config_lib
from agentrl_jax import display, types
from agentrl_jax.rollout import (
  ahead,
  episode,
  gathering,
  loop,
  selection,
  simulated,
  sources,
)
from agentrl_jax.sampler import lane
from agentrl_jax.text import templates, tokenizer

TASKS, GROUP, SLOTS = 32, 8, 64  # 256 trajectories an iteration
ITERATIONS, SEEDS, FEWER = 6, 5, 1  # seeds of the load, of all others
TOOL, TOOLS = 0.2, (0.0, 0.05, 1.0)  # seconds, medians: of the load, others
STEP_S, UPDATE_S = 0.04, 8.0
MOST_TOKENS, CONTEXT = 2048, 49152
ROWS, CHUNK, STEPS = 16, 128, 8  # of an extension, a row of it, a decode call
LETTERS, STYLE = 'abcdefgh', 'tiny'
SIZES = 32, 128, 512  # trajectories, where the cost is looked at
OVERSAMPLE, ALIKE = 4, 0.8  # groups that are dropped; see `simulated.World`
LONG = 40  # iterations, where memory is looked at
SPEED, SHORT = 4.0, 1  # of `Fast` time, and iterations played by it


@dataclasses.dataclass(frozen=True)
class Plan:
  """A schedule.

  Attributes:
    lag: `rollout.max_staleness`.
    order: `rollout.order`.
    yield_s: `rollout.yield_s`.
    waves: whether slots wait for the last of a batch.
    oversample: `rollout.oversample`, groups.
    alike: of the members of a group, see `simulated.World`.
    tasks, slots: of an iteration, of the sampler.
    iterations: that are played.
  """

  lag: int = 0
  order: str = 'given'
  yield_s: float = 0.0
  waves: bool = False
  oversample: int = 0
  alike: float = 0.0
  tasks: int = TASKS
  slots: int = SLOTS
  iterations: int = ITERATIONS


PLANS = {
  'waves': Plan(waves=True),
  'sync': Plan(),
  'longest': Plan(order='longest'),
  'ahead': Plan(lag=2, order='longest'),
  'divided': Plan(lag=2, order='longest', yield_s=0.3),
}


@dataclasses.dataclass
class Played:
  """What a run of some iterations gave.

  Attributes:
    wall_s: to the end of the last update, simulated.
    rollout_s: of it without the updates that nothing was played in.
    busy_s: of it with the sampler at work.
    tokens: drawn and learnt from.
    live: share of slot-steps of the whole time that drew a token.
    turns: mean of the trajectories learnt from.
    ideal_s: the same tokens with every slot always live.
    critical_s: mean over iterations of the trajectory that takes longest if it
      never waits.
    host_s: processor seconds of the host.
    resident_mb: of the process, after each iteration.
    samples: digest of every token with its task and place.
  """

  wall_s: float
  rollout_s: float
  busy_s: float
  tokens: int
  live: float
  turns: float
  ideal_s: float
  critical_s: float
  host_s: float
  resident_mb: list[float]
  samples: str


@functools.cache
def _language() -> episode.Language:
  texts = ['Work.', LETTERS, 'task of a load'] * 9
  return episode.Language(
    tokenizer.train(texts, vocab_size=330, style=STYLE), STYLE
  )


class Run:
  """One load by one plan.

  Args:
    plan: the schedule.
    tool_s: median of a tool.
    seed: of the load.
    speed: of real time with threads; 0 = simulated time, no threads.
  """

  def __init__(self, plan: Plan, tool_s: float, seed: int, speed: float = 0.0):
    self.plan, self.tool_s = plan, tool_s
    self.clock = simulated.Fast(speed) if speed else simulated.Clock()
    self._real = bool(speed)
    self.config = _config(plan, seed)
    self.tasks = [
      types.Task(f'load{seed}', 'train', i, {})
      for i in range(plan.iterations * (plan.tasks + plan.oversample))
    ]
    self.collector = self._collector()
    self._directory = tempfile.TemporaryDirectory()
    self._source = self._make_source()

  def _collector(self):
    words, plan = _language().tokenizer, self.plan
    (end, *_) = ends = templates.stop_ids(words, STYLE)
    self.device = simulated.Device(
      self.clock,
      letters=[words.encode(letter)[0] for letter in LETTERS],
      end=end,
      max_turn_tokens=MOST_TOKENS,
      step_s=STEP_S,
    )
    thread = futures.ThreadPoolExecutor(1) if self._real else None
    engine = simulated.Engine(
      self.device,
      thread or simulated.Inline(),
      num_slots=plan.slots,
      context_length=CONTEXT,
      max_turn_tokens=MOST_TOKENS,
      shape=lane.Shape(ROWS, CHUNK, STEPS, extend_steps=1.0),
      stop_ids=ends,
    )
    pool = functools.partial(simulated.Pool, self.clock)
    return loop.Collector(
      engine,
      functools.partial(
        simulated.World, self.clock, self.tool_s, alike=plan.alike
      ),
      _language(),
      episode.Limits(20, MOST_TOKENS, CONTEXT, 10**6),
      workers=4 * plan.slots if self._real else 0,
      order=plan.order,
      yield_s=plan.yield_s,
      make_pool=None if self._real else pool,
      clock=self.clock,
    )

  def _make_source(self):
    take = functools.partial(selection.task_order, len(self.tasks), 0)
    given = self.config, self.collector
    quiet = display.Display('quiet')
    if not self.plan.lag:
      kind = Waves if self.plan.waves else sources.Now
      return kind(*given, self.tasks, take, _score, None, quiet)
    kind = ahead.Ahead if self._real else simulated.Ahead
    more = self.tasks, take, _score, quiet, lambda: False
    return kind(*given, self._directory.name, *more)

  def play(self) -> Played:
    """Plays all iterations."""
    engine, source = self.collector.engine, self._source
    start, host = self.clock(), time.process_time()
    rollout, place, kept, resident = 0.0, 0, [], []
    for i in range(self.plan.iterations):
      source.publish(lambda i=i: engine.publish(None, i), i, i)
      begun = self.clock()
      groups, _, place = source.gather(i, place)
      rollout += self.clock() - begun
      kept.append([_Brief.of(t) for t in selection.flat(groups)])
      self._update()
      source.trained(i)
      resident.append(_resident_mb())
    wall, host = self.clock() - start, time.process_time() - host
    rollout = wall if self.plan.lag else rollout
    out = self._sum_up(wall, rollout, host, kept, resident)
    source.close()
    self.collector.close()
    self._directory.cleanup()
    return out

  def _update(self):
    if isinstance(self._source, simulated.Ahead):
      self._source.pass_time(UPDATE_S)
    else:
      self.clock.sleep(UPDATE_S)

  def _sum_up(self, wall, rollout, host, kept, resident):
    flat = [brief for some in kept for brief in some]
    tokens = sum(brief.tokens for brief in flat)
    counted = self.collector.engine.counters
    slots = self.plan.slots
    longest = [max(self._alone_s(b) for b in some) for some in kept]
    digests = sorted((b.task, b.sample, b.digest) for b in flat)
    return Played(
      wall_s=wall,
      rollout_s=rollout,
      busy_s=self.collector.busy.take(),
      tokens=tokens,
      live=counted.live_slot_steps * STEP_S / slots / rollout,
      turns=statistics.fmean(b.turns for b in flat),
      ideal_s=tokens * STEP_S / slots,
      critical_s=statistics.fmean(longest),
      host_s=host,
      resident_mb=resident,
      samples=hashlib.sha256(repr(digests).encode()).hexdigest(),
    )

  def _alone_s(self, brief):
    """Seconds of a trajectory that never waits for anything but its tools."""
    tools = simulated.tool_seconds(
      self.tool_s, brief.task, brief.sample, brief.turns
    )
    return brief.tokens * STEP_S + tools


class Waves(sources.Now):
  """Plays as many episodes at a time as there are slots, all to their end."""

  def _collect(self, iteration, tasks, times):
    size = self._config.rollout.group_size
    entries = gathering.entries(tasks, times, size)
    draws = loop.Draws(self._config.seed, 'train', iteration)
    width, flat = self._collector.engine.num_slots, []
    for first in range(0, len(entries), width):
      flat += self._collector.collect(entries[first : first + width], draws)
    return gathering.grouped(entries, flat, size)


@dataclasses.dataclass(frozen=True)
class _Brief:
  """What is kept of a trajectory."""

  task: str
  sample: int
  turns: int
  tokens: int  # sampled
  digest: str  # of tokens and masks

  @classmethod
  def of(cls, trajectory: types.Trajectory) -> '_Brief':
    if not trajectory.stop_reason.trainable:
      raise RuntimeError(f'an episode failed: {trajectory.info}')
    digest = hashlib.sha256()
    for c in trajectory.contexts:
      for column in (c.tokens, c.sampled_mask, c.logprobs):
        digest.update(np.array(column).tobytes())
    return cls(
      trajectory.task.name,
      trajectory.sample,
      len(trajectory.turns),
      sum(sum(c.sampled_mask) for c in trajectory.contexts),
      digest.hexdigest(),
    )


def _score(groups):
  """Rewards each turn as the world does."""

  def scored(t):
    total = tuple(turn.reward for turn in t.turns)
    return dataclasses.replace(t, rewards={'total': total})

  return [
    types.Group(group.task, tuple(map(scored, group.trajectories)))
    for group in groups
  ]


def _config(plan: Plan, seed: int):
  c = config_lib.default()
  c.seed = seed
  c.rollout.tasks, c.rollout.group_size = plan.tasks, GROUP
  c.rollout.max_staleness = plan.lag
  c.rollout.oversample = plan.oversample
  c.train.iterations = plan.iterations
  return c


def _resident_mb() -> float:
  pages = int(pathlib.Path('/proc/self/statm').read_text().split()[1])
  return pages * os.sysconf('SC_PAGE_SIZE') / 1e6


def play(
  plan: Plan, tool_s: float = TOOL, seed: int = 0, speed: float = 0.0
) -> Played:
  """Plays a load, see `Run`."""
  return Run(plan, tool_s, seed, speed).play()


def lines() -> Iterator[dict[str, float | str]]:
  """Gives what `tools/bench.py latency` prints, a line after the other."""
  yield {'name': 'load', **_spread(PLANS, TOOL, SEEDS)}
  for tool_s in TOOLS:
    yield {'name': f'tool_{tool_s:g}', **_spread(PLANS, tool_s, FEWER)}
  alike = {k: dataclasses.replace(p, alike=ALIKE) for k, p in PLANS.items()}
  yield {'name': 'alike', **_spread(alike, TOOL, FEWER)}
  yield {'name': 'oversample', **oversampled()}
  yield {'name': 'linear', **linear()}
  yield {'name': 'memory', **memory()}
  yield {'name': 'threads', **threads()}


def _spread(
  plans: dict[str, Plan], tool_s: float, seeds: int
) -> dict[str, float]:
  """Means over seeds of `compare`; of ratios the least and the largest too."""
  rows = [
    compare({name: play(plan, tool_s, seed) for name, plan in plans.items()})
    for seed in range(seeds)
  ]
  out = {}
  for key in rows[0]:
    column = [row[key] for row in rows]
    out[key] = statistics.fmean(column)
    if 'ratio' in key:
      out[f'{key}_min'], out[f'{key}_max'] = min(column), max(column)
  return out


def compare(played: dict[str, Played]) -> dict[str, float]:
  """Says of the schedules of one load what each takes, and what could be.

  Raises:
    RuntimeError: their samples are not the same.
  """
  if len({p.samples for p in played.values()}) > 1:
    raise RuntimeError('two schedules have other samples')
  out = {}
  for name, p in played.items():
    out[f'{name}_s'] = p.wall_s / ITERATIONS
    out[f'{name}_busy'] = p.busy_s / p.rollout_s
    out[f'{name}_live'] = p.live
  waves, sync, longest = (played[k] for k in ('waves', 'sync', 'longest'))
  ideal, ahead_s = sync.ideal_s / ITERATIONS, played['ahead'].wall_s
  alone = max(ideal, sync.critical_s)
  return out | {
    'async_ratio': sync.wall_s / ahead_s,
    'divided_ratio': sync.wall_s / played['divided'].wall_s,
    'async_waves_ratio': waves.wall_s / ahead_s,
    'async_bound': sync.wall_s / ITERATIONS / max(ideal, UPDATE_S),
    'rollout_ratio': waves.rollout_s / longest.rollout_s,
    'refill_ratio': waves.rollout_s / sync.rollout_s,
    'order_ratio': sync.rollout_s / longest.rollout_s,
    'rollout_bound': waves.rollout_s / ITERATIONS / alone,
    'ahead_rollout_ratio': waves.rollout_s / ahead_s,
    'ideal_s': ideal,
    'critical_s': sync.critical_s,
  }


def oversampled() -> dict[str, float]:
  """Says how far `rollout.oversample` prefers short episodes."""
  plan = PLANS['ahead']
  more = dataclasses.replace(plan, oversample=OVERSAMPLE)
  ratios, turns, all_turns = [], [], []
  for seed in range(FEWER):
    run = Run(more, TOOL, seed)
    kept = run.play()
    every = [
      simulated.num_turns(task.name, sample)
      for task in run.tasks
      for sample in range(GROUP)
    ]
    turns.append(kept.turns)
    all_turns.append(statistics.fmean(every))
    ratios.append(play(plan, TOOL, seed).wall_s / kept.wall_s)
  kept, every = statistics.fmean(turns), statistics.fmean(all_turns)
  return {
    'speed_ratio': statistics.fmean(ratios),
    'turns_kept': kept,
    'turns_all': every,
    'bias': kept / every - 1,
  }


def linear() -> dict[str, float]:
  """Says what a token costs by the number of trajectories, four a slot."""
  out = {}
  for size in SIZES:
    plan = dataclasses.replace(
      PLANS['ahead'], tasks=size // GROUP, slots=size // 4
    )
    runs = [play(plan, TOOL, seed) for seed in range(FEWER)]
    tokens = sum(p.tokens for p in runs)
    wall = sum(p.wall_s for p in runs)
    out[f'slot_tok_s_{size}'] = tokens / wall / plan.slots
    out[f'host_us_{size}'] = 1e6 * sum(p.host_s for p in runs) / tokens
  speeds = [out[f'slot_tok_s_{size}'] for size in SIZES]
  return out | {'slot_spread': max(speeds) / min(speeds) - 1}


def memory() -> dict[str, float]:
  """Says how the process grows with the turns that it has seen."""
  plan = dataclasses.replace(PLANS['ahead'], tasks=8, slots=16, iterations=LONG)
  played = play(plan)
  early, late = played.resident_mb[LONG // 4], played.resident_mb[-1]
  turns = played.turns * LONG * plan.tasks * GROUP
  return {'early_mb': early, 'late_mb': late, 'turns': turns}


def threads() -> dict[str, float]:
  """Holds simulated time against threads that sleep, `SPEED` times as fast."""
  plan = dataclasses.replace(PLANS['ahead'], iterations=SHORT)
  simulation, real = play(plan), play(plan, speed=SPEED)
  if simulation.samples != real.samples:
    raise RuntimeError('threads have other samples')
  return {
    'simulated_s': simulation.wall_s,
    'real_s': real.wall_s,
    'ratio': real.wall_s / simulation.wall_s,
  }
