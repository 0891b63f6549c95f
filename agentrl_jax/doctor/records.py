"""Are trajectories what they claim to be? Checks of host records, no jax."""

import collections
import math
from collections.abc import Callable, Iterator, Sequence

from agentrl_jax import types
from agentrl_jax.doctor import findings
from agentrl_jax.doctor.findings import Finding
from agentrl_jax.doctor.listener import Heard
from agentrl_jax.text import templates


def spans(
  trajectories: Sequence[types.Trajectory],
  text: Callable[[Sequence[int]], str] | None = None,
  *,
  complete: bool = True,
) -> Finding:
  """Checks that sampled tokens are those of the turns, with a log-prob each.

  Args:
    trajectories: of an iteration.
    text: of a completion's tokens, to compare with the turn; None = not done.
    complete: whether every token of a turn must count as sampled (false where
      a drift policy masks some).
  """
  faults = []
  for b, trajectory in enumerate(trajectories):
    if not trajectory.stop_reason.trainable:
      continue  # what was drawn last is in no turn: the environment failed
    for fault in span_faults(trajectory, text, complete=complete):
      faults.append(f'{_name(trajectory, b)}: {fault}')
  turns = sum(len(t.turns) for t in trajectories)
  return findings.of('spans', faults, f'{turns} turns')


def span_faults(
  trajectory: types.Trajectory,
  text: Callable[[Sequence[int]], str] | None = None,
  *,
  complete: bool = True,
) -> Iterator[str]:
  """Yields what is wrong with the tokens of one trajectory."""
  owners = [[-1] * len(c.tokens) for c in trajectory.contexts]
  for s, turn in enumerate(trajectory.turns):
    if not 0 <= turn.context < len(owners):
      if turn.end > turn.start:
        yield f'turn {s} lies in context {turn.context}, which there is not'
      continue
    context = trajectory.contexts[turn.context]
    owner = owners[turn.context]
    if not complete and turn.start == turn.end:
      continue  # rewritten: nothing of it is left
    if not 0 <= turn.start < turn.end <= len(owner):
      yield f'turn {s} has no token: {turn.start}:{turn.end} of {len(owner)}'
      continue
    if any(o >= 0 for o in owner[turn.start : turn.end]):
      yield f'turn {s} overlaps another'
    owner[turn.start : turn.end] = [s] * (turn.end - turn.start)
    if not any(context.sampled_mask[turn.start : turn.end]):
      yield f'turn {s} has no sampled token'
    elif text is not None and complete:
      said = text(context.tokens[turn.start : turn.end])
      if said != turn.text:
        yield f'turn {s} says {turn.text!r:.40}, its tokens {said!r:.40}'
  for c, context in enumerate(trajectory.contexts):
    yield from _token_faults(c, context, owners[c], complete)


def _token_faults(c, context, owner, complete):
  size = len(context.tokens)
  for name in ('sampled_mask', 'logprobs', 'versions'):
    if len(getattr(context, name)) != size:
      yield f'context {c}: {name} has not the length of tokens'
      return
  for t, sampled in enumerate(context.sampled_mask):
    logprob, version = context.logprobs[t], context.versions[t]
    if sampled and owner[t] < 0:
      yield f'context {c}, token {t}: sampled, but in no turn'
      return
    if not sampled and owner[t] >= 0 and complete:
      yield f'context {c}, token {t}: of turn {owner[t]}, but not sampled'
      return
    if sampled and (not math.isfinite(logprob) or logprob > 1e-6):
      yield f'context {c}, token {t}: log-prob {logprob}'
      return
    if sampled != (version >= 0):
      yield f'context {c}, token {t}: {sampled=}, version {version}'
      return


def prefix(
  trajectories: Sequence[types.Trajectory], heard: Heard | None
) -> Finding:
  """Checks that each context is what the sampler saw and drew.

  Every prompt then extends what was sampled: the sampler only ever appends. A
  window of the past may end a context where the sampler's stream goes on.
  """
  if heard is None or not heard.streams:
    return findings.skipped('prefix', 'nobody listened to the sampler')
  # What one drew another may have seen as history: equal tokens, other masks.
  seen: dict[tuple[int, ...], list[list[bool]]] = collections.defaultdict(list)
  for stream in heard.streams:
    for end in _pauses(stream.sampled):
      seen[tuple(stream.tokens[:end])].append(stream.sampled[:end])
  faults, count = [], 0
  for b, trajectory in enumerate(trajectories):
    if not trajectory.stop_reason.trainable:
      continue
    for c, context in enumerate(trajectory.contexts):
      count += 1
      drawn = seen.get(tuple(context.tokens))
      where = f'{_name(trajectory, b)}, context {c}'
      if drawn is None:
        # Found once: a comparison with every stream takes its time.
        at = '?' if faults else _longest(context.tokens, seen)
        faults.append(f'{where}: from token {at} on the sampler saw another')
      elif not any(_within(context.sampled_mask, mask) for mask in drawn):
        faults.append(f'{where}: counts tokens as sampled that were not drawn')
  return findings.of('prefix', faults, f'{count} contexts')


