"""What does a command see? A root of its own, built inside fresh namespaces.

The root is a small file system in memory: /task and /tmp belong to the command,
programs and libraries are the host's, read-only; nothing else of the host is
there, not even its other folders' names. It ends with the namespaces.
"""

import contextlib
import os
import sys

from agentrl_jax.envs.sandbox import kernel

TASK, TEMPORARY = '/task', '/tmp'
# Programs and libraries of the host, where they exist.
PROGRAMS = ('/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32')
PROGRAMS += ('/etc/ld.so.cache', '/etc/alternatives')
DEVICES = ('null', 'zero', 'full', 'random', 'urandom')
INSIDE_UID = 1000  # of the command where a user namespace maps one user only
_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV


def programs() -> list[str]:
  """What of the host is shown, read-only: programs, libraries, this Python."""
  shown = [path for path in PROGRAMS if os.path.lexists(path)]
  prefix = os.path.realpath(sys.base_prefix)
  if not (prefix + '/').startswith('/usr/'):
    shown.append(prefix)
  return shown


def environment(task: str = TASK, temporary: str = TEMPORARY) -> dict[str, str]:
  """All that a command finds in its environment."""
  folders = [os.path.join(os.path.realpath(sys.base_prefix), 'bin')]
  folders += ['/usr/local/bin', '/usr/bin', '/bin']
  return {
    'PATH': ':'.join(folders),
    'HOME': task,
    'PWD': task,
    'TMPDIR': temporary,
    'LANG': 'C.UTF-8',
    'TERM': 'dumb',
    'PYTHONDONTWRITEBYTECODE': '1',
    'PYTHONHASHSEED': '0',
  }


def name_user(folder: str, uid: int) -> None:
  """Writes passwd and group: listings show a name, not a changing number."""
  for name, text in (
    (
      'passwd',
      f'root:x:0:0::/:/bin/false\nagent:x:{uid}:{uid}::{TASK}:/bin/sh',
    ),
    ('group', f'root:x:0:\nagent:x:{uid}:'),
  ):
    with open(os.path.join(folder, name), 'w') as file:
      file.write(text + '\n')


def enter(spot: str, uid: int | None) -> None:
  """Leaves all namespaces of the host; the next child is process 1.

  Args:
    spot: an empty folder, on which the new root is built.
    uid: user of the command, None where this process is not root.

  Raises:
    OSError: the kernel does not let us.
  """
  flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWNET
  flags |= kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
  if uid is not None:
    kernel.unshare(flags)
  else:
    _become_nobody_else(flags)
    uid = INSIDE_UID
  kernel.mount('none', '/', None, kernel.MS_REC | kernel.MS_PRIVATE)
  kernel.mount('tmpfs', spot, 'tmpfs', _FLAGS, 'mode=755')
  for path in programs():
    _show(path, spot)
  _devices(spot + '/dev')
  os.makedirs(spot + '/proc')
  os.makedirs(spot + '/etc', exist_ok=True)
  name_user(spot + '/etc', uid)
  for folder in (TASK, TEMPORARY):
    os.mkdir(spot + folder)
    os.chown(spot + folder, uid, uid)


def limit(max_bytes: int, max_files: int) -> None:
  """Bounds what /task and /tmp hold together; called in the new root."""
  options = f'size={max_bytes + (1 << 20)},nr_inodes={max_files + 200}'
  kernel.mount('none', '/', None, kernel.MS_REMOUNT | _FLAGS, options)


def finish(spot: str) -> None:
  """Moves process 1 into the new root, with a /proc of its own.

  A container that masks parts of its /proc lets nobody mount a new one: the
  command then has none.
  """
  flags = _FLAGS | kernel.MS_NOEXEC
  with contextlib.suppress(OSError):
    kernel.mount('proc', spot + '/proc', 'proc', flags | kernel.MS_RDONLY)
  kernel.pivot(spot)


def _become_nobody_else(flags: int) -> None:
  """Enters a user namespace that knows this user only."""
  uid, gid = os.geteuid(), os.getegid()
  kernel.unshare(flags | kernel.CLONE_NEWUSER)
  for name, text in (
    ('setgroups', 'deny'),
    ('uid_map', f'{INSIDE_UID} {uid} 1'),
    ('gid_map', f'{INSIDE_UID} {gid} 1'),
  ):
    with open(f'/proc/self/{name}', 'w') as file:
      file.write(text)


def _show(path: str, spot: str) -> None:
  """Shows a file or folder of the host read-only, a link as the link it is."""
  at = spot + path
  os.makedirs(os.path.dirname(at), exist_ok=True)
  if os.path.islink(path):
    os.symlink(os.readlink(path), at)
    return
  if os.path.isdir(path):
    os.mkdir(at)
  else:
    os.close(os.open(at, os.O_CREAT | os.O_WRONLY, 0o644))
  kernel.bind(path, at, kernel.MS_RDONLY | _FLAGS)


def _devices(folder: str) -> None:
  os.makedirs(folder)
  for name in DEVICES:
    at = os.path.join(folder, name)
    os.close(os.open(at, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.bind('/dev/' + name, at, 0)
  os.symlink('/proc/self/fd', folder + '/fd')
