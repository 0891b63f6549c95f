"""Does a run that is killed at any moment end as one that is left alone?

tools/run tools/kill_drill.py --config=configs/smoke.py --kills=5 --seed=0

Runs once undisturbed, then once for each moment, each with empty caches: a kill
by SIGKILL, uniform over the undisturbed run's time, then the same command
again. Prints the moments and what differs; exits 1 if anything does. Only
compiled programs are shared, so that a moment means the same in every run.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
  sys.path.insert(0, str(ROOT))

LAUNCH = ROOT / 'experiments' / 'launch.py'
# doctor/: the first iteration of each process is examined.
_MAY_DIFFER = re.compile(r'wall_s|time/.*|.*_per_s|host/.*|doctor/.*')


def main(arguments: list[str] | None = None) -> int:
  """Runs the drill; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--config', default='configs/smoke.py')
  parser.add_argument('--kills', type=int, default=5)
  parser.add_argument('--seed', type=int, default=0, help='of the moments')
  parser.add_argument('--to', default='', help='directory to work in')
  options, rest = parser.parse_known_args(arguments)
  root = pathlib.Path(options.to or tempfile.mkdtemp(prefix='kill_drill_'))
  command = [
    f'--config={options.config}',
    f'--config.compilation_cache={root / "programs"}',
    '--display=plain',
    *rest,
  ]
  run(root / 'warm', command)  # compiles
  start = time.monotonic()
  run(root / 'whole', command)
  length = time.monotonic() - start
  print(f'undisturbed: {length:.1f} s', flush=True)
  draw = random.Random(options.seed)
  faults = 0
  for index in range(options.kills):
    moment = draw.uniform(0, length)
    home = root / f'kill{index}'
    stage = run(home, command, kill_after=moment)
    run(home, command)
    found = differences(root / 'whole' / 'run', home / 'run')
    faults += bool(found)
    verdict = '; '.join(found[:3]) or 'identical'
    print(f'seed {options.seed}, {moment:.1f} s ({stage}): {verdict}')
  summary = {
    'name': 'drill',
    'kills': options.kills,
    'identical': options.kills - faults,
    'seconds': round(length, 1),
  }
  print(json.dumps(summary))  # for tools/record.py
  return int(faults > 0)


def run(
  home: pathlib.Path,
  command: Sequence[str],
  *,
  kill_after: float | None = None,
  kill_with: signal.Signals = signal.SIGKILL,
) -> str:
  """Runs launch.py with its own caches; returns its last line.

  Args:
    home: holds the caches and, under `run`, the run directory.
    command: arguments of launch.py but the workdir.
    kill_after: seconds until the signal; None = left alone.
    kill_with: the signal.

  Raises:
    RuntimeError: it failed of itself.
  """
  home.mkdir(parents=True, exist_ok=True)
  log = home / 'log'
  with log.open('a') as file:
    process = subprocess.Popen(
      [sys.executable, str(LAUNCH), f'--workdir={home / "run"}', *command],
      cwd=ROOT,
      env=environment(home),
      stdout=file,
      stderr=file,
    )
    try:
      process.wait(kill_after)
    except subprocess.TimeoutExpired:
      process.send_signal(kill_with)
      process.wait()
  lines = log.read_text().splitlines() or ['']
  if process.returncode not in (0, -kill_with, 128 + kill_with):
    raise RuntimeError('\n'.join([f'exit {process.returncode}', *lines[-30:]]))
  return lines[-1].strip()


def environment(home: pathlib.Path) -> dict[str, str]:
  """Returns variables with empty caches for data and weights."""
  return {
    **os.environ,
    'HOME': str(home),
    'AGENTRL_JAX_CACHE': str(home / 'cache'),
    'AGENTRL_JAX_DATA': str(home / 'data'),
    'JAX_PLATFORMS': os.environ.get('JAX_PLATFORMS', 'cpu'),
  }


def differences(whole: pathlib.Path, other: pathlib.Path) -> list[str]:
  """Says what differs between two run directories: metrics, weights, files."""
  from agentrl_jax import metrics

  out = []
  for name in ('metrics', 'sft'):
    pair = [_plain(metrics.read(run, name=name)) for run in (whole, other)]
    if len(pair[0]) != len(pair[1]):
      out.append(f'{name}: {len(pair[0])} rows, {len(pair[1])} rows')
    for one, two in zip(*pair):
      keys = sorted(one.keys() | two.keys())
      bad = [k for k in keys if repr(one.get(k)) != repr(two.get(k))]
      if bad:
        out.append(f'{name}, step {one["step"]}: {", ".join(bad[:5])}')
  out += _weight_differences(whole, other)
  for pattern in ('trajectories/*.jsonl', 'config.json', 'tokenizer/*'):
    files = [
      {p.relative_to(run): p.read_bytes() for p in run.glob(pattern)}
      for run in (whole, other)
    ]
    names = files[0].keys() | files[1].keys()
    bad = [n for n in names if files[0].get(n) != files[1].get(n)]
    out += [f'{name} differs' for name in sorted(bad)]
  if not (other / 'report.html').exists():
    out.append('no report.html')
  return out


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
  return [
    {k: v for k, v in row.items() if not _MAY_DIFFER.fullmatch(k)}
    for row in rows
  ]


def _weight_differences(whole: pathlib.Path, other: pathlib.Path) -> list[str]:
  states = [last_state(run) for run in (whole, other)]
  if states[0][0] != states[1][0]:
    return [f'last checkpoints {states[0][0]} and {states[1][0]}']
  one, two = (state for _, state in states)
  keys = one.keys() | two.keys()
  bad = [k for k in keys if k not in one or one[k] != two.get(k)]
  return [f'weights {name} differ' for name in sorted(bad)[:5]]


def last_state(run: pathlib.Path) -> tuple[int, dict[str, tuple]]:
  """Returns the last checkpoint's step and its arrays' bytes by path."""
  import jax
  import numpy as np
  import orbax.checkpoint as ocp

  steps = [
    int(p.name) for p in (run / 'checkpoints').iterdir() if p.name.isdigit()
  ]
  with ocp.PyTreeCheckpointer() as reader:
    tree = reader.restore(
      run.absolute() / 'checkpoints' / str(max(steps)) / 'state'
    )
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return max(steps), {
    jax.tree_util.keystr(path): (
      np.asarray(leaf).dtype.str,
      np.asarray(leaf).tobytes(),
    )
    for path, leaf in leaves
  }


if __name__ == '__main__':
  sys.exit(main())
