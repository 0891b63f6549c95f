"""Which calls of the Linux kernel does Python not offer? By ctypes, with errno.

Numbers of system calls are those of x86-64 and of arm64, which differ below 424
and agree above.
"""

import ctypes
import os
import pathlib
import re

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

MACHINE = os.uname().machine
_PIVOT_ROOT = {'x86_64': 155, 'aarch64': 41}
_CAPSET = {'x86_64': 126, 'aarch64': 91}
_CLOSE_RANGE = 436
_LAST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)


def is_known() -> bool:
  """Whether the numbers of this machine's system calls are known here."""
  return MACHINE in _PIVOT_ROOT


def release() -> tuple[int, int]:
  """Major and minor version of the kernel."""
  major, minor = re.match(r'(\d+)\.(\d+)', os.uname().release).groups()
  return int(major), int(minor)


def call(number: int, *arguments) -> int:
  """Makes a system call; arguments are ints, bytes, None or ctypes.

  Raises:
    OSError: with the kernel's errno.
  """
  made = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
  result = _libc.syscall(ctypes.c_long(number), *made)
  if result < 0:
    raise OSError(ctypes.get_errno(), f'system call {number}')
  return result


def unshare(flags: int) -> None:
  """Leaves namespaces of the parent (CLONE_NEW*)."""
  if _libc.unshare(flags) < 0:
    raise OSError(ctypes.get_errno(), f'unshare({flags:#x})')


def mount(
  source: str, target: str, kind: str | None, flags: int, data: str = ''
) -> None:
  """Mounts, as mount(2)."""
  result = _libc.mount(
    source.encode(),
    target.encode(),
    kind and kind.encode(),
    ctypes.c_ulong(flags),
    data.encode() or None,
  )
  if result < 0:
    raise OSError(ctypes.get_errno(), f'mount {source} on {target}')


def bind(source: str, target: str, flags: int) -> None:
  """Shows a file or folder at another place, with more flags (MS_RDONLY)."""
  mount(source, target, None, MS_BIND | MS_REC)
  if flags:
    mount('none', target, None, MS_BIND | MS_REMOUNT | flags)


def pivot(new_root: str) -> None:
  """Makes a mounted folder the root, and lets the old one go."""
  os.chdir(new_root)
  call(_PIVOT_ROOT[MACHINE], b'.', b'.')
  if _libc.umount2(b'.', MNT_DETACH) < 0:
    raise OSError(ctypes.get_errno(), 'umount of the old root')
  os.chdir('/')


def prctl(option: int, value: int = 0, pointer=None) -> None:
  """Sets an attribute of this process, as prctl(2)."""
  last = ctypes.c_ulong(0) if pointer is None else pointer
  zero = ctypes.c_ulong(0)
  if _libc.prctl(option, ctypes.c_ulong(value), last, zero, zero) < 0:
    raise OSError(ctypes.get_errno(), f'prctl({option})')


def bound() -> None:
  """Keeps what this process executes from any capability."""
  for capability in range(_LAST_CAPABILITY + 1):
    try:
      prctl(PR_CAPBSET_DROP, capability)
    except OSError:  # beyond the last one, or not ours to drop
      return


def drop_privileges(uid: int | None) -> None:
  """Becomes a user without any capability, and nothing executed regains one.

  Args:
    uid: user and group to become, None to stay who we are.
  """
  if uid is not None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
  prctl(PR_SET_NO_NEW_PRIVS, 1)
  if is_known():  # a fork keeps what only exec would drop
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call(_CAPSET[MACHINE], header, (ctypes.c_uint32 * 6)())


def close_from(first: int) -> None:
  """Closes all file descriptors from `first` on."""
  try:
    call(_CLOSE_RANGE, first, 0x7FFFFFFF, 0)
  except OSError:  # before Linux 5.9
    os.closerange(first, os.sysconf('SC_OPEN_MAX'))


def children(pid: int) -> list[int]:
  """Children of a process; none where /proc is missing or it is gone."""
  found = []
  try:
    for thread in os.listdir(f'/proc/{pid}/task'):
      at = pathlib.Path(f'/proc/{pid}/task/{thread}/children')
      found += map(int, at.read_text().split())
  except OSError:  # it ended meanwhile
    pass
  return found


def descendants(pid: int) -> list[int]:
  """All children of children of a process."""
  found, new = [], children(pid)
  while new:
    found += new
    new = [child for each in new for child in children(each)]
  return found


def anonymous_bytes(pids: list[int]) -> int:
  """Memory of processes that no file backs."""
  pages = 0
  for pid in pids:
    try:
      fields = pathlib.Path(f'/proc/{pid}/statm').read_text().split()
    except OSError:
      continue
    pages += max(int(fields[1]) - int(fields[2]), 0)
  return pages * os.sysconf('SC_PAGE_SIZE')
