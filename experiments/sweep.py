"""Runs the trials of a config's `sweep()` and compares its arms.

  python experiments/sweep.py --config=configs/ablations/estimator.py
    [--workdir=runs/sweeps/estimator] [--jobs=2] [--config.field=value ...]

A config with `sweep()` yields one dict a trial: `arm` (its name in the table),
`seed`, and fields to override. Trials of one arm share a name and differ in
seed. Each trial is a process of experiments/launch.py in its own directory,
pinned to its share of the cores: two one-core trials at a time do more than
two-core trials one by one. Rerun the command to go on: finished trials are
kept, failed ones are tried again. Results: table.md, table.csv, curves.png.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
LAUNCH = ROOT / 'experiments' / 'launch.py'

# Pins itself, then becomes the trial. XLA sizes its thread pool accordingly.
_PINNED = (
  'import json, os, sys; os.sched_setaffinity(0, json.loads(sys.argv[1])); '
  'os.execv(sys.argv[2], sys.argv[2:])'
)


@dataclasses.dataclass(frozen=True)
class Trial:
  """One run of an arm."""

  arm: str
  seed: int
  overrides: Mapping[str, Any]

  @property
  def name(self) -> str:
    return f'{self.arm}_s{self.seed}'


def trials(points: Iterable[Mapping[str, Any]]) -> list[Trial]:
  """Turns what `sweep()` yields into trials.

  Raises:
    ValueError: two trials have one name, or there are none.
  """
  out = {}
  for point in points:
    rest = {k: v for k, v in point.items() if k not in ('arm', 'seed')}
    arm = point.get('arm') or '_'.join(str(value) for value in rest.values())
    trial = Trial(arm, int(point.get('seed', 0)), rest)
    if trial.name in out:
      raise ValueError(f'two trials are called {trial.name}: name their arms')
    out[trial.name] = trial
  if not out:
    raise ValueError('sweep() yields no trial')
  return list(out.values())


def command(
  trial: Trial, config: str, workdir: pathlib.Path, extra: list[str]
) -> list[str]:
  """The command line of a trial; `extra` overrides come last and win."""
  fields = {**trial.overrides, 'seed': trial.seed}
  return [
    sys.executable,
    str(LAUNCH),
    f'--config={config}',
    *[f'--config.{key}={value}' for key, value in fields.items()],
    *extra,
    f'--workdir={workdir}',
  ]


def shares(jobs: int) -> list[set[int]]:
  """Deals the cores that this process may use to the jobs."""
  cores = sorted(os.sched_getaffinity(0))
  return [
    set(cores[job::jobs]) or {cores[job % len(cores)]} for job in range(jobs)
  ]


class Pool:
  """Runs trials as pinned processes, at most `jobs` at a time."""

  def __init__(self, workdir: pathlib.Path, jobs: int):
    self._workdir = workdir
    self._free = shares(jobs)
    self._running = {}

  def run(self, commands: Mapping[str, list[str]]) -> None:
    """Runs what is not done yet; a failed trial does not stop the others."""
    waiting = []
    for name, line in commands.items():
      state = _state(self._workdir / name)
      if state.get('status') == 'done' and state['command'] == line:
        print(f'{name}: done before', flush=True)
      else:
        waiting.append((name, line))
    try:
      while waiting or self._running:
        while waiting and self._free:
          self._start(*waiting.pop(0))
        self._reap()
        time.sleep(0.05)
    finally:  # an interrupt: each trial saves and stops
      for process, *_ in self._running.values():
        process.terminate()
      for process, *_ in self._running.values():
        process.wait()

  def _start(self, name: str, line: list[str]) -> None:
    directory = self._workdir / name
    directory.mkdir(parents=True, exist_ok=True)
    cores = self._free.pop(0)
    log = (directory / 'log.txt').open('ab')
    process = subprocess.Popen(
      [sys.executable, '-c', _PINNED, json.dumps(sorted(cores)), *line],
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=subprocess.STDOUT,
      env=os.environ | {'OMP_NUM_THREADS': str(len(cores))},
    )
    log.close()
    self._running[name] = (process, cores, line, time.monotonic())
    print(f'{name}: started on cores {sorted(cores)}', flush=True)

  def _reap(self) -> None:
    for name, (process, cores, line, start) in list(self._running.items()):
      if process.poll() is None:
        continue
      del self._running[name]
      self._free.append(cores)
      status = 'failed' if process.returncode else 'done'
      seconds = round(time.monotonic() - start, 1)
      state = {
        'status': status,
        'returncode': process.returncode,
        'seconds': seconds,
        'cores': len(cores),
        'command': line,
      }
      _write(self._workdir / name / 'trial.json', json.dumps(state, indent=1))
      log = self._workdir / name / 'log.txt'
      why = f': {_last_line(log)} ({log})' if process.returncode else ''
      print(f'{name}: {status} in {seconds} s{why}', flush=True)


def _state(directory: pathlib.Path) -> dict[str, Any]:
  path = directory / 'trial.json'
  return json.loads(path.read_text()) if path.exists() else {}


def _last_line(log: pathlib.Path) -> str:
  lines = log.read_text(errors='replace').strip().splitlines()
  return lines[-1][:200] if lines else 'no output'


def _write(path: pathlib.Path, text: str) -> None:
  partial = path.with_suffix('.tmp')
  partial.write_text(f'{text}\n', encoding='utf-8')
  partial.replace(path)


def main(arguments: list[str] | None = None) -> int:
  """Runs the sweep and writes its results; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--config', required=True, help='a file with sweep()')
  parser.add_argument('--workdir', type=pathlib.Path)
  parser.add_argument(
    '--jobs', type=int, default=0, help='trials at a time, 0 = one a core'
  )
  parser.add_argument(
    '--report-only', action='store_true', help='compare what has run so far'
  )
  options, extra = parser.parse_known_args(arguments)
  wrong = [item for item in extra if not item.startswith('--config.')]
  if wrong:
    parser.error(f'unknown {wrong}; overrides are --config.FIELD=VALUE')
  from agentrl_jax import config

  try:
    found = trials(config.load_module(options.config).sweep())
  except (AttributeError, ValueError, OSError) as error:
    parser.error(f'{options.config} has no usable sweep(): {error}')
  name = pathlib.Path(options.config).stem
  workdir = options.workdir or pathlib.Path('runs', 'sweeps', name)
  workdir.mkdir(parents=True, exist_ok=True)
  jobs = options.jobs or min(len(found), len(os.sched_getaffinity(0)))
  if not options.report_only:
    lines = {
      t.name: command(t, options.config, workdir / t.name, extra) for t in found
    }
    Pool(workdir, jobs).run(lines)
  return compare(workdir, found)


