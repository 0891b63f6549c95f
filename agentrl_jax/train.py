"""Reinforcement learning in five verbs: collect, score, collate, estimate,
update; with log, save and evaluate on intervals.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import ml_collections

from agentrl_jax import (
  adapters,
  assembly,
  checkpoint,
  distributed,
  losses,
  metrics,
  rewards,
  runtime,
  tables,
  types,
)
from agentrl_jax.batch import TokenBatch, TurnBatch
from agentrl_jax.doctor import examine
from agentrl_jax.learner import estimate as estimate_lib
from agentrl_jax.learner import objective, optimizer, step, summary
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.rollout import (
  audit,
  breaker,
  counterfactual,
  credit,
  curriculum,
  dependence,
  evaluation,
  hosts,
  loop,
  measures,
  selection,
  sources,
  store,
  watch,
)
from agentrl_jax.rollout import updates as updates_lib
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
    self._panels = evaluation.Panels(
      c,
      parts.collector,
      workdir,
      parts.display,
      functools.partial(assembly.tasks, c),
    )
    self._reward_parts, self._reward_weights = rewards.compose(c.rewards)
    loss = functools.partial(
      tables.resolve(losses.LOSSES, c.loss.name), **c.loss.options.to_dict()
    )
    self._assign = credit.Assigner(c)
    self._states = counterfactual.States()
    model = dataclasses.replace(
      parts.model, value_head=self._assign.needs_values
    )
    chunk = objective.head_chunk(c.train.head_chunk, model.vocab_size)
    self._learner = step.Learner(
      model,
      objective.policy_objective(loss, c.loss, c.rollout.temperature, chunk),
      optimizer.make(c.train.optimizer, _num_updates(c)),
      parts.mesh,
      c.train.rows,
      c.train.param_dtype,
    )
    self._scorer = estimate_lib.Estimator(
      parts.model, parts.mesh, c.rollout.temperature, chunk, c.train.param_dtype
    )
    needs_reference = c.loss.kl_coef or self._assign.needs_reference
    params = adapters.attach(c, model, params, parts.mesh)
    # Its adapters are as they were at the start; the base is not held twice.
    self._reference = params if needs_reference else None
    self.state = self._learner.create(params_lib.with_value_head(model, params))
    self._base = adapters.keep(c, workdir, params)
    if self._base:
      parts.display.note(adapters.sizes(self.state, params))
    self._next_task = 0  # its place in the order of the run
    self._order = curriculum.make(c, self.tasks)
    kind = metrics.Writer if distributed.is_first() else metrics.Mute
    self.writer = kind(workdir, tensorboard=c.log.tensorboard, start=start)
    self._checkpoints = checkpoint.Checkpoints(
      f'{workdir}/checkpoints',
      keep=c.checkpoint.keep,
      best_metric='eval/success',
    )
    self.doctor = examine.Doctor(
      c, parts.language, parts.model.dtype, parts.display.warn
    )
    self._source = sources.make(
      parts, workdir, self.tasks, self._order.take, self.score, self._states
    )
    self._auditor = assembly.auditor(c)
    self._watch = watch.Watch(c.watch, parts.display.warn)
    self._saved = self._logged = -1
    self._told = False

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
        self._log(0, self._judge(0))
        done = 0
      while done < total:
        row = self._iterate(done)
        done += 1
        row |= self._judge(done)
        self._log(done, row)
    except loop.Interrupted:
      if self._saved < done == self._logged:
        self._save(done, {})
      if 0 <= done == self._saved:
        self._source.keep(done, final=True)
      raise
    finally:
      self._source.close()
      self.writer.close()
      self._checkpoints.close()

  def _iterate(self, iteration: int) -> dict[str, float]:
    """Does one collect-to-update cycle and returns its metrics."""
    clock, busy = runtime.Clock(), self.parts.collector.busy
    busy.take()
    version = int(self.state.updates)
    equal = self._source.publish(self._publish, version, iteration)
    row = {'sampler/published_equal': float(equal)}
    published = self.parts.collector.engine.reset_counters()
    clock.lap('publish')
    self._tell(published.published_bytes, clock.laps['publish'])
    with self._source.listening(self.doctor, iteration) as heard:
      groups, played, place = self.collect(iteration)
    extra = distributed.together(
      functools.partial(self._explore, groups, iteration), loop.Interrupted
    )
    row |= counterfactual.measures(groups, extra)
    clock.lap('collect')
    turns, lines = self.collate(groups, iteration)
    clock.lap('collate')
    lines, earned = self.estimate(groups, turns, lines, extra)
    updates, extras = updates_lib.deal(
      groups, earned, lines, self.config, iteration
    )
    row |= self._dependence(iteration, played)
    clock.lap('estimate')
    with busy:
      row |= self.update(updates, extras)
    self._source.trained(iteration)
    self._next_task = place  # not before: an interrupt saves it
    row |= self._order.learn(played)
    clock.lap('update')
    row['host/device_busy_share'] = busy.take() / sum(clock.laps.values())
    row |= self._measure(played)
    row |= earned.measures | self._source.measures()
    row['sampler/publish_mb'] = published.published_bytes / 1e6
    counted = self.parts.collector.engine.reset_counters()
    row |= measures.sampler(counted, self._source.seconds(clock.laps))
    row = hosts.combine(row | clock.metrics())
    row['train/tokens_per_s'] = (
      row['rollout/sampled_tokens'] / row['time/iteration_s']
    )
    self._write_trajectories(iteration + 1, groups, earned, turns)
    row |= self._watch.see(iteration + 1, row)
    evidence = examine.Evidence(
      iteration=iteration,
      trajectories=selection.flat(groups),
      turns=turns,
      updates=updates,
      row=row,
      versions=self._source.versions(iteration),
      credit=None if earned.per_token else earned.advantages,
      estimator=self._assign.by_turn if self._assign.is_alone else None,
      heard=heard,
      whole=distributed.count() == 1,
    )
    return row | distributed.together(
      functools.partial(self._conclude, played, evidence)
    )

  def _tell(self, size: int, seconds: float) -> None:
    """Says what a hand-over costs, once a process: later ones cost the same."""
    if not self._told:
      self._told = True
      self.parts.display.note(
        f'weights handed to the sampler: {size / 1e6:.1f} MB in {seconds:.3f} '
        's, from device to device'
      )

  def _conclude(self, played, evidence) -> dict[str, float]:
    """Says whether this host can go on from an iteration."""
    self._check_failures(selection.flat(played))
    return self.doctor.examine(evidence)

  def _measure(self, groups: Sequence[types.Group]) -> dict[str, float]:
    """What an iteration's episodes look like."""
    trajectories = selection.flat(groups)
    row = measures.summarize(trajectories)
    row |= measures.reward_means(trajectories, self._reward_weights)
    row |= rewards.measures(self._reward_parts)
    row |= watch.measure(groups)
    row['rollout/tasks'] = float(len(groups))
    row['rollout/varying_groups'] = float(sum(selection.varying(groups)))
    if self._auditor is not None:
      row |= audit.measure(
        trajectories,
        self.config.audit_reward,
        self._auditor,
        self.config.watch.audit_trajectories,
      )
    return row

  def collect(
    self, iteration: int
  ) -> tuple[list[types.Group], list[types.Group], int]:
    """Gets `rollout.tasks` groups over all hosts, played and scored.

    Returns:
      (groups to learn from, all that were played), of each this host's, and
      the place of the task after them.
    """
    return self._source.gather(iteration, self._next_task)

  def _explore(
    self, groups: Sequence[types.Group], iteration: int
  ) -> dict[str, Any]:
    """Plays what the estimator compares with, by the same weights."""
    extra = counterfactual.explore(
      groups,
      self._states,
      self.parts.collector,
      self.score,
      self.config,
      iteration,
    )
    self._states.clear()
    return extra

  def score(self, groups: Sequence[types.Group]) -> list[types.Group]:
    """Fills in reward parts and their weighted total, turn by turn."""
    return rewards.score_groups(
      groups, self._reward_parts, self._reward_weights
    )

  def collate(
    self, groups: Sequence[types.Group], iteration: int
  ) -> tuple[TurnBatch, credit.Lines]:
    """Lays out turns with their groups and states, and sampled tokens."""
    c, flat = self.config.rollout, selection.flat(groups)
    lines = credit.lines(flat, c.max_turns * c.max_turn_tokens)
    return credit.turns(groups, self.config, iteration), lines

  def estimate(
    self,
    groups: Sequence[types.Group],
    turns: TurnBatch,
    lines: credit.Lines,
    played: Mapping[str, Any] | None = None,
  ) -> tuple[credit.Lines, credit.Credit]:
    """Says what each turn or token earned, by what the networks say of them."""
    assign, c = self._assign, self.config.train
    with self.parts.collector.busy:
      lines = updates_lib.consult(
        groups,
        lines,
        self._questions(),
        self.config,
        about_all=assign.needs_values or assign.needs_reference,
      )
    trained = selection.usable(groups, c.constant_groups, c.overlong)
    return lines, hosts.credit_of_all(
      assign, turns, lines, trained=trained, played=played
    )

  def _questions(self) -> dict[str, updates_lib.Question]:
    """What the config needs to know of the sampled tokens."""
    scorer, params, out = self._scorer, self._params, {}
    if self._reference is not None:
      out['reference_logprobs'] = functools.partial(
        scorer.reference_logprobs, self._reference
      )
    if self.config.loss.proximal == 'recomputed':
      out['proximal_logprobs'] = functools.partial(scorer.logprobs, params)
    if self._assign.needs_values:
      out['values'] = functools.partial(scorer.values, params)
    return out

  def update(
    self,
    updates: Sequence[Sequence[TokenBatch]],
    extras: Sequence[Sequence[dict[str, Any]]],
  ) -> dict[str, float]:
    """Does the optimizer updates of an iteration; returns their metrics."""
    measured, infos = [], []
    for batches, more in zip(updates, extras, strict=True):
      more = self._with_proximal(batches, more)
      self.state, m, info = self._learner.update(self.state, batches, more)
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

  def _with_proximal(self, batches, extras):
    """Adds what the ratio is taken to, as far as it depends on the update."""
    c = self.config
    if c.loss.proximal == 'behavior' and not c.rollout.max_staleness:
      return extras
    extras = [{**extra, 'version': self.state.updates} for extra in extras]
    if c.loss.proximal == 'latest':
      scored = self._scorer.logprobs(self._params, batches)
      for extra, logprobs in zip(extras, scored, strict=True):
        extra['proximal_logprobs'] = logprobs
    return extras

  def _dependence(self, iteration, groups) -> dict[str, float]:
    """Measures on the interval how much the policy listens to the task."""
    c = self.config
    if not c.watch.every or iteration % c.watch.every:
      return {}
    return dependence.measure(
      selection.flat(groups),
      functools.partial(self._scorer.logprobs, self._params),
      num_tasks=c.watch.tasks,
      row_length=c.train.row_length,
      num_rows=distributed.share(c.train.rows),
    )

  @property
  def _params(self) -> Any:
    """The whole policy: what is trained and what is frozen."""
    return self._learner.policy(self.state)

  def _judge(self, done: int) -> dict[str, float]:
    if not self._panels.due(done):
      return {}  # to pause takes back all contexts
    with self._source.paused():
      return self._panels.judge(done, self._publish)

  def _publish(self) -> bool:
    version = int(self.state.updates)
    params = params_lib.policy(self._params)
    return self.parts.collector.engine.publish(params, version)

  def _log(self, done: int, row: dict[str, float]) -> None:
    """Writes the row, then the checkpoint: a row outlives its checkpoint."""
    row |= hosts.combine(metrics.host(), weight=1.0)
    written = self.writer.write(done, row)
    self.parts.display.row(done, written, self.config.train.iterations)
    self._logged = done
    last = done == self.config.train.iterations
    if (
      last or 'eval/success' in row or done % self.config.checkpoint.every == 0
    ):
      self._save(done, row)

  def _save(self, done: int, row: dict[str, float]) -> None:
    meta = {
      'step': done,
      'updates': int(self.state.updates),
      'next_task': self._next_task,
      'curriculum': self._order.state(),
      'base': self._base,
      'base_dtype': adapters.base_dtype(self.config, self.parts.model).name,
    }
    if 'eval/success' in row:
      meta['eval/success'] = row['eval/success']
    self._source.keep(done)
    self._checkpoints.save(done, self.state, meta)
    self._saved = done

  def _resume(self) -> int:
    """Restores the last checkpoint; returns its iteration, -1 for none."""
    latest = self._checkpoints.latest
    if latest is None:
      self.writer.truncate(-1)
      return -1
    self.state, meta = self._checkpoints.restore(latest, self.state)
    adapters.check(self.workdir, meta.get('base', ''), self._base)
    self._next_task = int(meta['next_task'])
    self._order.restore(meta['curriculum'])
    self._source.restore(latest)
    self._saved = self._logged = latest
    self.writer.truncate(latest)
    self._watch.replay(metrics.read(self.workdir))
    self.parts.display.note(f'resumed after iteration {meta["step"]}')
    return int(meta['step'])

  def _write_trajectories(self, done, groups, earned, turns):
    limit = self.config.log.trajectories
    store.write(
      self.workdir,
      done,
      selection.flat(groups),
      advantages=earned.by_turn,
      anchors=turns.anchor_ids,
      kind=hosts.kind('train'),
      limit=None if limit < 0 else limit,
    )

  def _check_failures(self, trajectories):
    failed = [t for t in trajectories if not t.stop_reason.trainable]
    breaker.make(self.config.rollout).check(failed, len(trajectories))


def first_look(parts: Parts, params: Any) -> None:
  """Shows one episode of the untrained policy, so that a person sees life."""
  parts.display.stage('compiling the sampler')
  params = adapters.attach(parts.config, parts.model, params, parts.mesh)
  parts.collector.engine.publish(params, 0)
  entry = loop.Entry(assembly.tasks(parts.config, 'train')[0], 0)
  draws = loop.Draws(parts.config.seed, 'look', 0)
  played = distributed.together(
    lambda: parts.collector.collect([entry], draws), loop.Interrupted
  )
  parts.display.trajectory(played[0], title='before any training')


def _num_updates(c: ml_collections.ConfigDict) -> int:
  return c.train.iterations * c.train.epochs * c.train.minibatches
