"""Writes what runs reached into docs/numbers.json and the texts that quote it.

  tools/run tools/record.py RUN [RUN ...] --name=gigpo
  tools/run tools/record.py LINES.jsonl --name=baselines
  tools/run tools/record.py            # only fills the texts again

A RUN is a run or sweep directory, or a file of JSON lines as tools/play.py and
tools/bench.py print them: {"agent": "oracle", "success": 1.0} gives
`oracle_success`.

Several runs (seeds) of one name give their mean, and `_min` and `_max` beside
it. A text quotes a number, or a sweep's table, between markers:

  <!-- number: gigpo.test_success .1% -->97.1%<!-- /number -->
  <!-- table: estimator --> ... <!-- /table -->

The name is `NAME.metric` with `_` for `/`; the format is Python's. Markers may
stand in README.md, docs/*.md and the docstrings of configs/. Nobody types a
result: `tests/tools/record_test.py` compares text and numbers.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
from typing import Any

from agentrl_jax import metrics

ROOT = pathlib.Path(__file__).resolve().parents[1]
NOT_YET = 'not yet run'

_NUMBER = re.compile(
  r'<!-- number: (?P<name>[\w.-]+)(?: (?P<form>\S+))? -->(?P<text>.*?)'
  r'<!-- /number -->',
  re.DOTALL,
)
_TABLE = re.compile(
  r'<!-- table: (?P<name>[\w.-]+) -->(?P<text>.*?)<!-- /table -->', re.DOTALL
)


def main(arguments: list[str] | None = None) -> int:
  """Records the runs and fills the texts; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('runs', nargs='*', help='run or sweep directories')
  parser.add_argument('--name', help="entry, default the first run's name")
  parser.add_argument('--root', default=ROOT, type=pathlib.Path)
  options = parser.parse_args(arguments)
  book = options.root / 'docs' / 'numbers.json'
  numbers = json.loads(book.read_text()) if book.exists() else {}
  if options.runs:
    runs = [pathlib.Path(run) for run in options.runs]
    name = options.name or runs[0].resolve().name
    numbers[name] = entry(runs, options.root)
    for plot in runs[0].glob('curves.png'):  # of a sweep
      shutil.copyfile(plot, book.parent / f'{name}.png')
    book.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(numbers, indent=1, sort_keys=True, ensure_ascii=False)
    book.write_text(f'{text}\n', encoding='utf-8')
    print(f'{book}: {name} = {numbers[name]["values"]}')
  for path in texts(options.root):
    old = path.read_text(encoding='utf-8')
    new = fill(old, numbers)
    if new != old:
      path.write_text(new, encoding='utf-8')
      print(f'{path}: filled')
  return 0


def texts(root: pathlib.Path) -> list[pathlib.Path]:
  """Lists the files that may quote numbers."""
  found = [root / 'README.md', *(root / 'docs').glob('**/*.md')]
  found += (root / 'configs').glob('**/*.py')
  return sorted(path for path in found if path.exists())


def fill(text: str, numbers: dict[str, Any]) -> str:
  """Returns `text` with what stands between the markers written anew."""

  def number(match):
    head = match[0][: match.start('text') - match.start()]
    return f'{head}{quote(numbers, match["name"], match["form"])}' + (
      '<!-- /number -->'
    )

  def table(match):
    content = numbers.get(match['name'], {}).get('table', NOT_YET)
    return (
      f'<!-- table: {match["name"]} -->\n{content.strip()}\n<!-- /table -->'
    )

  return _TABLE.sub(table, _NUMBER.sub(number, text))


def quote(numbers: dict[str, Any], name: str, form: str | None) -> str:
  """Formats `NAME.metric`, or says that it was not run."""
  run, _, key = name.partition('.')
  found = numbers.get(run, {})
  value = found.get('values', {}).get(key, found.get(key))
  if value is None:
    return NOT_YET
  return format(value, form or '') if not isinstance(value, str) else value


