"""Reinforcement learning in five verbs: collect, score, collate, estimate,
update; with log, save and evaluate on intervals.
"""

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any

import jax
import ml_collections
import numpy as np

from agentrl_jax import (
  advantages,
  assembly,
  checkpoint,
  losses,
  metrics,
  rewards,
  rng,
  runtime,
  tables,
  types,
)
from agentrl_jax.batch import TokenBatch, TurnBatch
from agentrl_jax.doctor import examine
from agentrl_jax.learner import estimate as estimate_lib
from agentrl_jax.learner import objective, optimizer, step, summary
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.rollout import (
  anchors,
  audit,
  collate,
  dependence,
  evaluation,
  loop,
  measures,
  selection,
  store,
  watch,
)
from agentrl_jax.rollout.episode import Language


class Diverged(FloatingPointError):
  """Too many updates in a row were not finite."""


@dataclasses.dataclass
class Parts:
  """What a run is made of."""

  config: ml_collections.ConfigDict
  language: Language
  model: ModelConfig
  mesh: jax.sharding.Mesh
  collector: loop.Collector
  display: Any
  stop: Any


class Trainer:
  """One RL run: its programs, its data, its directory.

  Args:
    parts: of the run.
    workdir: run directory.
    params: initial weights (not donated); also the KL reference.
    start: `time.monotonic()` at which the process began.
  """

  def __init__(self, parts: Parts, workdir: str, params: Any, start: float):
    c = parts.config
    self.parts, self.config, self.workdir = parts, c, workdir
    self.tasks = assembly.tasks(c, 'train')
    self._validation = _first(assembly.tasks(c, 'validation'), c.eval.tasks)
    self._reward_parts, self._reward_weights = rewards.compose(c.rewards)
    loss = functools.partial(
      tables.resolve(losses.LOSSES, c.loss.name), **c.loss.options.to_dict()
    )
    self._learner = step.Learner(
      parts.model,
      objective.policy_objective(loss, c.loss, c.rollout.temperature),
      optimizer.make(c.train.optimizer, _num_updates(c)),
      parts.mesh,
      c.train.rows,
    )
    self._scorer = estimate_lib.Estimator(
      parts.model, parts.mesh, c.rollout.temperature
    )
    self._credit = _credit_program(c)
    self._reference = params if c.loss.kl_coef else None
    self.state = self._learner.create(params)
    self.writer = metrics.Writer(
      workdir, tensorboard=c.log.tensorboard, start=start
    )
    self._checkpoints = checkpoint.Checkpoints(
      f'{workdir}/checkpoints',
      keep=c.checkpoint.keep,
      best_metric='eval/success',
    )
    self.doctor = examine.Doctor(
      c, parts.language, parts.model.dtype, parts.display.warn
    )
    self._auditor = assembly.auditor(c)
    self._watch = watch.Watch(c.watch, parts.display.warn)
    self._saved = self._logged = -1

  def run(self) -> None:
    """Trains to the end; continues where the directory's run stopped.

    Raises:
      loop.Interrupted: the process was asked to end; a checkpoint was saved.
      Diverged, breaker.TooManyFailures: see there.
    """
    total = self.config.train.iterations
    done = self._resume()
    try:
      if done < 0:
        self._log(0, self._evaluate(0))
        done = 0
      while done < total:
        row = self._iterate(done)
        done += 1
        row |= self._evaluate(done)
        self._log(done, row)
    except loop.Interrupted:
      if self._saved < done == self._logged:
        self._save(done, {})
      raise
    finally:
      self.writer.close()
      self._checkpoints.close()

  def _iterate(self, iteration: int) -> dict[str, float]:
    """Does one collect-to-update cycle and returns its metrics."""
    clock = runtime.Clock()
    row = {'sampler/published_equal': float(self._publish())}
    self.parts.collector.engine.reset_counters()
    clock.lap('publish')
    version = int(self.state.updates)
    with self.doctor.listening(self.parts.collector, iteration) as heard:
      groups = self.collect(iteration)
    clock.lap('collect')
    groups = self.score(groups)
    turns = self.turns(groups, iteration)
    credit, measured = jax.device_get(self._credit(turns))
    epochs = self.collate(groups, credit, iteration)
    clock.lap('collate')
    references = self.estimate(epochs)
    row |= self._dependence(iteration, groups)
    clock.lap('estimate')
    row |= self.update(epochs, references)
    clock.lap('update')
    trajectories = _flat(groups)
    row |= measures.summarize(trajectories)
    row |= {f'advantage/{k}': float(v) for k, v in measured.items()}
    row |= measures.reward_means(trajectories, self._reward_weights)
    row |= rewards.measures(self._reward_parts)
    row |= watch.measure(groups)
    if self._auditor is not None:
      row |= audit.measure(
        trajectories,
        self.config.audit_reward,
        self._auditor,
        self.config.watch.audit_trajectories,
      )
    row |= _sampler_metrics(self.parts.collector.engine, clock)
    row |= clock.metrics()
    row['train/tokens_per_s'] = (
      row['rollout/sampled_tokens'] / row['time/iteration_s']
    )
    self._write_trajectories(iteration + 1, trajectories, credit, turns)
    self._check_failures(trajectories)
    row |= self._watch.see(iteration + 1, row)
    row |= self.doctor.examine(
      examine.Evidence(
        iteration=iteration,
        trajectories=trajectories,
        turns=turns,
        updates=epochs,
        row=row,
        version=version,
        credit=credit,
        estimator=self._credit,
        heard=heard,
      )
    )
    return row

  def collect(self, iteration: int) -> list[types.Group]:
    """Plays `group_size` episodes of each task of the iteration."""
    c = self.config
    tasks = self._tasks_of(iteration)
    entries = [
      loop.Entry(task, sample)
      for task in tasks
      for sample in range(c.rollout.group_size)
    ]
    draws = loop.Draws(c.seed, 'train', iteration, c.rollout.temperature)
    played, total = [0], len(entries)

    def count(_):
      played[0] += 1
      self.parts.display.progress(
        f'iteration {iteration + 1}', played[0], total
      )

    flat = self.parts.collector.collect(entries, draws, count)
    size = c.rollout.group_size
    return [
      types.Group(task, tuple(flat[g * size : (g + 1) * size]))
      for g, task in enumerate(tasks)
    ]

  def score(self, groups: Sequence[types.Group]) -> list[types.Group]:
    """Fills in reward parts and their weighted total, turn by turn."""
    return rewards.score_groups(
      groups, self._reward_parts, self._reward_weights
    )

  def turns(self, groups: Sequence[types.Group], iteration: int) -> TurnBatch:
    """Lays the turns out for credit assignment."""
    c = self.config
    keys = [
      [[turn.state_key for turn in t.turns] for t in g.trajectories]
      for g in groups
    ]
    size = c.rollout.max_turns
    if c.advantage.anchors == 'turn_index':
      ids = anchors.turn_index(keys, num_turns=size)
    elif c.advantage.anchors == 'shuffled':
      dealer = rng.generator(c.seed, 'anchors', iteration)
      ids = anchors.shuffled(keys, dealer, num_turns=size)
    elif c.advantage.anchors == 'similarity':
      ids = anchors.similarity(keys, c.advantage.similarity, num_turns=size)
    else:
      ids = anchors.exact(keys, num_turns=size)
    return collate.turn_batch(
      groups,
      ids,
      anchors.history(ids, c.advantage.history_levels),
      num_turns=size,
      invalid_penalty=c.advantage.invalid_penalty,
    )

  def collate(
    self, groups: Sequence[types.Group], credit: np.ndarray, iteration: int
  ) -> list[list[TokenBatch]]:
    """Returns the microbatches of each optimizer update of the iteration."""
    c = self.config
    trajectories = _flat(groups)
    updates = []
    for epoch in range(c.train.epochs):
      order = rng.generator(c.seed, 'minibatches', iteration, epoch)
      for indices in selection.minibatches(
        groups, c.train.constant_groups, c.train.minibatches, order
      ):
        batch = collate.token_rows(
          trajectories,
          credit,
          indices,
          row_length=c.train.row_length,
          num_rows=c.train.rows,
        )
        batch = collate.with_weights(
          batch,
          weighting=c.loss.weighting,
          num_trajectories=len(trajectories),
          constant=c.loss.weighting_constant or None,
        )
        updates.append(collate.microbatches(batch, c.train.rows))
    return updates

  def estimate(self, updates: Sequence[Sequence[TokenBatch]]) -> list[list]:
    """Scores the tokens under the reference policy, where a KL asks for it."""
    if self._reference is None:
      return [[] for _ in updates]
    return [
      [(x,) for x in self._scorer.logprobs(self._reference, batches)]
      for batches in updates
    ]

  def update(
    self,
    updates: Sequence[Sequence[TokenBatch]],
    references: Sequence[Sequence],
  ) -> dict[str, float]:
    """Does the optimizer updates of an iteration; returns their metrics."""
    measured, infos = [], []
    for batches, extras in zip(updates, references, strict=True):
      self.state, m, info = self._learner.update(self.state, batches, extras)
      measured.append(m)
      infos.append(info)
    measured, infos, state = jax.device_get(
      (
        measured,
        infos,
        (self.state.updates, self.state.skipped, self.state.skipped_in_row),
      )
    )
    row = summary.update_metrics(measured, infos)
    row |= {
      'updates': int(state[0]),
      'train/skipped_updates': float(state[1]),
      'train/rows': float(sum(b.tokens.shape[0] for u in updates for b in u)),
    }
    if state[2] >= self.config.train.max_nonfinite:
      raise Diverged(
        f'{int(state[2])} updates in a row were not finite '
        '(config.train.max_nonfinite); the first bad metric is '
        f'{summary.first_bad(measured, infos)}. The last checkpoint is good: '
        'lower config.train.optimizer.learning_rate, or look at the rewards'
      )
    return row

  def _dependence(self, iteration, groups) -> dict[str, float]:
    """Measures on the interval how much the policy listens to the task."""
    c = self.config
    if not c.watch.every or iteration % c.watch.every:
      return {}
    return dependence.measure(
      _flat(groups),
      functools.partial(self._scorer.logprobs, self.state.params),
      num_tasks=c.watch.tasks,
      row_length=c.train.row_length,
      num_rows=c.train.rows,
    )

  def _publish(self) -> bool:
    params, version = self.state.params, int(self.state.updates)
    return self.parts.collector.engine.publish(params, version)

  def _evaluate(self, done: int) -> dict[str, float]:
    """Validates on the interval; tests once at the end."""
    c, total = self.config, self.config.train.iterations
    row = {}
    every = c.eval.every
    due = done in (0, total) or (every and done % every == 0)
    seconds = time.monotonic()
    if due and self._validation:
      row |= self._judge('eval', self._validation, done)
    if done == total and c.eval.test_tasks:
      tasks = _first(assembly.tasks(c, 'test'), c.eval.test_tasks)
      row |= self._judge('test', tasks, done)
    if row:
      self.parts.collector.engine.reset_counters()
      row['time/evaluate_s'] = time.monotonic() - seconds
    return row

  def _judge(self, name, tasks, done):
    self.parts.display.stage(f'{name}: {len(tasks)} held-out tasks')
    self._publish()
    row, played = evaluation.evaluate(
      self.parts.collector, tasks, seed=self.config.seed, name=name
    )
    limit = self.config.log.trajectories
    store.write(
      self.workdir,
      done,
      played,
      kind=name,
      limit=None if limit < 0 else limit,
    )
    return row

  def _log(self, done: int, row: dict[str, float]) -> None:
    """Writes the row, then the checkpoint: a row outlives its checkpoint."""
    row |= metrics.host()
    written = self.writer.write(done, row)
    self.parts.display.row(done, written, self.config.train.iterations)
    self._logged = done
    last = done == self.config.train.iterations
    if (
      last or 'eval/success' in row or done % self.config.checkpoint.every == 0
    ):
      self._save(done, row)

  def _save(self, done: int, row: dict[str, float]) -> None:
    meta = {'step': done, 'updates': int(self.state.updates)}
    if 'eval/success' in row:
      meta['eval/success'] = row['eval/success']
    self._checkpoints.save(done, self.state, meta)
    self._saved = done

  def _resume(self) -> int:
    """Restores the last checkpoint; returns its iteration, -1 for none."""
    latest = self._checkpoints.latest
    if latest is None:
      self.writer.truncate(-1)
      return -1
    self.state, meta = self._checkpoints.restore(latest, self.state)
    self._saved = self._logged = latest
    self.writer.truncate(latest)
    self._watch.replay(metrics.read(self.workdir))
    self.parts.display.note(f'resumed after iteration {meta["step"]}')
    return int(meta['step'])

  def _tasks_of(self, iteration: int) -> list[types.Task]:
    """Tasks of an iteration: epochs of seeded permutations, cut in order."""
    n, size = self.config.rollout.tasks, len(self.tasks)
    first = iteration * n
    orders: dict[int, np.ndarray] = {}
    out = []
    for place in range(first, first + n):
      epoch, at = divmod(place, size)
      if epoch not in orders:
        shuffle = rng.generator(self.config.seed, 'tasks', epoch)
        orders[epoch] = shuffle.permutation(size)
      out.append(self.tasks[int(orders[epoch][at])])
    return out

  def _write_trajectories(self, done, trajectories, credit, turns):
    limit = self.config.log.trajectories
    store.write(
      self.workdir,
      done,
      trajectories,
      advantages=credit,
      anchors=turns.anchor_ids,
      limit=None if limit < 0 else limit,
    )

  def _check_failures(self, trajectories):
    failed = [t for t in trajectories if not t.stop_reason.trainable]
    assembly.breaker(self.config).check(failed, len(trajectories))


