"""What can a check say, and what is a person to do about it?

Every check has a line in `CHECKS`: what it asks, the likely causes of a `no`
and the remedy. Checks return findings; nobody here prints or raises but
`judge`.
"""

import dataclasses
import enum
from collections.abc import Callable, Iterable, Sequence


class Status(enum.StrEnum):
  """Outcome of a check."""

  OK = 'ok'
  FAILED = 'FAILED'
  NOT_APPLICABLE = 'not applicable'


@dataclasses.dataclass(frozen=True)
class Check:
  """A question with its causes and remedy.

  Attributes:
    asks: what holds where the check is ok.
    causes: what makes it fail, likeliest first.
    remedy: where to look, what to change.
    wrong: whether a failure means that what is learnt is wrong, so that a run
      must not go on.
  """

  asks: str
  causes: str
  remedy: str
  wrong: bool = False


@dataclasses.dataclass(frozen=True)
class Finding:
  """What one check found. `detail` has the numbers."""

  check: str
  status: Status
  detail: str = ''


class Unsound(RuntimeError):
  """A guard failed that makes what is learnt wrong."""


CHECKS = {
  'config': Check(
    'every key of the config is known and used',
    'a misspelt field; a field of another version',
    'correct the name: tools/show_config.py lists the fields',
  ),
  'published': Check(
    'the sampler holds the bits that the learner published',
    'a cast, a merge or a resharding on the way; a copy that was donated',
    'compare Engine.publish with the parameters it was given',
    wrong=True,
  ),
  'ratio': Check(
    'before any apply the ratio is 1 (float32: worst token 1e-4; bfloat16: '
    'mean 2e-2)',
    'stale weights in the sampler; temperature or top-p on one side only; '
    'log-probs of other tokens; another attention mask; TF32',
    'recompute a turn with Estimator.logprobs under the published weights; '
    'compare sampler.logits.draw with objective.logprobs_and_entropy',
    wrong=True,
  ),
  'gap': Check(
    'sampler and learner agree on log-probs on average (float32 2e-5, '
    'bfloat16 2e-2)',
    'other numerics on the two sides: dtype, cache precision, kernels',
    'set config.model.dtype to float32 and JAX_DEFAULT_MATMUL_PRECISION to '
    'highest once: if the gap goes, it is rounding',
  ),
  'versions': Check(
    'trained tokens were sampled under the published version',
    'tokens of an earlier iteration; a publish that was skipped',
    'call publish before collect; drop what older weights sampled',
    wrong=True,
  ),
  'spans': Check(
    'sampled tokens are those of the turns, with a log-prob each',
    'a mask rebuilt by searching; an observation appended as sampled; a shift '
    'by one',
    'masks are born with the tokens: look at Episode.complete and answer',
    wrong=True,
  ),
  'prefix': Check(
    'each prompt extends what was sampled, token for token',
    'history rendered again from text; a template that strips reasoning',
    'append with templates.extend only, or start a new context where history '
    'changes',
    wrong=True,
  ),
  'ends': Check(
    'each turn is closed by exactly one end token',
    'the end token sampled and appended again; an end token lost',
    'look at templates.extend: it closes only a turn that did not end itself',
    wrong=True,
  ),
  'template': Check(
    'a rendered conversation begins with its shorter self, reasoning included',
    'a chat template that rewrites earlier messages (strips <think>...)',
    'use a style that keeps reasoning, or train each turn in the context in '
    'which it was sampled',
  ),
  'keys': Check(
    'every turn has a sampling key of its own',
    'one seed for a whole group; a key without the iteration or the turn',
    'sampling keys come from rng.sampling_words(seed, purpose, iteration, '
    'task, sample, attempt, turn)',
    wrong=True,
  ),
  'samples': Check(
    'the members of a group differ',
    'equal seeds; temperature near 0; a policy that has collapsed',
    'look at the keys check and at policy/entropy; raise '
    'config.rollout.temperature',
  ),
  'mask': Check(
    'trained are the sampled tokens of every turn, and no other token',
    'a shifted mask; observation tokens trained; a turn without any token',
    'compare TokenBatch.mask with Context.sampled_mask (rollout/collate.py)',
    wrong=True,
  ),
  'rows': Check(
    'log-probs, versions and advantages lie at the tokens they belong to',
    'a shift in packing; the advantage of another turn or trajectory',
    'look at collate.token_rows: everything is copied by the same slice',
    wrong=True,
  ),
  'turns': Check(
    'group statistics see real turns of trainable trajectories, and no other',
    'padding, failures or duplicated rows inside the turn mask',
    'look at TurnBatch.turn_mask (collate.turn_batch)',
    wrong=True,
  ),
  'padding': Check(
    'advantages do not depend on what stands in masked turns',
    'an estimator that averages over padding',
    'mask inside the estimator: reductions.segment_sum takes the mask',
    wrong=True,
  ),
  'weights': Check(
    'tokens weigh what config.loss.weighting says, over the whole update',
    'weights per row or per microbatch; a trajectory counted once a context',
    'give weights once over all rows of an update (collate.with_weights)',
    wrong=True,
  ),
  'loss': Check(
    'the first loss is -sum(weight * advantage), as the ratio is 1',
    'a mean over a microbatch; a divisor that depends on padding',
    'a loss is a weighted sum: look at losses.aggregate',
    wrong=True,
  ),
  'groups': Check(
    'enough groups will differ to teach anything',
    'tasks far too hard or too easy; groups too small',
    'fine-tune longer, choose easier tasks or raise config.rollout.group_size',
  ),
}


