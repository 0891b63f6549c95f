"""What does a run look like? PNG files drawn from its metric rows.

The same rows give the same bytes. matplotlib is imported when something is
drawn, and without pyplot: no window, no global figure.
"""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]

_SIZE = (7.2, 4.0)
_DPI = 100


def draw(
  workdir: str | os.PathLike[str], rows: Rows, *, sft_rows: Rows = ()
) -> list[pathlib.Path]:
  """Draws what `rows` has into `WORKDIR/plots`, and returns the files.

  Args:
    workdir: run directory.
    rows: of `metrics.jsonl`; several of one step are merged.
    sft_rows: of `sft.jsonl`, the fine-tuning before.
  """
  steps = merge(rows)
  target = pathlib.Path(workdir, 'plots')
  target.mkdir(parents=True, exist_ok=True)
  files = []
  for name, (painter, data) in {
    'success': (_success, steps),
    'returns': (_grid_of('rollout/return', 'rollout/turns'), steps),
    'speed': (_grid_of('*_per_s'), steps),
    'advantage': (_grid_of('advantage/*'), steps),
    'policy': (_grid_of('policy/*', 'loss/*', 'sampler/*'), steps),
    'time': (_stack_of('time/'), steps),
    'stop': (_stack_of('stop/'), steps),
    'sft': (_grid_of('sft/*'), merge(sft_rows)),
  }.items():
    figure = _figure()
    if painter(figure, data):
      files.append(target / f'{name}.png')
      _save(figure, files[-1])
  return files


def merge(rows: Rows) -> list[dict[str, Any]]:
  """Merges rows of one step, later ones over earlier, in order of step."""
  merged = {}
  for row in rows:
    merged.setdefault(row['step'], {}).update(row)
  return [merged[step] for step in sorted(merged)]


def draw_arms(
  path: str | os.PathLike[str],
  arms: Mapping[str, Sequence[Rows]],
  *,
  key: str = 'eval/success',
  title: str = '',
) -> None:
  """Draws one curve an arm: mean over runs, band from worst to best.

  Args:
    path: PNG file.
    arms: name -> the rows of each of its runs.
    key: metric.
    title: above the plot.
  """
  figure = _figure()
  axes = figure.subplots()
  for index, (name, runs) in enumerate(arms.items()):
    points = {}
    for rows in runs:
      for step, value in zip(*_series(merge(rows), key)):
        points.setdefault(step, []).append(value)
    steps = sorted(points)
    mean = [sum(points[s]) / len(points[s]) for s in steps]
    low, high = [min(points[s]) for s in steps], [max(points[s]) for s in steps]
    axes.plot(steps, mean, marker='o', color=f'C{index}', label=name)
    axes.fill_between(steps, low, high, color=f'C{index}', alpha=0.12, lw=0)
  _finish(axes, title or key, legend=bool(arms))
  _save(figure, pathlib.Path(path))


def _success(figure: Any, rows: Rows) -> bool:
  curves = (
    ('rollout/success', 'training tasks', dict(color='C0', lw=1)),
    ('eval/success', 'validation, sampled', dict(color='C1', marker='o')),
    ('eval/success_greedy', 'validation, greedy', dict(color='C2', marker='s')),
    ('test/success', 'test, sampled', dict(color='C3', marker='*', ms=12)),
    (
      'test/success_greedy',
      'test, greedy',
      dict(color='C4', marker='*', ms=12),
    ),
  )
  axes = figure.subplots()
  drawn = False
  for key, label, style in curves:
    steps, values = _series(rows, key)
    if steps:
      axes.plot(steps, values, label=label, **style)
      drawn = True
  steps, values = _series(rows, 'eval/success')
  if steps and steps[0] == 0:
    axes.axhline(values[0], color='C1', ls=':', lw=1, label='before RL')
  axes.set_ylim(-0.02, 1.02)
  _finish(axes, 'success', legend=drawn)
  return drawn


def _grid_of(*patterns: str) -> Callable[[Any, Rows], bool]:
  """Small multiples: one panel for each key that fits a pattern."""

  def paint(figure, rows):
    keys = _keys(rows, patterns)
    if not keys:
      return False
    columns = min(3, len(keys))
    lines = -(-len(keys) // columns)
    figure.set_size_inches(_SIZE[0], max(_SIZE[1], 1.8 * lines))
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel, key in zip(panels, keys):
      steps, values = _series(rows, key)
      panel.plot(steps, values, lw=1.2, marker='.' if len(steps) < 3 else None)
      _finish(panel, key, legend=False)
      panel.title.set_fontsize(8)
      panel.set_xlabel('')
      panel.tick_params(labelsize=7)
    for panel in panels[len(keys) :]:
      panel.set_visible(False)
    return True

  return paint


def _stack_of(prefix: str) -> Callable[[Any, Rows], bool]:
  """Stacked areas of the keys with a prefix that are ever non-zero."""

  def paint(figure, rows):
    keys = _keys(rows, [f'{prefix}*'])
    keys = [
      key
      for key in keys
      if key != 'time/iteration_s' and any(_series(rows, key)[1])
    ]
    rows = [row for row in rows if any(key in row for key in keys)]
    if not keys or not rows:
      return False
    axes = figure.subplots()
    steps = [row['step'] for row in rows]
    table = [[_finite(row.get(key, 0.0)) for row in rows] for key in keys]
    labels = [key.removeprefix(prefix) for key in keys]
    axes.stackplot(steps, table, labels=labels, step='mid')
    beside = dict(loc='center left', bbox_to_anchor=(1, 0.5), reverse=True)
    _finish(axes, f'{prefix}* by iteration', legend=True, **beside)
    return True

  return paint


def _keys(rows: Rows, patterns: Sequence[str]) -> list[str]:
  known = sorted({key for row in rows for key in row})
  found = []
  for pattern in patterns:
    head, _, tail = pattern.partition('*')
    found += [
      key
      for key in known
      if (key == pattern or ('*' in pattern and key.startswith(head)))
      and key.endswith(tail)
      and key not in found
    ]
  return found


def _series(rows: Rows, key: str) -> tuple[list[int], list[float]]:
  found = [(row['step'], float(row[key])) for row in rows if key in row]
  return [step for step, _ in found], [value for _, value in found]


def _finite(value: float) -> float:
  return value if abs(value) < float('inf') else 0.0


def _figure() -> Any:
  from matplotlib import figure
  from matplotlib.backends import backend_agg

  result = figure.Figure(figsize=_SIZE, dpi=_DPI, layout='constrained')
  backend_agg.FigureCanvasAgg(result)
  return result


def _finish(axes: Any, title: str, *, legend: bool, **options: Any) -> None:
  axes.set_title(title)
  axes.set_xlabel('iteration', fontsize=8)
  axes.grid(alpha=0.25)
  axes.spines[['top', 'right']].set_visible(False)
  if legend:
    axes.legend(fontsize=8, frameon=False, **options)


def _save(figure: Any, path: pathlib.Path) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.with_suffix('.tmp')
  figure.savefig(partial, format='png', metadata={'Software': None})
  partial.replace(path)
