"""What do environments with a shell share? A folder that commands change.

The folder lives as text here; each command gets a copy in the sandbox and what
it leaves is taken over. So nothing runs between turns, snapshots are values,
and an episode has nothing to free. Empty folders and modes of files are lost
between commands.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base, sandbox, scripted
from agentrl_jax.envs.sandbox import records, tree

_TEXT = {'type': 'string'}
BASH = base.function(
  'execute_bash',
  'Runs a line of bash in the folder of the task.',
  required=['command'],
  command=_TEXT,
)
READ = base.function(
  'read_file',
  'Shows a file with line numbers.',
  required=['path'],
  path=_TEXT,
)
WRITE = base.function(
  'write_file',
  'Replaces a file, or makes a new one.',
  required=['path', 'content'],
  path=_TEXT,
  content=_TEXT,
)
MAX_FILES = 64
MAX_CHARS = 20_000  # of a command, or of a file that is written


class ShellEnv(scripted.ScriptedEnv):
  """A subclass gives `_open(task) -> (files, prompt)`, and `_judge`.

  Args:
    backend: of the sandbox, 'auto' for the best that there is.
    output_chars: of a reply.
    wall_s: that the commands of a turn may take together, on the clock; below
      `config.env.deadline_s`, which ends the episode.
  """

  revealing = ('execute_bash', 'read_file')
  demonstrated_turns = 12

  def __init__(
    self,
    *,
    backend: str = 'auto',
    output_chars: int = 1000,
    wall_s: float = 20.0,
  ):
    super().__init__()
    if backend != 'auto' and backend not in sandbox.BACKENDS:
      known = ', '.join(('auto', *sandbox.BACKENDS))
      raise ValueError(f'backend={backend!r}: give one of {known}')
    if not 100 <= output_chars <= 2000:
      raise ValueError(f'output_chars={output_chars}: give 100-2000')
    self._backend = backend
    self._limits = sandbox.Limits(
      wall_s=wall_s, cpu_s=2, tree_files=MAX_FILES, output_chars=output_chars
    )
    self.wall_s = self._left_s = wall_s  # of a turn
    self._files: dict[str, str] = {}

  def step(self, action: types.Action) -> types.StepResult:
    """Executes one turn; `info['measures']` is of the episode so far."""
    self._left_s = self._limits.wall_s
    try:
      result = super().step(action)
    finally:  # a snapshot knows no clock
      self._left_s = self._limits.wall_s
    contained = self._backend != 'plain'
    if self._backend == 'auto':
      contained = sandbox.choose().is_contained
    measures = {'contained': float(contained)}
    measures |= self._measures(result.reward > 0)
    info = {**result.info, **self._notes(), 'measures': measures}
    return dataclasses.replace(result, info=info)

  def state_key(self) -> str | None:
    """What was changed and how, what was read since, the last reply."""
    changes = self._past + _written(self._writes)
    read = ' '.join(sorted(self._read)) or '-'
    return f'{changes}read {read}\n{self._last}'

  def call_execute_bash(self, arguments: Mapping[str, Any]) -> str:
    """Runs a command on a copy of the folder; takes over what it leaves."""
    command = _plain(arguments['command'], 'a command')
    if '\0' in command:
      raise base.ToolError('a command has no zero bytes')
    result, reply = self._timed(
      lambda limits: sandbox.run(
        command, files=self._files, limits=limits, backend=self._backend
      )
    )
    if result.files != self._files:
      self._past += f'{_written(self._writes)}ran {command}\n'
      self._writes = {}
      self._read = set()
      self._change(dict(result.files))
    return reply or 'no output'

  def call_read_file(self, arguments: Mapping[str, Any]) -> str:
    """A file, its lines numbered."""
    path = arguments['path']
    text = self._files.get(path)
    if text is None:
      raise base.ToolError(f'no file {base.clip(ascii(path)[1:-1], 40)}')
    self._read.add(path)
    lines = records.printable(text).split('\n')
    numbered = '\n'.join(f'{i} {line}' for i, line in enumerate(lines, 1))
    return records.shorten(numbered, self._limits.output_chars)

  def call_write_file(self, arguments: Mapping[str, Any]) -> str:
    """Replaces a file."""
    path, content = arguments['path'], _plain(arguments['content'], 'a file')
    problem = tree.problem(path)
    if problem:
      raise base.ToolError(problem)
    around = {f'{name}/' for name in self._files if name != path}
    if any(f'{path}/'.startswith(name) for name in around) or any(
      name.startswith(f'{path}/') for name in around
    ):
      raise base.ToolError('a folder and a file cannot have the same name')
    if path not in self._files and len(self._files) >= MAX_FILES:
      raise base.ToolError(f'at most {MAX_FILES} files')
    self._writes[path] = content
    self._read.discard(path)
    self._change({**self._files, path: content})
    return 'written'

  def _timed(
    self, work: Callable[[sandbox.Limits], sandbox.Result]
  ) -> tuple[sandbox.Result, str]:
    """Runs a command in what is left of the turn; with the reply.

    Raises:
      base.ToolError: nothing is left.
    """
    told = f'commands of a turn have {self._limits.wall_s:g} s together'
    if self._left_s <= 0:
      raise base.ToolError(f'no time is left: {told}')
    begun = time.monotonic()
    result = work(dataclasses.replace(self._limits, wall_s=self._left_s))
    self._left_s -= time.monotonic() - begun
    if result.reason != 'wall':
      return result, result.text()
    self._left_s = 0.0
    result = dataclasses.replace(result, limits=self._limits)
    return result, f'{result.text()}\n[{told}]'

  def _start(self, task: types.Task, sample: int) -> str:
    del sample
    self._past, self._writes, self._read = '', {}, set()
    files, prompt = self._open(task)
    self._files = dict(sorted(files.items()))
    return prompt

  def _open(self, task: types.Task) -> tuple[Mapping[str, str], str]:
    """The folder of a task, and what is asked."""
    raise NotImplementedError

  def _change(self, files: dict[str, str]) -> None:
    """Takes over a changed folder."""
    self._files = dict(sorted(files.items()))

  def _notes(self) -> Mapping[str, Any]:
    """More of `info`, each turn."""
    return {}

  def _measures(self, success: bool) -> Mapping[str, float]:
    """Numbers of an episode so far, which may be cut anywhere."""
    del success
    return {}


def _plain(text: str, what: str) -> str:
  """Text that a file can hold.

  Raises:
    base.ToolError: it is too long, or no text.
  """
  if len(text) > MAX_CHARS:
    raise base.ToolError(f'{what} has at most {MAX_CHARS} characters')
  try:
    text.encode()
  except UnicodeEncodeError as error:
    raise base.ToolError(f'{what} is valid Unicode') from error
  return text


def _written(writes: Mapping[str, str]) -> str:
  return ''.join(f'wrote {p}\n{writes[p]}\n' for p in sorted(writes))