def first_look(parts: Parts, params: Any) -> None:
  """Shows one episode of the untrained policy, so that a person sees life."""
  parts.display.stage('compiling the sampler')
  parts.collector.engine.publish(params, 0)
  entry = loop.Entry(assembly.tasks(parts.config, 'train')[0], 0)
  draws = loop.Draws(parts.config.seed, 'look', 0)
  played = parts.collector.collect([entry], draws)
  parts.display.trajectory(played[0], title='before any training')


def _credit_program(c: ml_collections.ConfigDict):
  """Jits the estimator with its measures; one shape for the run."""
  estimator = functools.partial(
    tables.resolve(advantages.ESTIMATORS, c.advantage.estimator),
    **c.advantage.options.to_dict(),
  )

  def credit(turns):
    values = estimator(turns)
    return values, advantages.diagnostics(turns, values)

  return jax.jit(credit)


def _num_updates(c: ml_collections.ConfigDict) -> int:
  return c.train.iterations * c.train.epochs * c.train.minibatches


def _first(tasks, count: int) -> list[types.Task]:
  return [tasks[i] for i in range(min(count, len(tasks)))]


def _flat(groups: Sequence[types.Group]) -> list[types.Trajectory]:
  return [t for group in groups for t in group.trajectories]


def _sampler_metrics(engine, clock) -> dict[str, float]:
  n = engine.reset_counters()
  return {
    'host/sampler_live_share': n.live_slot_steps / max(n.slot_steps, 1),
    'host/sampler_decode_steps': float(n.decode_steps),
    'host/sampler_extend_calls': float(n.extend_calls),
    'sampler/extend_tokens': float(n.extend_tokens),
    'rollout/tokens_per_s': n.sampled_tokens / clock.laps['collect'],
  }
