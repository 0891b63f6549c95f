"""What does a person see of a run? One display, live on a terminal or plain.

Everything the package says to a person goes through a `Display`: what is
waited for, how far it is, sampled trajectories, one line an iteration. On a
terminal a progress bar stays at the bottom; elsewhere the same facts come as
plain lines, progress at most every few seconds.
"""

import contextlib
import logging
import math
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

import rich.console
import rich.markup
import rich.progress
import rich.text

from agentrl_jax import types

KINDS = ('auto', 'live', 'plain', 'quiet')

# The columns of an iteration's line: key, label, format.
COLUMNS = (
  ('rollout/success', 'success', '{:.1%}'),
  ('rollout/return', 'return', '{:.2f}'),
  ('rollout/turns', 'turns', '{:.1f}'),
  ('rollout/tokens_per_s', 'tok/s', '{:,.0f}'),
  ('advantage/dead_groups', 'dead', '{:.0%}'),
  ('policy/entropy', 'entropy', '{:.3f}'),
  ('loss/policy', 'loss', '{:+.4f}'),
  ('time/iteration_s', 'time', '{:.1f}s'),
  ('eval/success', 'eval', '{:.1%}'),
  ('eval/success_greedy', 'greedy', '{:.1%}'),
  ('test/success', 'TEST', '{:.1%}'),
  ('test/success_greedy', 'TEST greedy', '{:.1%}'),
)

_STYLES = {
  'system': 'dim',
  'user': 'bold',
  'assistant': 'cyan',
  'tool': 'green',
}


class Display:
  """Shows a run; a context manager, or call `close` at the end.

  Args:
    kind: 'live' (bar at the bottom), 'plain' (lines), 'quiet' (warnings only)
      or 'auto': live on a terminal, plain elsewhere.
    stream: where to write, default stdout.
    start: `time.monotonic()` at which the process began, default now.
    every_s: least seconds between two plain lines of progress in one stage.
  """

  def __init__(
    self,
    kind: str = 'auto',
    *,
    stream: TextIO | None = None,
    start: float | None = None,
    every_s: float = 5.0,
  ):
    if kind not in KINDS:
      raise ValueError(f'Display kind {kind!r}: known are {", ".join(KINDS)}.')
    stream = sys.stdout if stream is None else stream
    if kind == 'auto':
      terminal = stream.isatty() and os.environ.get('TERM') != 'dumb'
      kind = 'live' if terminal else 'plain'
    self.kind = kind
    self._start = time.monotonic() if start is None else start
    self._every_s = every_s
    self._last = {}
    self._console = rich.console.Console(
      file=stream, highlight=False, soft_wrap=kind == 'plain'
    )
    self._bar = _bar(self._console) if kind == 'live' else None
    self._task = None
    if self._bar is not None:
      self._bar.start()

  def __enter__(self) -> 'Display':
    return self

  def __exit__(self, *exc: Any) -> None:
    self.close()

  def close(self) -> None:
    """Takes the bar down; lines still work afterwards."""
    if self._bar is not None:
      self._bar.stop()
      self._bar, self._task = None, None

  def hush(self) -> None:
    """From now on shows warnings only: another process tells the rest."""
    self.close()
    self.kind = 'quiet'

  def stage(self, text: str) -> None:
    """Says what is waited for from now on: 'compiling', 'generating data'."""
    self._last.clear()
    if self._bar is None:
      self._line(f'{text} ...')
      return
    if self._task is not None:
      self._bar.remove_task(self._task)
    self._task = self._bar.add_task(rich.markup.escape(text), total=None, n='')

  def progress(
    self, stage: str, done: float, total: float | None, **numbers: float
  ) -> None:
    """Says how far the stage is, with numbers worth watching.

    Plain lines come at most every few seconds, and always for the last step.
    """
    shown = '  '.join(f'{key} {_short(v)}' for key, v in numbers.items())
    if self._bar is not None:
      if self._task is None:
        self.stage(stage)
      self._bar.update(
        self._task,
        completed=done,
        total=total,
        description=rich.markup.escape(stage),
        n=shown,
      )
      return
    now = time.monotonic()
    last = self._last.get(stage, -math.inf)
    finished = total is not None and done >= total
    if now - last >= self._every_s or finished:
      self._last[stage] = now
      of = f'/{total:g}' if total is not None else ''
      self._line(f'{stage} {done:g}{of}  {shown}'.rstrip())

  def row(
    self, step: int, metrics: Mapping[str, float], total: int | None = None
  ) -> None:
    """Prints an iteration: the columns of COLUMNS that `metrics` has."""
    parts = [
      f'{label} {form.format(metrics[key])}'
      for key, label, form in COLUMNS
      if key in metrics
    ]
    of = f'/{total}' if total is not None else ''
    self._line(f'step {step}{of}  ' + '  '.join(parts), style='bold')

  def trajectory(
    self,
    trajectory: types.Trajectory,
    *,
    title: str = '',
    advantages: Any = None,
    limit: int = 400,
  ) -> None:
    """Prints a trajectory to read: prompt, turns, replies, how it ended."""
    if self.kind != 'quiet':
      lines = trajectory_lines(
        trajectory, title=title, advantages=advantages, limit=limit
      )
      self._console.print(rich.console.Group(*lines))

  def note(self, text: str) -> None:
    """Prints a line worth keeping."""
    self._line(text)

  def warn(self, text: str) -> None:
    """Prints a warning, in every kind of display."""
    self._line(f'WARNING: {text}', style='bold yellow', force=True)

  def _line(self, text: str, style: str = '', force: bool = False) -> None:
    if self.kind == 'quiet' and not force:
      return
    elapsed = time.monotonic() - self._start
    line = rich.text.Text(f'[{elapsed:6.1f}s] ', style='dim')
    line.append(text, style=style or 'not dim')
    self._console.print(line)