def ok(check: str, detail: str = '') -> Finding:
  """Returns a finding of a check that holds."""
  return Finding(check, Status.OK, detail)


def failed(check: str, detail: str) -> Finding:
  """Returns a finding of a check that does not hold."""
  return Finding(check, Status.FAILED, detail)


def skipped(check: str, why: str) -> Finding:
  """Returns a finding of a check that cannot be asked."""
  return Finding(check, Status.NOT_APPLICABLE, why)


def of(check: str, faults: Sequence[str], detail: str = '') -> Finding:
  """Returns ok without faults; else the first of them and their number."""
  if not faults:
    return ok(check, detail)
  more = f' (and {len(faults) - 1} more)' if len(faults) > 1 else ''
  return failed(check, faults[0] + more)


def failures(findings: Iterable[Finding]) -> list[Finding]:
  """Returns those that failed."""
  return [f for f in findings if f.status is Status.FAILED]


def explain(finding: Finding) -> str:
  """Returns the finding, its causes and its remedy, a line each."""
  check = CHECKS[finding.check]
  return (
    f'doctor: {finding.check}: {finding.detail}\n'
    f'  likely: {check.causes}\n'
    f'  remedy: {check.remedy}'
  )


def table(findings: Sequence[Finding]) -> list[str]:
  """Returns a line a check, and two more below one that failed."""
  lines = []
  for finding in findings:
    head = f'{finding.check:<10} {finding.status:<14} '
    lines.append(head + (finding.detail or CHECKS[finding.check].asks))
    if finding.status is Status.FAILED:
      lines += explain(finding).splitlines()[1:]
  return lines


def judge(
  findings: Sequence[Finding], strict: str, warn: Callable[[str], None]
) -> None:
  """Warns of failures; stops the run where `strict` says so.

  Args:
    findings: of an iteration.
    strict: 'none' only warns, 'wrong' stops at checks that make what is learnt
      wrong, 'all' at any.
    warn: shows a text to a person.

  Raises:
    Unsound: names every failed check with causes and remedy.
  """
  bad = failures(findings)
  stops = strict == 'all' or (
    strict == 'wrong' and any(CHECKS[f.check].wrong for f in bad)
  )
  if bad and stops:
    raise Unsound(
      '\n'.join(map(explain, bad))
      + '\n  config.doctor.strict=none goes on all the same'
    )
  for finding in bad:
    warn(explain(finding))
