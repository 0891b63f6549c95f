"""A parent for one process of a run on several hosts.

When a process of the run dies, JAX's runtime ends the others from inside, with
no chance for Python to say anything. So each runs under a parent, which hands
signals on, reads what the runtime complains of, and says in one line what
happened and how to go on. It loads no jax and touches no device.
"""

import collections
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence

# Exit status where the run can go on as soon as all hosts are there again.
TRY_AGAIN = 75

# What the worker ends with by itself: done, failed, refused, asked to end.
_SAID = frozenset({0, 1, 2, 130, 143})
_SILENT = re.compile(
  r'stopped sending heartbeats\):?\s*((?:[^\n]*\n?){1,3})', re.IGNORECASE
)
_LEADER = re.compile(
  r'leader task was preempted|coordination service.*(?:unavailable|not found)'
  r'|Failed to send RPC to coordination service',
  re.IGNORECASE,
)
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_KEPT = 400  # lines of the worker's errors
_PATIENCE_S = 5.0


def supervise(
  command: Sequence[str],
  workdir: str | os.PathLike[str],
  *,
  who: str,
  environment: Mapping[str, str] | None = None,
) -> int:
  """Runs the worker to its end.

  Args:
    command: of the worker, which calls `follow_parent` with the id of this
      process.
    workdir: run directory, for the last checkpoint.
    who: this process, in words, such as 'process 1 of 2'.
    environment: of the worker; None = this process's.

  Returns:
    The worker's exit status if it ended by itself, `TRY_AGAIN` if it was killed
    or lost the others, after one line on stderr.
  """
  # A session of its own: Ctrl-C reaches it once, through this process.
  worker = subprocess.Popen(
    command,
    stderr=subprocess.PIPE,
    text=True,
    errors='replace',
    start_new_session=True,
    env=environment,
  )
  asked = []

  def forward(number, _):
    asked.append(number)
    if worker.poll() is None:
      worker.send_signal(number)

  old = {number: signal.signal(number, forward) for number in _FORWARDED}
  last: collections.deque[str] = collections.deque(maxlen=_KEPT)
  reader = threading.Thread(
    target=_copy, args=(worker.stderr, last), daemon=True
  )
  reader.start()
  try:
    code = worker.wait()
    reader.join(_PATIENCE_S)  # a process that it left may hold its stderr
  finally:
    for number, handler in old.items():
      signal.signal(number, handler)
  if code in _SAID:
    return code
  if asked and code == -asked[-1]:  # before the worker listened to it
    return 128 + asked[-1]
  with contextlib.suppress(ProcessLookupError):
    os.killpg(worker.pid, signal.SIGKILL)  # what it started goes with it
  why = reason(code, ''.join(last))
  sys.stderr.write(f'{message(who, why, workdir)}\n')
  return TRY_AGAIN


def reason(code: int, errors: str) -> str:
  """Says why a worker ended, from its status and what stood on its stderr."""
  silent = _SILENT.search(errors)
  if silent:
    names = re.findall(r'(?:task:|^\s*)(\d+)\b', silent[1], re.MULTILINE)
    those = ', '.join(sorted(set(names), key=int)) or 'one of them'
    return f'lost process {those}, which stopped sending heartbeats'
  if _LEADER.search(errors):
    return 'lost process 0, which coordinates the others'
  if code == TRY_AGAIN:
    return 'lost another process in the middle of an exchange'
  if code < 0:
    return f'was killed by {signal.Signals(-code).name}'
  return f'ended with status {code}; its errors stand above'


def message(who: str, why: str, workdir: str | os.PathLike[str]) -> str:
  """Returns the line for a person: who, why, where it goes on from."""
  steps = checkpoints(workdir)
  where = pathlib.Path(workdir, 'checkpoints')
  last = (
    f'iteration {steps[-1]} in {where}' if steps else f'none in {where} yet'
  )
  return (
    f'{who} on {socket.gethostname()} {why}; last checkpoint: {last}; to go on '
    'from there, start the same command again on every host'
  )


def checkpoints(workdir: str | os.PathLike[str]) -> list[int]:
  """Returns the iterations that have a whole checkpoint, ascending."""
  found = pathlib.Path(workdir, 'checkpoints').glob('*')
  return sorted(int(path.name) for path in found if path.name.isdigit())


def follow_parent(parent: int) -> None:
  """Asks the kernel to end this process (SIGTERM) when its parent is gone.

  Args:
    parent: its process id, as it told itself: who is asked here would be
      another if it has died already, and this process ends then.
  """
  if not sys.platform.startswith('linux'):
    return
  import ctypes

  pr_set_pdeathsig = 1
  ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
  if os.getppid() != parent:  # it went before
    os.kill(os.getpid(), signal.SIGTERM)


def _copy(lines: Iterator[str], last: collections.deque[str]) -> None:
  for line in lines:
    last.append(line)
    sys.stderr.write(line)
    sys.stderr.flush()
