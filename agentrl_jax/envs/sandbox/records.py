"""What may a command use, and what came of it?"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

_ESCAPE = re.compile(r'\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?)')


@dataclasses.dataclass(frozen=True)
class Limits:
  """Bounds of one command; all are above 0."""

  wall_s: float = 10.0  # on the clock
  cpu_s: int = 5  # of each process
  memory_mb: int = 256  # of all processes together, and of each
  processes: int = 32  # and threads, at a time
  open_files: int = 64  # of each process
  file_kb: int = 1024  # of the largest file
  tree_kb: int = 4096  # of all files together
  tree_files: int = 256  # that come back
  output_chars: int = 2000  # shown; 20 times as many end the command

  def __post_init__(self):
    wrong = [
      f'{name}={value}'
      for name, value in vars(self).items()
      if isinstance(value, bool) or not value > 0
    ]
    if wrong:
      raise ValueError(f'limits above 0 are wanted, not {", ".join(wrong)}')

  def request(self) -> dict[str, float]:
    """The same in seconds and bytes, as the server takes it."""
    return {
      'wall_s': self.wall_s,
      'cpu_s': self.cpu_s,
      'memory_bytes': self.memory_mb << 20,
      'processes': self.processes,
      'open_files': self.open_files,
      'file_bytes': self.file_kb << 10,
      'tree_bytes': self.tree_kb << 10,
      'tree_files': self.tree_files,
      'output_bytes': self.output_chars,
    }


# What ended a command that did not end by itself.
REASONS: Mapping[str, str] = {
  'wall': 'it took longer than {wall_s:g} s',
  'cpu': 'it used more than {cpu_s} s of CPU',
  'memory': 'it used more than {memory_mb} MB',
  'processes': 'it had more than {processes} processes',
  'files': 'its files are more than {tree_kb} kB or {tree_files} files',
  'output': 'it wrote too much',
  'hangup': 'nobody waited for it',
  'unkillable': 'some of its processes could not be ended',
}


@dataclasses.dataclass(frozen=True)
class Result:
  """What a command wrote, and the files that it left.

  `status` is its exit status, minus the number of the signal that ended it,
  None if it was ended for `reason`, a key of `REASONS`. `output` is what it
  wrote to both streams, unchanged. `dropped`: what it left and did not come
  back, with why.
  """

  status: int | None
  reason: str
  output: str
  files: Mapping[str, str]
  dropped: Sequence[str]
  limits: Limits

  @property
  def ok(self) -> bool:
    """Whether it ended by itself, with status 0."""
    return self.status == 0 and not self.reason

  def text(self) -> str:
    """Output as an agent may see it: bounded, printable, with what went wrong.

    Colours and the like are taken out, other control characters spelt.
    """
    lines = [shorten(printable(self.output), self.limits.output_chars)]
    if self.reason:
      why = REASONS[self.reason].format(**vars(self.limits))
      lines.append(f'[ended: {why}]')
    elif self.status:
      signal = self.status < 0
      lines.append(f'[{"signal" if signal else "exit"} {abs(self.status)}]')
    if self.dropped:
      names = ', '.join(self.dropped[:3])
      lines.append(f'[not kept: {shorten(names, 200)}]')
    return '\n'.join(line for line in lines if line)


def printable(text: str) -> str:
  """Takes terminal sequences out and spells what else cannot be printed."""
  text = _ESCAPE.sub('', text.replace('\r\n', '\n'))
  return ''.join(
    c if c.isprintable() or c in '\n\t' else ascii(c)[1:-1] for c in text
  ).rstrip('\n')


def shorten(text: str, most: int) -> str:
  """Cuts the middle out, with a note of how much."""
  if len(text) <= most:
    return text
  head = most * 2 // 3
  tail = most - head
  cut = len(text) - head - tail
  return f'{text[:head]}\n[{cut} characters cut]\n{text[-tail:]}'
