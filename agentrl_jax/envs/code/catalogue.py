"""Which bugs are good tasks? Those that a visible test notices, all tried out.

The catalogue of our own seeds is package data; `tools/make_repairs.py` writes
it anew, or another with functions of modules that are installed on the machine.
"""

import collections
import functools
import itertools
import json
import pathlib
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentrl_jax.envs import sandbox
from agentrl_jax.envs.code import items, mutations, trials, visible

OWN = pathlib.Path(__file__).parent / 'repairs.json'
MAX_SHOWN = 8  # cases of which the agent sees the tests
BATCH = 40  # versions that one process tries
LEVELS = (1, 2, 3, 4)  # 4: two bugs at once
PAIRS = 8  # of a function that are tried
# Bugs that hide well, by kind; others show in what the line does.
_SUBTLE = frozenset(('constant', 'bounds', 'compare', 'boolean'))


@functools.lru_cache(maxsize=4)
def load(path: str = '') -> dict[str, Any]:
  """Reads a catalogue, '' for our own.

  Returns:
    `items`: by name, `module`, `function`, `text`, `cases` as [before,
    expression, result], the first `shown` of which are the visible tests;
    `bugs`: [item, kind, start, end, replacement, visible failures, all
    failures, level]; `pairs`: [item, first bug, second bug, visible failures,
    all failures], a bug being [kind, start, end, replacement].

  Raises:
    ValueError: no catalogue there.
  """
  file = pathlib.Path(path) if path else OWN
  try:
    read = json.loads(file.read_text(encoding='utf-8'))
    if read['items'] and read['bugs'] and 'pairs' in read:
      return read
    raise KeyError('bugs')
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise ValueError(
      f'catalogue={path!r}: not a catalogue of repairs ({error!r}); write one '
      'with tools/make_repairs.py'
    ) from error


def level(text: str, kind: str, failed: int, shown: int) -> int:
  """How hard a repair is, 1-3.

  One point each for a bug that fails at most half of the visible tests, for a
  kind that hides well, and for a module above 15 lines: 0, 1 or 2 and more
  points are level 1, 2, 3.
  """
  points = (2 * failed <= shown) + (kind in _SUBTLE)
  points += text.count('\n') > 15
  return min(points, 2) + 1


def of_item(
  item: items.Item, backend: str = 'auto'
) -> tuple[dict[str, Any], list[list[Any]], collections.Counter]:
  """Tries all bugs of a function.

  Returns:
    The item as it is kept, its good bugs, and how many bugs were tried, were
    not noticed by the visible tests, or could not be tried.
  """
  wide = trials.widen(item)
  cases = trials.expect(item, wide, backend)
  examples = set(item.cases)
  shown = sum((before, text) in examples for before, text, _ in cases)
  kept = {'module': item.module, 'function': item.function, 'text': item.text}
  kept |= {'cases': cases, 'shown': min(shown, MAX_SHOWN)}
  count = collections.Counter(items=1)
  holding = visible.holding(kept, backend) if kept['shown'] else []
  if not holding:
    return kept, [], count
  others = [i for i in range(len(cases)) if i not in holding]
  cases = [cases[index] for index in (*holding, *others)]
  kept |= {'cases': cases, 'shown': len(holding)}
  expected = [result for _, _, result in cases]
  asked = [(before, text) for before, text, _ in cases]
  found = mutations.bugs(item.text, item.function)
  count['tried'] = len(found)
  good = []
  for (bug,), results in _try(kept, [(bug,) for bug in found], asked, backend):
    if results is None:
      count['unusable'] += 1
      continue
    wrong = [not trials.is_equal(a, b) for a, b in zip(results, expected)]
    failed = sum(wrong[: kept['shown']])
    if not failed:
      count['unnoticed'] += 1
      continue
    hard = level(item.text, bug.kind, failed, kept['shown'])
    place = [bug.kind, bug.start, bug.end, bug.replacement]
    good.append([item.name, *place, failed, sum(wrong), hard])
  count['kept'] = len(good)
  return kept, good, count


