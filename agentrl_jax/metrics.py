"""Where do the numbers of a run go? Rows of `metrics.jsonl` and TensorBoard.

One JSON object a line: `step` (iterations), `updates`, `wall_s`, then flat
`group/name` keys in alphabetical order. JSON has no NaN: not-a-number and the
infinities are the strings 'NaN', 'Infinity' and '-Infinity', which `read`
turns back into floats. A row is one `write` call of the operating system, so
a killed process leaves whole rows and at most one torn last line, which every
reader here ignores and every writer cuts off.
"""

import json
import math
import os
import pathlib
import resource
import sys
import time
from collections.abc import Mapping
from typing import Any

_ODD = {'NaN': math.nan, 'Infinity': math.inf, '-Infinity': -math.inf}
_HEAD = ('step', 'updates', 'wall_s')


class Writer:
  """Appends metric rows to a run directory; one writer a file.

  Args:
    workdir: the run directory, made if missing.
    name: stem of the file; 'metrics' for the run, 'sft' for fine-tuning.
    sync: fsync every row, to survive a power cut and not only a kill.
    tensorboard: also write event files, to `tensorboard/`.
    start: `time.monotonic()` at which the process began, default now.
  """

  def __init__(
    self,
    workdir: str | os.PathLike[str],
    *,
    name: str = 'metrics',
    sync: bool = False,
    tensorboard: bool = True,
    start: float | None = None,
  ):
    self._workdir = pathlib.Path(workdir)
    self._workdir.mkdir(parents=True, exist_ok=True)
    self.path = self._workdir / f'{name}.jsonl'
    self._name = name
    self._sync = sync
    self._tensorboard = tensorboard
    self._events = None
    self._purge_step = None
    lines = _lines(self.path)
    self._rewrite(lines)
    self._start = time.monotonic() if start is None else start
    self._start -= max([_row(line)['wall_s'] for line in lines], default=0.0)

  def write(
    self, step: int, values: Mapping[str, Any], *, updates: int = 0
  ) -> dict[str, Any]:
    """Appends one row and returns it.

    Args:
      step: iterations done, 0 = before the first.
      values: flat `group/name` -> number. `updates` and `wall_s` may stand
        here too and then take precedence.
      updates: optimizer updates done.

    Raises:
      ValueError: a value is no number.
    """
    wall_s = round(time.monotonic() - self._start, 3)
    head = {'step': int(step), 'updates': int(updates), 'wall_s': wall_s}
    body = {key: _number(key, value) for key, value in values.items()}
    row = {key: body.pop(key, value) for key, value in head.items()}
    row |= dict(sorted(body.items()))
    line = json.dumps({key: _encode(value) for key, value in row.items()})
    _append(self.path, f'{line}\n'.encode(), self._sync)
    if self._tensorboard:
      self._write_events(row)
    return row

  def truncate(self, step: int) -> int:
    """Drops rows beyond `step` (on resume) and returns how many went.

    The lines that stay keep every byte; the file is replaced atomically.
    TensorBoard is told to purge what it holds beyond `step`.
    """
    lines = _lines(self.path)
    kept = [line for line in lines if _row(line)['step'] <= step]
    self._rewrite(kept)
    self.close()
    self._purge_step = step + 1
    return len(lines) - len(kept)

  def close(self) -> None:
    """Closes the event file; the next row opens another."""
    if self._events is not None:
      self._events.close()
      self._events = None

  def _rewrite(self, lines: list[bytes]) -> None:
    content = b''.join(lines)
    if self.path.exists() and self.path.read_bytes() == content:
      return
    partial = self.path.with_suffix('.tmp')
    partial.unlink(missing_ok=True)
    _append(partial, content, sync=True)
    partial.replace(self.path)

  def _write_events(self, row: Mapping[str, Any]) -> None:
    if self._events is None:
      import tensorboardX

      self._events = tensorboardX.SummaryWriter(
        str(self._workdir / 'tensorboard' / self._name),
        purge_step=self._purge_step,
        filename_suffix=f'.{time.time_ns()}',  # names tell seconds only
      )
    for key, value in row.items():
      if key != 'step' and math.isfinite(value):  # it would warn of NaN
        self._events.add_scalar(key, value, row['step'])
    self._events.flush()


