"""How do the arms of a sweep compare? Means, intervals and sign tests.

Plain arithmetic on {arm: {seed: {measure: value}}}; no files.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Arms = Mapping[str, Mapping[int, Mapping[str, float]]]

# Measure -> heading. The first is what sign tests compare, next the area.
MEASURES = {
  'success': 'test success',
  'area': 'area under training',
  'greedy': 'test, greedy',
  'start': 'before RL',
  'wall_s': 'seconds',
}


def outcome(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
  """Reduces a run's metric rows to the measures that it has.

  `area` is the mean of `rollout/success` over the iterations. A run without a
  test gives its last validation.
  """

  def column(key):
    return [float(row[key]) for row in rows if key in row]

  found = {
    'success': column('test/success')[-1:] or column('eval/success')[-1:],
    'area': column('rollout/success'),
    'greedy': column('test/success_greedy')[-1:]
    or column('eval/success_greedy')[-1:],
    'start': column('eval/success')[:1],
    'wall_s': column('wall_s')[-1:],
  }
  return {
    key: statistics.fmean(values) for key, values in found.items() if values
  }


def interval(values: Sequence[float]) -> tuple[float, float]:
  """95 % interval of the mean by Student's t; infinite for one value."""
  if len(values) < 2:
    return -math.inf, math.inf
  from scipy import stats  # comes with jax

  quantile = float(stats.t.ppf(0.975, len(values) - 1))
  half = quantile * statistics.stdev(values) / math.sqrt(len(values))
  mean = statistics.fmean(values)
  return mean - half, mean + half


def sign_test(ours: Mapping[int, float], theirs: Mapping[int, float]):
  """Pairs two arms by seed: (wins, losses, ties, two-sided exact p).

  p = min(1, 2 P[X <= min(wins, losses)]), X ~ Binomial(wins + losses, 1/2);
  5 wins of 5 give 0.0625, so that five seeds can never show much.
  """
  pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
  wins = sum(a > b for a, b in pairs)
  losses = sum(a < b for a, b in pairs)
  n = wins + losses
  tail = sum(math.comb(n, k) for k in range(min(wins, losses) + 1)) / 2**n
  return wins, losses, len(pairs) - n, min(1.0, 2 * tail)


def markdown(arms: Arms, missing: Sequence[str] = ()) -> str:
  """The comparison as Markdown: one row an arm, then the pairs."""
  lines = [
    '| arm | seeds | before RL | test success: mean | worst | 95 % interval '
    '| greedy | area under training |',
    '|---|---|---|---|---|---|---|---|',
  ]
  for arm, seeds in arms.items():
    success = list(_column(seeds, 'success').values())
    low, high = interval(success)
    cells = [
      _mean(seeds, 'start'),
      _mean(seeds, 'success'),
      f'{min(success):.1%}' if success else '-',
      f'{max(low, 0):.1%} to {min(high, 1):.1%}' if len(success) > 1 else '-',
      _mean(seeds, 'greedy'),
      _mean(seeds, 'area'),
    ]
    lines.append(f'| {arm} | {len(seeds)} | ' + ' | '.join(cells) + ' |')
  lines += ['', *_pairs(arms)]
  if missing:
    lines += ['', f'Failed or not run: {", ".join(missing)}.']
  return '\n'.join(lines)


def _pairs(arms: Arms) -> list[str]:
  lines = [
    '| pair, same seeds | test success: won-lost-tied | p '
    '| area: won-lost-tied | p |',
    '|---|---|---|---|---|',
  ]
  for one, two in itertools.combinations(arms, 2):
    cells = []
    for measure in ('success', 'area'):
      result = sign_test(
        _column(arms[two], measure), _column(arms[one], measure)
      )
      cells.append(f'{result[0]}-{result[1]}-{result[2]} | {result[3]:.2f}')
    lines.append(f'| {two} against {one} | {" | ".join(cells)} |')
  most = max([len(seeds) for seeds in arms.values()] or [0])
  lines += [
    '',
    f'p: two-sided sign test. With {most} seed(s) it cannot fall below '
    f'{min(1.0, 2 / 2**most):.3g}; several pairs are not corrected for.',
  ]
  return lines


def csv(arms: Arms) -> str:
  """One line a trial."""
  lines = ['arm,seed,' + ','.join(MEASURES)]
  for arm, seeds in arms.items():
    for seed, values in sorted(seeds.items()):
      cells = [str(values.get(measure, '')) for measure in MEASURES]
      lines.append(f'{arm},{seed},' + ','.join(cells))
  return '\n'.join(lines)


def numbers(arms: Arms) -> dict[str, float]:
  """Flat values for tools/record.py: `gigpo_success`, `gigpo_success_min`."""
  out = {}
  for arm, seeds in arms.items():
    for measure in MEASURES:
      values = list(_column(seeds, measure).values())
      if values:
        out[f'{arm}_{measure}'] = statistics.fmean(values)
        out[f'{arm}_{measure}_min'] = min(values)
  return out


def _column(
  seeds: Mapping[int, Mapping[str, float]], measure: str
) -> dict[int, float]:
  return {
    s: values[measure] for s, values in seeds.items() if measure in values
  }


def _mean(seeds: Mapping[int, Mapping[str, float]], measure: str) -> str:
  values = list(_column(seeds, measure).values())
  return f'{statistics.fmean(values):.1%}' if values else '-'
