"""What is wrong with a file of rollouts, whoever wrote it? By line number."""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.doctor import records
from agentrl_jax.doctor.dumps import Sample

# Mean |sampler - learner| that bfloat16 explains.
_GAP = 2e-2
# Fewer groups may well be equal by chance, or solved.
_FEW = 4
# Log of the chance from which on equal samples are no chance.
_CHANCE = math.log(1e-3)
_DIGEST = re.compile(r'(0x)?[0-9a-f]{16,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-.*')


@dataclasses.dataclass(frozen=True)
class Fault:
  """A fault of a kind: mask, drift, logprob, group or anchor; line 0 = all."""

  kind: str
  line: int
  text: str


KINDS = ('format', 'mask', 'drift', 'logprob', 'group', 'anchor')

# What a kind of fault may come from, and what to do.
REMEDIES = {
  'format': 'arrays of one line disagree: they were cut or padded apart',
  'mask': 'set the mask where tokens are sampled, never search for it later',
  'drift': 'append observation tokens only, or train each prompt by itself',
  'logprob': 'record log-probs at the temperature and top-p of sampling; '
  'compare them with the learner before the first update',
  'group': 'give each member its own seed; drop or refill groups whose '
  'outcomes are equal; group by task',
  'anchor': 'a state key is canonical text of what the agent has seen, read '
  'before it acts',
}


def examine(
  samples: Sequence[Sample],
  own: Sequence[tuple[int, types.Trajectory]] = (),
) -> tuple[list[Fault], dict[str, int]]:
  """Looks for faults.

  Args:
    samples: of a dump.
    own: trajectories in our own format with line numbers.

  Returns:
    Faults in order of kind and line; and by kind how many samples could be
    asked, 0 = the dump does not have what it takes.
  """
  faults = [Fault('format', s.line, t) for s in samples for t in s.faults]
  asked = dict.fromkeys(KINDS, 0)
  asked['format'] = len(samples)
  for sample in samples:
    if sample.mask is not None:
      asked['mask'] += 1
      faults += [Fault('mask', sample.line, t) for t in mask_faults(sample)]
    if sample.logprobs is not None:
      asked['logprob'] += 1
      texts = logprob_faults(sample)
      faults += [Fault('logprob', sample.line, t) for t in texts]
  for line, trajectory in own:
    texts = records.span_faults(trajectory, complete=False)
    faults += [Fault('mask', line, t) for t in texts]
  for kind, find in (
    ('drift', drift_faults),
    ('logprob', gap_faults),
    ('group', group_faults),
    ('anchor', anchor_faults),
  ):
    count, found = find(samples)
    asked[kind] = max(asked[kind], count)
    faults += [Fault(kind, line, text) for line, text in found]
  order = {kind: i for i, kind in enumerate(KINDS)}
  return sorted(faults, key=lambda f: (order[f.kind], f.line)), asked


def mask_faults(sample: Sample) -> Iterator[str]:
  """Yields what the mask of a sample has that no mask should have."""
  mask, start = sample.mask, sample.prompt
  trained = [t for t, m in enumerate(mask) if m]
  if not trained:
    yield 'no token is trained'
    return
  inside = [t for t in trained if t < start]
  if inside:
    share = len(inside) / len(trained)
    how = 'the mask may be inverted' if share > 0.5 else 'or shifted'
    yield f'{len(inside)} tokens of the prompt are trained ({how})'
  if sample.attention is not None:
    padded = sum(not sample.attention[t] for t in trained)
    if padded:
      yield f'{padded} padding tokens are trained'


def logprob_faults(sample: Sample) -> Iterator[str]:
  """Yields what no log-probability at sampling can be."""
  values = sample.logprobs
  mask = sample.mask
  if mask is None:
    mask = [t >= sample.prompt for t in range(len(values))]
  trained = [v for v, m in zip(values, mask) if m]
  missing = sum(v is None for v in trained)
  if missing:
    yield f'{missing} trained tokens have no log-prob'
  known = [v for v in trained if v is not None]
  bad = [v for v in known if not _finite(v)]
  if bad:
    yield f'{len(bad)} log-probs of trained tokens are not finite'
  above = [v for v in known if _finite(v) and v > 1e-4]
  if above:
    yield f'{len(above)} log-probs are above 0, such as {above[0]:g}'
  if len(known) > 3 and len(set(known)) == 1:
    yield f'every trained token has log-prob {known[0]:g}: a filling'
  # Zeros under the mask beside numbers outside it: one is shifted.
  zeros = sum(v == 0 for v in known)
  outside = sum(v not in (None, 0) for v, m in zip(values, mask) if not m)
  if sample.mask is not None and zeros and outside:
    yield (
      f'{zeros} trained tokens have log-prob 0 while {outside} untrained ones '
      'have one: mask and log-probs are shifted against each other'
    )


def drift_faults(
  samples: Sequence[Sample],
) -> tuple[int, list[tuple[int, str]]]:
  """Finds steps whose prompt is no extension of what came before."""
  steps: dict[str, list[Sample]] = collections.defaultdict(list)
  for sample in samples:
    if sample.trajectory is not None and sample.tokens:
      steps[sample.trajectory].append(sample)
  count, out = 0, []
  for parts in steps.values():
    for before, after in zip(parts, parts[1:]):
      count += 1
      # A padding token at either end is no part of the conversation.
      old, new = _real(before, False), _real(after, True)
      at = _common(old, new)
      if at < len(old):
        out.append(
          (
            after.line,
            f'the prompt leaves line {before.line} at token {at} of {len(old)}'
            f' ({old[at : at + 4]} is now {new[at : at + 4]})',
          )
        )
  return count, out


