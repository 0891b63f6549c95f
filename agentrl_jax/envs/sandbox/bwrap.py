"""How does bubblewrap cost no start? It waits, started ahead, for its command.

A world is started before its call: namespaces, mounts, filter and user are
done, and a shell in it waits for one line. The line becomes the command, under
limits that were put on the shell from outside. A world is used once.
"""

import contextlib
import dataclasses
import os
import pathlib
import select
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from agentrl_jax.envs.sandbox import filters, jail, kernel, watch

_PATIENCE_S = 10.0  # until a world that does not come up is given up
_READY = b'ready\n'


@dataclasses.dataclass
class World:
  """A bubblewrap that waits: `shell` is the process that becomes the command.

  `pid` is bubblewrap, `line` leads to the shell, `out` is what both write.
  """

  pid: int
  shell: int
  line: int
  out: int


def start(programs: Mapping[str, str], place: str, uid: int | None) -> World:
  """Starts bubblewrap around a shell, and waits until that is there.

  Args:
    programs: where `bwrap` is, and `setpriv` where this process is root.
    place: a folder with /task and /tmp of the world.
    uid: of the command, None where this process is not root.

  Raises:
    OSError: it did not come up; with what it said.
  """
  code = os.memfd_create('filter')
  os.write(code, filters.program())
  os.lseek(code, 0, os.SEEK_SET)
  reads, line = os.pipe()
  request = {
    'argv': _command(programs, place, uid),
    'environment': {'PATH': '/usr/bin:/bin'},
    'keep': code,
    'input': reads,
    'trusted': True,
  }
  pid, out = watch.start(request, uid, place + jail.TASK)
  os.close(reads)
  os.close(code)
  said = _asks_back(line, out)
  below = kernel.descendants(pid)
  if said != _READY or not below:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise OSError(f'bwrap: {said.decode(errors="replace").strip()}')
  return World(pid, below[-1], line, out)


def is_up(world: World) -> bool:
  """Whether the shell still answers: somebody may have ended it meanwhile."""
  return _asks_back(world.line, world.out) == _READY


def give(world: World, request: Mapping[str, Any], uid: int | None) -> None:
  """Puts the limits on the shell and lets it become the command.

  Raises:
    OSError: it has ended.
  """
  argv = request.get('argv')
  if 'python' in request:
    python = os.path.realpath(sys.executable)
    argv = [python, '-S', '-s', '-P', '-c', request['python']]
  inside = uid
  if uid is None and kernel.release() >= (5, 14):
    inside = jail.INSIDE_UID  # whose processes are counted there alone
  with _as_owner(uid):
    watch.limit(request, inside, world.shell)
  line = f'exec {shlex.join(argv)} </dev/null\n'
  with open(world.line, 'wb') as file:
    file.write(line.encode('utf-8', 'surrogateescape'))


@contextlib.contextmanager
def _as_owner(uid: int | None) -> Iterator[None]:
  """Has the real user of a process: root of a container may limit no other."""
  if uid is None:
    yield
    return
  os.setresgid(uid, -1, -1)
  os.setresuid(uid, -1, -1)
  try:
    yield
  finally:
    os.setresuid(0, -1, -1)
    os.setresgid(0, -1, -1)


def _asks_back(line: int, out: int) -> bytes:
  """Has the shell say that it is ready; returns what came instead, if not."""
  with contextlib.suppress(BrokenPipeError):
    os.write(line, b'echo ready\n')
  until = time.monotonic() + _PATIENCE_S
  said = b''
  poll = select.poll()
  poll.register(out, select.POLLIN)
  while not said.endswith(_READY):
    left = until - time.monotonic()
    if left <= 0 or not poll.poll(1000 * left):
      break
    data = os.read(out, 4096)
    if not data:
      break
    said += data
  return said


def _command(
  programs: Mapping[str, str], place: str, uid: int | None
) -> list[str]:
  """The command line of bubblewrap, around a shell that reads its input."""
  given = [programs['bwrap'], '--seccomp', '3', '--die-with-parent']
  given += ['--new-session', '--clearenv', '--hostname', 'sandbox']
  for name, value in jail.environment().items():
    given += ['--setenv', name, value]
  for path in jail.programs():
    for folder in reversed(pathlib.PurePath(path).parents[:-1]):
      given += ['--perms', '0755', '--dir', str(folder)]
    kind = '--symlink' if os.path.islink(path) else '--ro-bind'
    given += [kind, os.readlink(path) if os.path.islink(path) else path, path]
  for folder in (jail.TASK, jail.TEMPORARY):
    given += ['--bind', place + folder, folder]
  jail.name_user(place, jail.INSIDE_UID if uid is None else uid)
  for name in ('passwd', 'group'):
    given += ['--ro-bind', f'{place}/{name}', f'/etc/{name}']
  given += ['--proc', '/proc', '--dev', '/dev', '--chdir', jail.TASK]
  for kind in ('pid', 'net', 'ipc', 'uts'):
    given.append('--unshare-' + kind)
  inner = ['/bin/sh', '-s', 'zygote']  # the word tells it from a command
  if uid is None:
    given += ['--unshare-user', '--uid', str(jail.INSIDE_UID)]
  else:  # root keeps just what it takes to become somebody else
    for name in ('SETUID', 'SETGID', 'SETPCAP'):
      given += ['--cap-add', f'CAP_{name}']
    inner = [
      *(programs['setpriv'], '--reuid', str(uid), '--regid', str(uid)),
      *('--clear-groups', '--no-new-privs', '--inh-caps=-all'),
      *('--bounding-set=-all', '--', *inner),
    ]
  return [*given, '--', *inner]
