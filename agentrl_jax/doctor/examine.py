"""Which checks does an iteration get, and when?"""

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from agentrl_jax import rng, types
from agentrl_jax.batch import TokenBatch, TurnBatch
from agentrl_jax.doctor import batches, findings, listener, records
from agentrl_jax.doctor.findings import Finding
from agentrl_jax.text import templates

# By dtype: bound of the mean |log-prob difference|. In float32 the worst
# |ratio - 1| has one as well, `config.doctor.ratio`.
_GAPS = {'float32': 2e-5, 'bfloat16': 2e-2}


@dataclasses.dataclass(frozen=True)
class Evidence:
  """What an iteration leaves to look at.

  Attributes:
    iteration: of the run, from 0.
    trajectories: all, scored, groups together.
    turns: what credit was assigned on.
    updates: microbatches of each optimizer update.
    row: the iteration's metrics.
    versions: under which tokens may have been sampled.
    credit: advantages [B, S]; None = they are per token.
    estimator: from turns to advantages, for trying it again; or None.
    heard: what passed the sampler's door; or None.
    whole: whether `updates` hold all rows; other hosts may have some.
  """

  iteration: int
  trajectories: Sequence[types.Trajectory]
  turns: TurnBatch
  updates: Sequence[Sequence[TokenBatch]]
  row: Mapping[str, float]
  versions: Collection[int]
  credit: np.ndarray | None = None
  estimator: Callable[[TurnBatch], Any] | None = None
  heard: listener.Heard | None = None
  whole: bool = True


class Doctor:
  """Examines iterations of a run: the first of the process, then some.

  What costs nothing (numbers that the row holds anyway) is asked every time.

  Args:
    config: of the run.
    language: tokenizer and style of the run.
    dtype: of the policy, 'float32' or 'bfloat16'.
    warn: shows a text to a person.
  """

  def __init__(
    self, config: Any, language: Any, dtype: str, warn: Callable[[str], None]
  ):
    self.findings: list[Finding] = []
    self._config, self._language = config, language
    self._dtype, self._warn = dtype, warn
    self._first = True
    self._last_keys: set[tuple[int, ...]] = set()

  def due(self, iteration: int) -> bool:
    """Whether this iteration is examined as a whole."""
    every = self._config.doctor.every
    return self._first or bool(every and iteration % every == 0)

  def listening(self, collector: Any, iteration: int):
    """Context manager: what the sampler hears, None where nobody asks."""
    if not self.due(iteration):
      return contextlib.nullcontext()
    return listener.listening(collector)

  def examine(self, evidence: Evidence) -> dict[str, float]:
    """Asks what is due.

    Returns:
      `doctor/failed`, the number of checks that failed, and `doctor/checks`,
      of those that could be asked.

    Raises:
      findings.Unsound: `config.doctor.strict` says to stop here.
    """
    bound = self._config.doctor.ratio
    found = handover(evidence.row, self._dtype, bound)
    if self.due(evidence.iteration):
      found += examine(self._config, self._language, evidence, self._dtype)
      found.append(self._fresh_keys(evidence))
    self._first = False
    self.findings = found
    asked = sum(f.status is not findings.Status.NOT_APPLICABLE for f in found)
    row = {
      'doctor/failed': float(len(findings.failures(found))),
      'doctor/checks': float(asked),
    }
    findings.judge(found, self._config.doctor.strict, self._warn)
    return row

  def _fresh_keys(self, evidence):
    finding = records.keys(evidence.heard)
    now = set(evidence.heard.keys) if evidence.heard else set()
    again, self._last_keys = len(now & self._last_keys), now
    if again:
      return findings.failed('keys', f'{again} turns repeat an earlier key')
    if finding.status is findings.Status.OK and not _keys_differ(self._config):
      return findings.failed('keys', 'a key does not depend on all its parts')
    return finding


def handover(
  row: Mapping[str, float], dtype: str, ratio: float
) -> list[Finding]:
  """Checks that need nothing but a metrics row: published, ratio, gap.

  Args:
    row: of an iteration.
    dtype: of the policy.
    ratio: bound of the worst |ratio - 1|, asked in float32 only.
  """
  out = []
  equal = row.get('sampler/published_equal')
  if equal is not None:
    out.append(
      findings.ok('published')
      if equal
      else findings.failed('published', 'the checksums differ')
    )
  worst = row.get('policy/first_ratio_deviation')
  gap = row.get('sampler/logprob_gap')
  if worst is None or gap is None:
    why = 'no update was done, or none of tokens of its own version'
    return out + [findings.skipped(check, why) for check in ('ratio', 'gap')]
  gap_bound = _GAPS.get(dtype, _GAPS['bfloat16'])
  text = f'worst |ratio - 1| {worst:.2g}, mean |log-prob gap| {gap:.2g}'
  exact = dtype == 'float32'
  off, bound = (worst, ratio) if exact else (gap, gap_bound)
  return [
    *out,
    _below('ratio', off, bound, text),
    _below('gap', gap, gap_bound, f'mean {gap:.2g}'),
  ]