def compare(workdir: pathlib.Path, found: list[Trial]) -> int:
  """Writes table and plot; 1 if a trial has failed or has not run."""
  sys.path.insert(0, str(ROOT / 'experiments'))
  import sweep_table

  from agentrl_jax import metrics, plots

  arms, runs, missing = {}, {}, []
  for trial in found:
    directory = workdir / trial.name
    if _state(directory).get('status') != 'done':
      missing.append(trial.name)
      continue
    rows = metrics.read(directory)
    arms.setdefault(trial.arm, {})[trial.seed] = sweep_table.outcome(rows)
    runs.setdefault(trial.arm, []).append(rows)
  table = sweep_table.markdown(arms, missing)
  _write(workdir / 'table.md', table)
  _write(workdir / 'table.csv', sweep_table.csv(arms))
  _write(workdir / 'numbers.json', json.dumps(sweep_table.numbers(arms)))
  plots.draw_arms(
    workdir / 'curves.png',
    runs,
    key='rollout/success',
    title='training success',
  )
  print(f'{table}\n{workdir}/table.md, table.csv, curves.png', flush=True)
  return 1 if missing else 0


def _interrupted(number: int, frame: Any) -> None:
  raise SystemExit(128 + number)


if __name__ == '__main__':
  signal.signal(signal.SIGTERM, _interrupted)
  signal.signal(signal.SIGINT, _interrupted)
  sys.exit(main())