def _within(sampled, drawn):
  """Whether all that counts as sampled was drawn."""
  return all(d or not m for m, d in zip(sampled, drawn))


def _pauses(sampled):
  """Yields where a turn ended: a context may end there."""
  for at, drawn in enumerate(sampled, 1):
    if at == len(sampled) or (drawn and not sampled[at]):
      yield at


def _longest(tokens, seen):
  best = 0
  for other in seen:
    at = 0
    while at < min(len(tokens), len(other)) and tokens[at] == other[at]:
      at += 1
    best = max(best, at)
  return best


def ends(
  trajectories: Sequence[types.Trajectory],
  stop_ids: Sequence[int],
  *,
  complete: bool = True,
) -> Finding:
  """Checks that a turn that something follows is closed by one end token.

  Args:
    trajectories: of an iteration.
    stop_ids: tokens that end a turn.
    complete: as of `spans`.
  """
  if not complete:
    return findings.skipped('ends', 'turns are rewritten on purpose')
  faults, count = [], 0
  for b, trajectory in enumerate(trajectories):
    for s, turn in enumerate(trajectory.turns):
      if not 0 <= turn.context < len(trajectory.contexts):
        continue
      tokens = trajectory.contexts[turn.context].tokens
      if not 0 < turn.end < len(tokens):
        continue
      count += 1
      closed = [tokens[at] in stop_ids for at in (turn.end - 1, turn.end)]
      if sum(closed) != 1:
        word = 'two end tokens' if all(closed) else 'no end token'
        faults.append(f'{_name(trajectory, b)}, turn {s}: {word}')
  return findings.of('ends', faults, f'{count} turns with a reply')


def samples(
  trajectories: Sequence[types.Trajectory],
  group_size: int,
  temperature: float,
) -> Finding:
  """Checks that not every group is one sample, copied."""
  if temperature == 0 or group_size < 2:
    return findings.skipped('samples', 'one sample a task, or greedy')
  groups: dict[str, list[tuple]] = {}
  for trajectory in trajectories:
    tokens = tuple(c.tokens for c in trajectory.contexts)
    if trajectory.stop_reason.trainable and tokens:
      groups.setdefault(trajectory.task.name, []).append(tokens)
  whole = [g for g in groups.values() if len(g) > 1]
  if not whole:
    return findings.skipped('samples', 'no group with two members')
  equal = sum(len(set(g)) == 1 for g in whole)
  text = f'{equal} of {len(whole)} groups hold one sample, copied'
  good = equal < len(whole)
  return (
    findings.ok('samples', text) if good else findings.failed('samples', text)
  )


def keys(heard: Heard | None) -> Finding:
  """Checks that no two turns of an iteration share a sampling key."""
  if heard is None or not heard.keys:
    return findings.skipped('keys', 'nobody listened to the sampler')
  count, distinct = len(heard.keys), len(set(heard.keys))
  if distinct < count:
    return findings.failed('keys', f'{count} turns share {distinct} keys')
  return findings.ok('keys', f'{count} turns')


def template(tokenizer, style, rewrites: bool = False) -> Finding:
  """Checks that rendering a longer conversation keeps the shorter's tokens.

  The first prompt, what was said and the reply must together be the beginning
  of the whole, as `templates.render` writes it for fine-tuning.

  Args:
    tokenizer, style: of the run.
    rewrites: whether the run rewrites history on purpose.
  """
  if rewrites:
    return findings.skipped('template', 'history is rewritten on purpose')
  said = types.Message('assistant', '<think>first this</think>go')
  prompt = [types.Message('user', 'task')]
  replies = [types.Message('tool', 'reply')]
  ids = list(templates.open(tokenizer, style, prompt).ids)
  for turn in range(2):
    ids += templates.completion_ids(tokenizer, style, said)
    whole = templates.render(tokenizer, style, [*prompt, said]).ids
    at = _longest(ids, [tuple(whole)])
    if at < len(ids):
      return findings.failed(
        'template',
        f'after {turn} replies, token {at} of {len(ids)} is rendered '
        f'otherwise: {tokenizer.decode(list(whole[at : at + 8]))!r}',
      )
    ids += templates.extend(tokenizer, style, ids, replies)
    prompt += [said, *replies]
  return findings.ok('template', 'two turns with reasoning')


def _name(trajectory, b):
  return f'trajectory {b} ({trajectory.task.name}, {trajectory.sample})'
