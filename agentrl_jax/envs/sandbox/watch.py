"""How is a command started, watched and ended? Nothing of it may outlive it."""

import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from agentrl_jax.envs.sandbox import filters, kernel

_TICK_S = 0.05  # between looks at memory, processes, files
_END_S = 5.0  # within which killed processes have to be gone
_CHUNK = 1 << 16
FLOOD = 20  # a command that writes this many times what is shown is ended


def start(request: Mapping[str, Any], uid: int | None, folder: str) -> tuple:
  """Forks the command.

  Args:
    request: `argv` to execute or `python` to run in this interpreter, and the
      limits. `trusted` starts it without them, as who we are, with a file to
      `keep` as number 3 and an `input`.
    uid: user to become, None to stay.
    folder: where it runs.

  Returns:
    Its process, and the pipe with its output.
  """
  out, into = os.pipe()
  pid = os.fork()
  if pid:
    os.close(into)
    os.set_blocking(out, False)
    return pid, out
  status = 126
  try:
    _settle(request, uid, folder, into)
    if 'python' in request:
      status = _python(request['python'], request['environment'])
    else:
      os.execve(request['argv'][0], request['argv'], request['environment'])
  except BaseException:  # noqa: BLE001 (nothing may return into the parent)
    os.write(2, traceback.format_exc(limit=-3).encode())
  finally:
    os._exit(status)


def _settle(request, uid, folder: str, into: int) -> None:
  """Gives up, in the child, everything that the command shall not have."""
  os.setsid()
  source = request.get('input')
  os.dup2(os.open('/dev/null', os.O_RDONLY) if source is None else source, 0)
  os.dup2(into, 1)
  os.dup2(into, 2)
  kept = request.get('keep')  # a file descriptor that bwrap reads
  if kept is not None:
    os.dup2(kept, 3)
    os.set_inheritable(3, True)
  kernel.close_from(3 if kept is None else 4)
  os.chdir(folder)
  os.umask(0o022)
  for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)  # those that Python handles
  if request.get('trusted'):  # bwrap, which drops and filters by itself
    return
  limit(request, uid)
  kernel.drop_privileges(uid)
  if request.get('confine'):
    filters.confine(*request['confine'])
  if kernel.is_known():
    filters.install()


def limit(request: Mapping[str, Any], uid: int | None, pid: int = 0) -> None:
  """Sets the kernel's limits, which the command inherits and cannot raise.

  Args:
    request: the limits.
    uid: of the command, None where it runs as who we are.
    pid: whom to limit, 0 for this process.
  """
  processes = request['processes']
  if uid is None:  # they count for everything that this user runs
    processes += _tasks_of(os.getuid())
  cpu = request['cpu_s']
  for kind, soft, hard in (
    (resource.RLIMIT_CPU, cpu, cpu + 1),
    (resource.RLIMIT_AS, request['memory_bytes'], request['memory_bytes']),
    (resource.RLIMIT_FSIZE, request['file_bytes'], request['file_bytes']),
    (resource.RLIMIT_NPROC, processes, processes),
    (resource.RLIMIT_NOFILE, request['open_files'], request['open_files']),
    (resource.RLIMIT_CORE, 0, 0),
    (resource.RLIMIT_MEMLOCK, 0, 0),
    (resource.RLIMIT_MSGQUEUE, 0, 0),
  ):
    resource.prlimit(pid, kind, (soft, hard))


def _tasks_of(uid: int) -> int:
  """Threads of a user on this machine."""
  number = 0
  for name in filter(str.isdigit, os.listdir('/proc')):
    try:
      if os.stat(f'/proc/{name}').st_uid == uid:
        number += len(os.listdir(f'/proc/{name}/task'))
    except OSError:
      continue
  return number


def _python(source: str, environment: Mapping[str, str]) -> int:
  """Runs a program in this warm interpreter; returns its exit status."""
  os.environ.clear()
  os.environ.update(environment)
  sys.argv = ['-c']
  names = {'__name__': '__main__', '__builtins__': __builtins__}
  status = 0
  try:
    exec(compile(source, '<program>', 'exec'), names)
  except SystemExit as end:
    status = (
      end.code if isinstance(end.code, int) else int(end.code is not None)
    )
  except BaseException:  # noqa: BLE001 (shown, as an interpreter does)
    traceback.print_exc()
    status = 1
  for stream in (sys.stdout, sys.stderr):
    stream.flush()
  return status & 0xFF