def entry(runs: list[pathlib.Path], root: pathlib.Path) -> dict[str, Any]:
  """Makes the entry of one or more runs: values and how they came about."""
  summaries = [summary(run) for run in runs]
  values = {}
  for key in sorted(set().union(*summaries)):
    column = [found[key] for found in summaries if key in found]
    values[key] = _round(statistics.fmean(column))
    if len(runs) > 1:
      values[f'{key}_min'] = _round(min(column))
      values[f'{key}_max'] = _round(max(column))
  about = [_json(run / 'run.json') for run in runs]
  seeds = [_json(run / 'config.json').get('seed') for run in runs]
  table = runs[0] / 'table.md'
  return {
    'values': values,
    'runs': len(runs),
    'seeds': [seed for seed in seeds if seed is not None],
    'git': about[0].get('git') or _git(root),
    'cores': about[0].get('cores') or len(os.sched_getaffinity(0)),
    'python': '{}.{}'.format(*sys.version_info),
    'date': datetime.datetime.now(datetime.UTC).date().isoformat(),
    **({'table': table.read_text()} if table.exists() else {}),
  }


def summary(run: pathlib.Path) -> dict[str, float]:
  """Reduces a run to one number a metric, named with `_` for `/`.

  Rates and times: the median over iterations from the third on (the first two
  compile). `*_gap`, `*deviation*`, `wall_s`, `peak_rss_mb`, `updates`: the
  largest. Success before RL is `eval_success_start`. All others: the last. A
  directory with `numbers.json` (a sweep, baselines) gives what stands there.
  """
  if run.is_file():
    return _lines(run)
  out = dict(_json(run / 'numbers.json'))
  columns = {}
  for row in metrics.read(run):
    for key, value in row.items():
      if isinstance(value, int | float) and math.isfinite(value):
        columns.setdefault(key, []).append((row['step'], value))
  if not columns and not out:
    raise SystemExit(f'{run} holds neither metrics.jsonl nor numbers.json')
  for key, column in columns.items():
    values = [value for _, value in column]
    name = key.replace('/', '_')
    if key.endswith('_per_s') or key.startswith('time/'):
      late = [value for step, value in column if step > 2]
      out[name] = statistics.median(late or values)
    elif re.search(r'_gap$|deviation|^wall_s$|peak_rss|^updates$', key):
      out[name] = max(values)
    elif key != 'step':
      out[name] = values[-1]
  for key in ('eval/success', 'eval/success_greedy'):
    for step, value in columns.get(key, []):
      if step == 0:
        out[f'{key.replace("/", "_")}_start'] = value
  whole = _json(run / 'run.json')  # from process start to the last line
  for key, name in (('wall_s', 'wall_s'), ('peak_rss_mb', 'host_peak_rss_mb')):
    if key in whole:
      out[name] = whole[key]
  return out


def _lines(path: pathlib.Path) -> dict[str, float]:
  """JSON lines: the first text of each names its numbers."""
  out = {}
  for line in path.read_text().splitlines():
    row = json.loads(line)
    name = next(value for value in row.values() if isinstance(value, str))
    for key, value in row.items():
      if isinstance(value, int | float):
        out[f'{name}_{key}'] = value
  return out


def _round(value: float) -> float:
  return float(f'{value:.6g}')


def _json(path: pathlib.Path) -> dict[str, Any]:
  return json.loads(path.read_text()) if path.exists() else {}


def _git(root: pathlib.Path) -> str:
  """The commit, with '+' where tracked files were changed since."""

  def ask(*command):
    return subprocess.run(
      ['git', '-C', str(root), *command], capture_output=True, text=True
    ).stdout.strip()

  changed = ask('status', '--porcelain', '--untracked-files=no')
  return ask('rev-parse', '--short', 'HEAD') + '+' * bool(changed)


if __name__ == '__main__':
  sys.exit(main())
