"""Habits of a process: memory, signals, clocks, one run a directory."""

import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import platform
import resource
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Any

# glibc's mallopt parameters.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8


def tune_allocator() -> bool:
  """Keeps freed memory in the process instead of giving it back every step.

  XLA's temporary buffers would be mapped and unmapped at each call, a quarter
  of the CPU time of a small model. Call it before jax is imported.

  Returns:
    Whether the C library took the settings (glibc does).
  """
  try:
    mallopt = ctypes.CDLL(None).mallopt
  except (OSError, AttributeError):
    return False
  return all(
    mallopt(parameter, value)
    for parameter, value in (
      (_M_ARENA_MAX, 1),
      (_M_MMAP_MAX, 0),
      (_M_TRIM_THRESHOLD, 2**31 - 1),
    )
  )


class Stop:
  """Remembers that the process was asked to end; call it to ask."""

  def __init__(self):
    self.signal: signal.Signals | None = None

  def __call__(self) -> bool:
    return self.signal is not None

  @property
  def exit_code(self) -> int:
    """128 + signal, as shells report it."""
    return 128 + int(self.signal) if self.signal else 0

  @contextlib.contextmanager
  def installed(self) -> Iterator['Stop']:
    """Catches SIGTERM and SIGINT; a second SIGINT interrupts at once."""

    def handle(number, _):
      if self.signal is not None and number == signal.SIGINT:
        raise KeyboardInterrupt
      self.signal = signal.Signals(number)

    old = {s: signal.signal(s, handle) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
      yield self
    finally:
      for number, handler in old.items():
        signal.signal(number, handler)


class InUse(RuntimeError):
  """Another process runs in this directory."""


@contextlib.contextmanager
def locked(directory: str | os.PathLike[str]) -> Iterator[None]:
  """Holds a run directory; the lock goes with the process, however it ends.

  Raises:
    InUse: another process holds it.
  """
  path = pathlib.Path(directory)
  path.mkdir(parents=True, exist_ok=True)
  with open(path / '.lock', 'a+') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
      file.seek(0)
      owner = file.read().strip() or 'unknown'
      raise InUse(
        f'{path} is in use by process {owner}: choose another --workdir or '
        'wait until that run has ended'
      ) from e
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    os.fsync(file.fileno())  # other hosts of a run read it over the network
    yield


def host_changes(
  directory: str | os.PathLike[str], facts: Mapping[str, Any]
) -> str:
  """Says in what a run's last part ran on another host.

  Args:
    directory: of the run.
    facts: what results repeat for, as `keep_host` gets it.

  Returns:
    '' or the differing facts, for a warning.
  """
  path = pathlib.Path(directory, 'host.json')
  if not path.exists():
    return ''
  then = json.loads(path.read_text())
  return ', '.join(
    f'{key} {then[key]} is now {value}'
    for key, value in facts.items()
    if key in then and then[key] != value
  )


def keep_host(
  directory: str | os.PathLike[str], facts: Mapping[str, Any]
) -> None:
  """Writes `host.json`: what the results of a run repeat for, bit by bit.

  Args:
    directory: of the run.
    facts: JSON, such as the number of cores.
  """
  path = pathlib.Path(directory, 'host.json')
  partial = path.with_suffix('.tmp')
  partial.write_text(json.dumps(facts, sort_keys=True) + '\n')
  partial.replace(path)


def num_cores() -> int:
  """Cores that this process may use; results repeat for the same number."""
  return len(os.sched_getaffinity(0))


class Clock:
  """Splits time into named laps."""

  def __init__(self):
    self.laps: dict[str, float] = {}
    self._start = self._last = time.monotonic()

  def lap(self, name: str) -> None:
    """Ends a lap; the next begins."""
    now = time.monotonic()
    self.laps[name] = now - self._last
    self._last = now

  def metrics(self) -> dict[str, float]:
    """Returns `time/NAME_s` of each lap and `time/iteration_s` of all."""
    out = {f'time/{name}_s': value for name, value in self.laps.items()}
    return {**out, 'time/iteration_s': self._last - self._start}


def write_record(
  workdir: str | os.PathLike[str], root: pathlib.Path, start: float
) -> None:
  """Writes `run.json`: on what, how long and with how much memory a run ran.

  Args:
    workdir: run directory.
    root: of the code, whose git commit is noted if it has one.
    start: `time.monotonic()` at which this process began.
  """
  git = subprocess.run(
    ['git', '-C', str(root), 'describe', '--always', '--dirty'],
    capture_output=True,
    text=True,
    check=False,
  )
  record = {
    'git': git.stdout.strip() or 'unknown',
    'cores': num_cores(),
    'python': platform.python_version(),
    'machine': platform.machine(),
    'wall_s': round(time.monotonic() - start, 1),
    'peak_rss_mb': round(
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1
    ),
  }
  path = pathlib.Path(workdir, 'run.json')
  partial = path.with_suffix('.tmp')
  partial.write_text(json.dumps(record, indent=2) + '\n')
  partial.replace(path)