def trajectory_lines(
  trajectory: types.Trajectory,
  *,
  title: str = '',
  advantages: Any = None,
  limit: int = 400,
) -> list[rich.text.Text]:
  """Renders a trajectory as styled lines; long texts are cut at `limit`."""
  head = title or f'{trajectory.task.name}, sample {trajectory.sample}'
  lines = [rich.text.Text(f'-- {head} '.ljust(72, '-'), style='bold')]
  for message in trajectory.prompt:
    lines.append(_said(message.role, message.content, limit))
  for index, turn in enumerate(trajectory.turns):
    line = _said('assistant', turn.text, limit)
    if advantages is not None:
      value = float(advantages[index])
      style = 'green' if value > 0 else 'red' if value < 0 else 'dim'
      line.append(f'  [{value:+.2f}]', style=f'bold {style}')
    if turn.error:
      line.append(f'  ! {turn.error}', style='red')
    lines.append(line)
    for message in turn.observation:
      lines.append(_said(message.role, message.content, limit))
  good = trajectory.outcome > 0
  end = f'-- {trajectory.stop_reason.value} after {len(trajectory.turns)} turns'
  if len(trajectory.contexts) > 1:
    end += f' in {len(trajectory.contexts)} contexts'
  end += f', return {trajectory.outcome:g} '
  lines.append(
    rich.text.Text(end.ljust(72, '-'), style='bold green' if good else 'bold')
  )
  return lines


def quiet_logs() -> None:
  """Silences third-party logs and progress bars below errors.

  Call it before jax, transformers and tensorflow_datasets are imported: some
  read the environment only then. What the user has set is kept.
  """
  for key, value in {
    'TF_CPP_MIN_LOG_LEVEL': '2',
    'GRPC_VERBOSITY': 'ERROR',
    'TRANSFORMERS_VERBOSITY': 'error',
    'TRANSFORMERS_NO_ADVISORY_WARNINGS': '1',
    'TOKENIZERS_PARALLELISM': 'false',
    'TQDM_DISABLE': '1',
  }.items():
    os.environ.setdefault(key, value)
  for name in ('absl', 'jax', 'jax._src', 'orbax', 'grain', 'etils', 'flax'):
    logging.getLogger(name).setLevel(logging.ERROR)
  if 'absl' in sys.modules:
    with contextlib.suppress(ImportError):
      from absl import logging as absl_logging

      absl_logging.set_verbosity(absl_logging.ERROR)


def _bar(console: rich.console.Console) -> rich.progress.Progress:
  return rich.progress.Progress(
    rich.progress.SpinnerColumn(),
    rich.progress.TextColumn('{task.description}'),
    rich.progress.BarColumn(bar_width=24),
    rich.progress.MofNCompleteColumn(),
    rich.progress.TimeElapsedColumn(),
    rich.progress.TextColumn('{task.fields[n]}'),
    console=console,
    refresh_per_second=4,
    transient=True,
  )


def _said(role: str, content: str, limit: int) -> rich.text.Text:
  content = content.strip()
  if len(content) > limit:
    content = f'{content[:limit]} ... ({len(content) - limit} more)'
  text = rich.text.Text(f'{role}: ', style='bold')
  text.append(content, style=_STYLES.get(role, ''))
  return text


def _short(value: Any) -> str:
  if isinstance(value, str):
    return value
  return f'{value:,.0f}' if abs(value) >= 1000 else f'{value:.4g}'