class Mute:
  """A `Writer` that writes nothing: of a process whose rows another writes."""

  def __init__(self, workdir: str | os.PathLike[str], **_: Any):
    del workdir

  def write(
    self, step: int, values: Mapping[str, Any], *, updates: int = 0
  ) -> dict[str, Any]:
    """Returns the row as a writer would, but for its time."""
    head = {'step': step, 'updates': updates, 'wall_s': 0.0}
    return {**head, **values}

  def truncate(self, step: int) -> int:
    """Drops nothing."""
    del step
    return 0

  def close(self) -> None:
    """Closes nothing."""


def read(
  workdir: str | os.PathLike[str], *, name: str = 'metrics'
) -> list[dict[str, Any]]:
  """Reads the rows of a run, oldest first; a torn last line is left out.

  Raises:
    ValueError: a line that is not the last is no JSON object.
  """
  return [_row(line) for line in _lines(pathlib.Path(workdir, f'{name}.jsonl'))]


def series(
  rows: list[dict[str, Any]], key: str
) -> tuple[list[int], list[float]]:
  """Returns (steps, values) of the rows that have `key`."""
  found = [(row['step'], row[key]) for row in rows if key in row]
  return [step for step, _ in found], [value for _, value in found]


def host() -> dict[str, float]:
  """Measures this process: resident and peak memory [MB], CPU time [s]."""
  usage = resource.getrusage(resource.RUSAGE_SELF)
  scale = 1e6 if sys.platform == 'darwin' else 1e3
  peak = usage.ru_maxrss / scale
  try:
    pages = int(pathlib.Path('/proc/self/statm').read_text().split()[1])
    resident = pages * resource.getpagesize() / 1e6
  except OSError:  # not Linux
    resident = peak
  return {
    'host/rss_mb': round(resident, 1),
    'host/peak_rss_mb': round(max(peak, resident), 1),
    'host/cpu_s': round(usage.ru_utime + usage.ru_stime, 2),
  }


def _append(path: pathlib.Path, content: bytes, sync: bool) -> None:
  file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
  try:
    while content:  # a full disk may take a part
      content = content[os.write(file, content) :]
    if sync:
      os.fsync(file)
  finally:
    os.close(file)


def _lines(path: pathlib.Path) -> list[bytes]:
  """Whole lines with their newlines, each checked; a torn last one dropped."""
  if not path.exists():
    return []
  lines = path.read_bytes().splitlines(keepends=True)
  for number, line in enumerate(lines, 1):
    last = number == len(lines)
    if last and not line.endswith(b'\n'):
      return lines[:-1]
    try:
      _row(line)
    except ValueError:
      if last:
        return lines[:-1]
      raise ValueError(
        f'{path}, line {number} is no metrics row: {line[:60]!r}. The file was '
        'edited or the disk is damaged; delete that line to go on.'
      ) from None
  return lines


def _row(line: bytes) -> dict[str, Any]:
  row = json.loads(line)
  if not isinstance(row, dict) or any(key not in row for key in _HEAD):
    raise ValueError('no object with step, updates and wall_s')
  return {
    key: _ODD.get(value, value) if isinstance(value, str) else value
    for key, value in row.items()
  }


def _number(key: str, value: Any) -> float | int:
  if isinstance(value, bool | int):
    return int(value)
  try:
    return float(value)
  except (TypeError, ValueError):
    raise ValueError(
      f'Metric {key!r} is {value!r}; a metric is one number. Write text and '
      'arrays elsewhere.'
    ) from None


def _encode(value: float | int) -> float | int | str:
  if math.isfinite(value):
    return value
  return 'NaN' if math.isnan(value) else f'{"-" * (value < 0)}Infinity'