def pairs_of_item(
  kept: Mapping[str, Any], good: Sequence[Sequence[Any]], backend: str = 'auto'
) -> list[list[Any]]:
  """Puts two good bugs into a function at once, apart from each other.

  Each of them alone is noticed by a visible test, so that both have to be
  mended; pairs that hide each other from all visible tests are left out.

  Args:
    kept, good: of `of_item`.
    backend: of the sandbox.

  Returns:
    Pairs as `load` says; at most `PAIRS`.
  """
  name = f'{kept["module"]}.{kept["function"]}'
  bugs = [mutations.Bug(*bug[1:5]) for bug in good]
  apart = [
    (a, b)
    for a, b in itertools.permutations(bugs, 2)
    if a.end < b.start
    and mutations.is_program(mutations.with_bugs(kept['text'], (a, b)))
  ]
  draw = random.Random(f'pairs {name}')
  chosen = draw.sample(apart, min(PAIRS, len(apart)))
  asked = [(before, text) for before, text, _ in kept['cases']]
  out = []
  for pair, results in _try(kept, chosen, asked, backend):
    wrong = [
      not trials.is_equal(result, expected)
      for result, (_, _, expected) in zip(results or (), kept['cases'])
    ]
    failed = sum(wrong[: kept['shown']])
    if failed:
      places = [[b.kind, b.start, b.end, b.replacement] for b in pair]
      out.append([name, *places, failed, sum(wrong)])
  return out


def _try(
  kept: Mapping[str, Any],
  found: Sequence[Sequence[mutations.Bug]],
  cases: Sequence[tuple[str, str]],
  backend: str,
) -> Iterable[tuple[Sequence[mutations.Bug], list[str] | None]]:
  """Results by bugs; a batch that one ended is tried one by one from there."""
  waiting, size = list(found), BATCH
  while waiting:
    batch, waiting = waiting[:size], waiting[size:]
    texts = [mutations.with_bugs(kept['text'], bugs) for bugs in batch]
    results = trials.run(kept['module'], texts, cases, backend)
    done = results.index(None) if None in results else len(batch)
    yield from zip(batch[:done], results[:done])
    if done < len(batch):
      yield batch[done], None  # it took the process with it
      waiting = batch[done + 1 :] + waiting


def build(
  sources: Iterable[items.Item],
  tell: Callable[[str], None] = lambda line: None,
  backend: str = 'auto',
) -> tuple[dict[str, Any], Mapping[str, float]]:
  """Tries all bugs of all functions.

  Args:
    sources: the functions.
    tell: hears how far it is, a line a function.
    backend: of the sandbox.

  Returns:
    The catalogue, and the yield: functions, bugs tried, kept, unnoticed and
    unusable, pairs, `yield`, seconds.
  """
  begun, total = time.monotonic(), collections.Counter()
  made: dict[str, Any] = {'items': {}, 'bugs': [], 'pairs': []}
  for item in sources:
    try:
      kept, good, count = of_item(item, backend)
      pairs = pairs_of_item(kept, good, backend)
    except sandbox.SandboxError as error:
      tell(f'{item.name}: left out, {error}')
      continue
    total += count
    if good:
      made['items'][item.name] = kept
      made['bugs'] += good
      made['pairs'] += pairs
    tell(f'{item.name}: {count["kept"]} of {count["tried"]}')
  numbers = {
    'functions': len(made['items']),
    **{n: total[n] for n in ('tried', 'kept', 'unnoticed', 'unusable')},
    'pairs': len(made['pairs']),
    'yield': total['kept'] / max(total['tried'], 1),
    'seconds': time.monotonic() - begun,
  }
  return made, numbers


def dump(catalogue: Mapping[str, Any]) -> str:
  """Writes a catalogue as JSON, an item, a bug or a pair a line."""

  def line(value):
    return json.dumps(value, ensure_ascii=True, separators=(',', ':'))

  kept = [
    f'{line(name)}:{line(item)}' for name, item in catalogue['items'].items()
  ]
  bugs, pairs = (
    ',\n'.join(map(line, catalogue[what])) for what in ('bugs', 'pairs')
  )
  return (
    '{"items":{\n'
    + ',\n'.join(kept)
    + f'\n}},"bugs":[\n{bugs}\n],"pairs":[\n{pairs}\n]}}\n'
  )