def follow(
  pid: int,
  out: int,
  request: Mapping[str, Any],
  look: Callable[[], str],
  hangup: int | None = None,
) -> dict[str, Any]:
  """Waits for the command to end, or for a reason to end it.

  Args:
    pid: the command.
    out: its output.
    request: with `wall_s` and `output_bytes`.
    look: says what is used too much, '' if nothing.
    hangup: a socket whose other end nobody holds any more, then.

  Returns:
    `status` (exit status, minus the signal, None if it did not end), `reason`,
    `output` as bytes.
  """
  begun = looked = time.monotonic()
  output, status, reason = bytearray(), None, ''
  poll = select.poll()
  poll.register(out, select.POLLIN)
  ended = os.pidfd_open(pid) if hasattr(os, 'pidfd_open') else None
  if ended is not None:
    poll.register(ended, select.POLLIN)
  if hangup is not None:
    poll.register(hangup, select.POLLRDHUP)
  while not reason:
    events = dict(poll.poll(_TICK_S * 1000))
    if not _drain(out, output, request['output_bytes'] * FLOOD):
      reason = 'output'
    if events.get(out, 0) & select.POLLHUP:
      poll.unregister(out)
    status = reap(pid, status)
    now = time.monotonic()
    if status is not None:  # it may have written once more before it ended
      if not _drain(out, output, request['output_bytes'] * FLOOD):
        reason = 'output'
      break
    if hangup in events:
      reason = 'hangup'
    if now - begun > request['wall_s']:
      reason = 'wall'
    if not reason and now - looked > _TICK_S:
      looked, reason = now, look()
  if ended is not None:
    os.close(ended)
  if status is not None and -status == signal.SIGXCPU:
    reason = 'cpu'
  return {'status': status, 'reason': reason, 'output': output}


def _drain(out: int, output: bytearray, most: int) -> bool:
  """Takes what was written; False once it is more than `most`."""
  while len(output) <= most:
    try:
      data = os.read(out, _CHUNK)
    except BlockingIOError:
      return True
    if not data:
      return True
    output += data
  del output[most:]
  return False


def reap(pid: int, status: int | None) -> int | None:
  """Takes the dead; returns the exit status of `pid` once there is one."""
  while True:
    try:
      gone, code = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
      return status
    if not gone:
      return status
    if gone == pid:
      status = os.waitstatus_to_exitcode(code)


def end_namespace() -> None:
  """Kills all, as process 1 of a namespace, and waits until they are gone."""
  until = time.monotonic() + _END_S
  while time.monotonic() < until:
    try:
      os.kill(-1, signal.SIGKILL)
      os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
      return


def end_descendants(uid: int | None) -> bool:
  """Kills all that this process, a subreaper, has below it.

  Args:
    uid: whose processes they are if nobody else's are, else None.

  Returns:
    Whether all are gone.
  """
  until = time.monotonic() + _END_S
  if not kernel.children(os.getpid()):  # as a rule
    return True
  while time.monotonic() < until:
    if uid is not None:
      _kill_user(uid)
    for pid in kernel.descendants(os.getpid()):
      try:
        os.kill(pid, signal.SIGKILL)
      except ProcessLookupError:
        continue
    try:
      while os.waitpid(-1, os.WNOHANG)[0]:
        pass
    except ChildProcessError:
      return True
    time.sleep(0.002)
  return False


def _kill_user(uid: int) -> None:
  """Kills every process of a user at once: no fork outruns it."""
  pid = os.fork()
  if not pid:
    try:
      os.setresgid(uid, uid, uid)
      os.setresuid(uid, uid, uid)
      os.kill(-1, signal.SIGKILL)
    finally:
      os._exit(0)
  os.waitpid(pid, 0)


def excess(request: Mapping[str, Any], pids: list[int]) -> str:
  """Says whether processes are too many or too large together."""
  if len(pids) > 2 * request['processes']:
    return 'processes'
  if kernel.anonymous_bytes(pids) > request['memory_bytes']:
    return 'memory'
  return ''
