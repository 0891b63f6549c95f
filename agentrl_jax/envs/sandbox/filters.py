"""What may a command ask of the kernel? A seccomp filter, and Landlock rules.

Both only ever take away, work without privileges, and are inherited by whatever
the command starts. Seccomp is used by every backend; Landlock (Linux 5.13) is
what confines the one without namespaces.
"""

import ctypes
import functools
import os
import struct

from agentrl_jax.envs.sandbox import kernel

PR_SET_SECCOMP = 22
_ARCH = {'x86_64': 0xC000003E, 'aarch64': 0xC00000B7}
_EPERM, _ENOSYS = 1, 38
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
# Opcodes of classic BPF: load word, jump if equal, if >=, if a bit is set.
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH_AT, _ARG0 = 0, 4, 16  # offsets in struct seccomp_data
_AF_UNIX = 1
_NAMESPACES = 0x7E020000  # all CLONE_NEW* but NEWTIME, which clone has not

# Refused with EPERM: (x86-64, arm64).
_REFUSED = {
  'ptrace': (101, 117),
  'process_vm_readv': (310, 270),
  'process_vm_writev': (311, 271),
  'kcmp': (312, 272),
  'unshare': (272, 97),
  'setns': (308, 268),
  'mount': (165, 40),
  'umount2': (166, 39),
  'pivot_root': (155, 41),
  'chroot': (161, 51),
  'open_by_handle_at': (304, 265),
  'keyctl': (250, 219),
  'add_key': (248, 217),
  'request_key': (249, 218),
  'bpf': (321, 280),
  'perf_event_open': (298, 241),
  'userfaultfd': (323, 282),
  'io_uring_setup': (425, 425),
  'open_tree': (428, 428),
  'move_mount': (429, 429),
  'fsopen': (430, 430),
  'init_module': (175, 105),
  'finit_module': (313, 273),
  'delete_module': (176, 106),
  'kexec_load': (246, 104),
  'reboot': (169, 142),
  'swapon': (167, 224),
  'syslog': (103, 116),
  'acct': (163, 89),
  'settimeofday': (164, 170),
  'clock_settime': (227, 112),
}
_SOCKET = {'x86_64': 41, 'aarch64': 198}
_CLONE = {'x86_64': 56, 'aarch64': 220}
_CLONE3 = 435

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_READ = 0b1101  # execute, read file, read folder
_OF_FILES = 0xC007  # execute, write, read, truncate, ioctl
_ALL = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}  # later: with ioctl
_IOCTL = 0x8000
_NET, _SCOPE = 0b11, 0b11  # bind, connect TCP; abstract sockets, signals


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
  return struct.pack('<HBBI', code, yes, no, value)


@functools.cache
def program() -> bytes:
  """Writes the filter as BPF: EPERM for what a command has no business with.

  Sockets are Unix sockets only, new processes stay in their namespaces, and
  clone3, whose flags no filter can read, does not exist (libc uses clone).
  """
  machine = kernel.MACHINE
  column = list(_ARCH).index(machine)
  refuse = _step(_RET, _ERRNO | _EPERM)
  steps = [
    _step(_LD, _ARCH_AT),
    _step(_JEQ, _ARCH[machine], 1),
    _step(_RET, _KILL),
    _step(_LD, _NR),
    _step(_JGE, 0x40000000, 0, 1),  # the x32 calls
    refuse,
    _step(_JEQ, _CLONE3, 0, 1),
    _step(_RET, _ERRNO | _ENOSYS),
  ]
  for numbers in _REFUSED.values():
    steps += [_step(_JEQ, numbers[column], 0, 1), refuse]
  steps += [
    _step(_JEQ, _SOCKET[machine], 0, 4),
    _step(_LD, _ARG0),
    _step(_JEQ, _AF_UNIX, 1),
    refuse,
    _step(_RET, _ALLOW),
    _step(_JEQ, _CLONE[machine], 0, 3),
    _step(_LD, _ARG0),
    _step(_JSET, _NAMESPACES, 0, 1),
    refuse,
    _step(_RET, _ALLOW),
  ]
  return b''.join(steps)


def install() -> None:
  """Puts the filter on this process; needs no_new_privs.

  Raises:
    OSError: the kernel has no seccomp.
  """
  code = program()
  buffer = ctypes.create_string_buffer(code, len(code))
  given = struct.pack('HxxxxxxP', len(code) // 8, ctypes.addressof(buffer))
  pointer = ctypes.create_string_buffer(given, len(given))
  kernel.prctl(PR_SET_SECCOMP, 2, ctypes.byref(pointer))


def landlock_version() -> int:
  """Version of Landlock in this kernel, 0 for none."""
  try:
    return kernel.call(_LANDLOCK_CREATE, None, 0, 1)
  except OSError:
    return 0


def confine(readable: list[str], writable: list[str]) -> int:
  """Lets this process see these files and folders and no others.

  Args:
    readable: may be read and executed.
    writable: may be read, written, and filled.

  Returns:
    The version of Landlock: 4 refuses TCP as well, 6 signals to processes
    outside. 0: there is none, and nothing is confined.
  """
  version = landlock_version()
  if not version:
    return 0
  handled = _ALL.get(version, _ALL[4] | _IOCTL)
  attributes = struct.pack(
    '<QQQ', handled, _NET if version >= 4 else 0, _SCOPE if version >= 6 else 0
  )[: 24 if version >= 6 else 16 if version >= 4 else 8]
  ruleset = kernel.call(_LANDLOCK_CREATE, attributes, len(attributes), 0)
  for paths, rights in ((readable, _READ), (writable, handled)):
    for path in paths:
      if not os.path.exists(path):
        continue
      allowed = rights if os.path.isdir(path) else rights & _OF_FILES
      place = os.open(path, os.O_PATH)
      rule = struct.pack('<Qi', allowed & handled, place)
      kernel.call(_LANDLOCK_ADD, ruleset, 1, rule, 0)
      os.close(place)
  kernel.call(_LANDLOCK_RESTRICT, ruleset, 0)
  os.close(ruleset)
  return version