def _below(check, value, bound, text) -> Finding:
  if value <= bound:  # NaN is not
    return findings.ok(check, text)
  return findings.failed(check, f'{text}: above {bound:g}')


def examine(
  config: Any, language: Any, evidence: Evidence, dtype: str = 'float32'
) -> list[Finding]:
  """Asks everything that records and arrays can answer."""
  tokenizer, style = language.tokenizer, language.style
  trajectories = evidence.trajectories
  updates = [batches.join(update) for update in evidence.updates]
  rollout = config.rollout
  rewrites = rollout.memory != 'append' or rollout.thinking == 'strip'
  complete = not rewrites or rollout.drift != 'mask'

  def text(ids):
    return templates.completion_text(tokenizer, style, ids)

  return [
    versions(updates, evidence.versions),
    records.spans(trajectories, text, complete=complete),
    records.prefix(trajectories, evidence.heard),
    records.ends(
      trajectories, templates.stop_ids(tokenizer, style), complete=complete
    ),
    records.template(tokenizer, style, rewrites),
    records.samples(trajectories, rollout.group_size, rollout.temperature),
    batches.turns(evidence.turns, trajectories),
    batches.padding(evidence.turns, evidence.estimator),
    batches.mask(updates, trajectories, complete=complete),
    batches.rows(updates, trajectories, evidence.credit),
    *_sums(config, updates, evidence, dtype),
    groups(trajectories, rollout.group_size),
  ]


def _sums(config, updates, evidence, dtype) -> list[Finding]:
  """Checks of what adds up over all rows of an update."""
  if not evidence.whole:
    why = 'other hosts hold rows of the update'
    return [findings.skipped(check, why) for check in ('weights', 'loss')]
  weights = batches.weights(
    updates, config.loss.weighting, config.loss.weighting_constant
  )
  sampled = updates[0]['versions'][updates[0]['mask']] if updates else ()
  allowed = set(evidence.versions)
  older = allowed - {max(allowed, default=-1)}
  if older & set(np.unique(sampled).tolist()):
    why = 'tokens of older versions, whose ratio is not 1'
    return [weights, findings.skipped('loss', why)]
  return [
    weights,
    batches.loss(
      updates[0] if updates else None,
      config.loss.name,
      evidence.row.get('loss/policy_first'),
      1e-3 if dtype == 'float32' else 2 * _GAPS['bfloat16'],
    ),
  ]


def versions(updates: Sequence[Mapping], allowed: Collection[int]) -> Finding:
  """Checks that trained tokens were sampled under the published weights."""
  if not updates:
    return findings.skipped('versions', 'no update was done')
  seen = set()
  for update in updates:
    seen |= set(np.unique(update['versions'][update['mask']]).tolist())
  text = f'sampled under {sorted(seen)}, published {sorted(allowed)}'
  if seen - set(allowed):
    return findings.failed('versions', text)
  return findings.ok('versions', text)


def groups(
  trajectories: Sequence[types.Trajectory], group_size: int
) -> Finding:
  """Forecasts how many groups will differ in outcome, from the pass rate.

  A group of G at pass rate p is dead with p^G + (1 - p)^G; p is smoothed,
  (k + 1) / (n + 2), so that no success in few trials is not taken for never.
  """
  judged = [t for t in trajectories if t.stop_reason.trainable]
  if not judged or group_size < 2:
    return findings.skipped('groups', 'no groups')
  passes = sum(t.outcome > 0 for t in judged)
  rate = (passes + 1) / (len(judged) + 2)
  dead = rate**group_size + (1 - rate) ** group_size
  totals: dict[str, set[float]] = {}
  for t in judged:
    total = round(float(sum(t.rewards.get('total', ()))), 6)
    totals.setdefault(t.task.name, set()).add(total)
  constant = sum(len(values) == 1 for values in totals.values())
  text = (
    f'pass rate {passes}/{len(judged)}: {dead:.0%} of groups of {group_size} '
    f'forecast to be dead; now {constant} of {len(totals)} are constant'
  )
  living = (1 - dead) * len(totals)
  if constant == len(totals) and living < 1:
    return findings.failed('groups', text)
  return findings.ok('groups', text)


def _keys_differ(config) -> bool:
  """Whether a key changes with each of its parts."""
  base = dict(
    seed=config.seed,
    purpose='train',
    iteration=1,
    task='a',
    sample=0,
    attempt=0,
    turn=0,
  )
  changes = [
    {},
    *(
      {name: value + 1}
      for name, value in base.items()
      if name not in ('purpose', 'task')
    ),
    {'purpose': 'eval'},
    {'task': 'b'},
  ]
  keys = {
    tuple(rng.sampling_words(**{**base, **change}).tolist())
    for change in changes
  }
  return len(keys) == len(changes)