def gap_faults(samples: Sequence[Sample]) -> tuple[int, list[tuple[int, str]]]:
  """Compares log-probs at sampling with those of the learner."""
  pairs, worst = [], (0.0, 0)
  count = 0
  for sample in samples:
    if sample.logprobs is None or sample.learner_logprobs is None:
      continue
    count += 1
    mask = sample.mask or [True] * len(sample.tokens)
    both = [
      (a, b)
      for a, b, m in zip(sample.logprobs, sample.learner_logprobs, mask)
      if m and _finite(a) and _finite(b)
    ]
    pairs += both
    gap = sum(abs(a - b) for a, b in both) / max(len(both), 1)
    worst = max(worst, (gap, sample.line))
  if not pairs:
    return count, []
  gap = sum(abs(a - b) for a, b in pairs) / len(pairs)
  if gap <= _GAP:
    return count, []
  # Least squares through 0: sampling at temperature T makes learner = T' * x.
  slope = sum(a * b for a, b in pairs) / max(sum(a * a for a, _ in pairs), 1e-9)
  bias = sum(b - a for a, b in pairs) / len(pairs)
  text = (
    f'mean |sampler - learner| is {gap:.3g}, worst in line {worst[1]} '
    f'({worst[0]:.3g}); learner = {slope:.2f} x sampler, bias {bias:+.3g}'
  )
  return count, [(worst[1], text)]


def group_faults(
  samples: Sequence[Sample],
) -> tuple[int, list[tuple[int, str]]]:
  """Finds groups that teach nothing, or the wrong thing."""
  groups: dict[str, list[Sample]] = collections.defaultdict(list)
  for sample in samples:
    if sample.group is not None:
      groups[sample.group].append(sample)
  if not groups:
    return 0, []
  out, copies, dead, whole = [], [], 0, 0
  for members in groups.values():
    rewards = [s.reward for s in members if s.reward is not None]
    out += [
      (s.line, 'the reward is no finite number')
      for s in members
      if s.reward is not None and not _finite(s.reward)
    ]
    if len({s.trajectory or s.line for s in members}) < 2:
      continue
    whole += 1
    if _copied(members):
      text = f'{len(members)} members are one sample, copied'
      copies.append((members[0].line, text))
    spread = max(rewards) - min(rewards) if rewards else math.inf
    if spread <= 1e-5 * max(map(abs, rewards), default=0.0):
      dead += 1
      out += _phantoms(members)
  # A policy that is sure of some tasks repeats itself there, not in most.
  if 2 * len(copies) > whole:
    out += copies
  if not whole:
    out.append((0, 'every group has one member: nothing to compare with'))
  elif dead == whole >= _FEW:
    out.append((0, f'all {whole} groups have equal rewards: nothing to learn'))
  return len(samples), out


def _copied(members: Sequence[Sample]) -> bool:
  """Whether members are equal, and not by the policy's being sure."""
  bodies = [s.tokens or s.text for s in members]
  if not all(bodies) or len(set(bodies)) > 1:
    return False
  first = members[0]
  mask = first.mask or (True,) * len(first.tokens)
  known = [v for v, m in zip(first.logprobs or (), mask) if m and _finite(v)]
  return not known or (len(members) - 1) * sum(known) < _CHANCE


def _phantoms(members: Sequence[Sample]) -> Iterator[tuple[int, str]]:
  """Yields advantages that differ in a group whose rewards do not."""
  # Credit of turns differs inside an episode, rightly so: not asked.
  if any(len(set(s.advantages)) != 1 for s in members):
    return
  values = [s.advantages[0] for s in members]
  if max(values) - min(values) > 1e-3:
    yield (
      members[0].line,
      f'rewards of the group are equal, its advantages {min(values):.3g} to '
      f'{max(values):.3g} (divided by a tiny spread?)',
    )


def anchor_faults(
  samples: Sequence[Sample],
) -> tuple[int, list[tuple[int, str]]]:
  """Finds state keys that group nothing, or what does not belong together."""
  seen: dict[Any, set] = collections.defaultdict(set)
  count: collections.Counter = collections.Counter()
  out = []
  for sample in samples:
    for key in sample.anchors:
      if key is None:
        continue
      text = key if isinstance(key, str) else repr(key)
      count[sample.group, text] += 1
      seen[text].add(sample.group)
      if isinstance(key, float):
        out.append((sample.line, f'anchor {key!r} is a float: rounding parts'))
      elif isinstance(key, str) and _DIGEST.fullmatch(key):
        out.append((sample.line, f'anchor {key!r:.40} is a digest: unreadable'))
      elif isinstance(key, int) and len(seen[text]) > 1:
        out.append((sample.line, f'anchor {key} stands in several groups'))
  total = sum(count.values())
  alone = sum(n == 1 for n in count.values())
  if total > 3 and alone > 0.35 * total:
    out.append(
      (0, f'{alone} of {total} anchors stand alone: little to compare (> 35 %)')
    )
  return total, out


def _real(sample: Sample, prompt_only: bool) -> tuple[int, ...]:
  end = sample.prompt if prompt_only else len(sample.tokens)
  keep = sample.attention or (True,) * len(sample.tokens)
  return tuple(t for t, k in zip(sample.tokens[:end], keep) if k)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
  at = 0
  while at < min(len(a), len(b)) and a[at] == b[at]:
    at += 1
  return at


def _finite(value: Any) -> bool:
  return isinstance(value, int | float) and math.isfinite(value)
