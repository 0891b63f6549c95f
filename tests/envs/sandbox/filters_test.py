"""The seccomp program says what its table says, by a simulator of BPF."""

import struct

import pytest

from agentrl_jax.envs.sandbox import filters, kernel

ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x50001, 0x50026, 0x80000000


def verdict(monkeypatch, machine, number, argument=0, arch=None):
  """Runs the program on struct seccomp_data."""
  monkeypatch.setattr(kernel, 'MACHINE', machine)
  code = filters.program.__wrapped__()
  arch = filters._ARCH[machine] if arch is None else arch
  words = {0: number, 4: arch, 16: argument}
  at = value = 0
  while True:
    operation, yes, no, k = struct.unpack_from('<HBBI', code, 8 * at)
    at += 1
    if operation == 0x20:
      value = words[k]
    elif operation == 0x06:
      return k
    else:
      test = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}
      at += yes if test[operation] else no


@pytest.mark.parametrize('machine', filters._ARCH)
def test_verdicts(monkeypatch, machine):
  column = list(filters._ARCH).index(machine)
  ask = lambda *given, **named: verdict(monkeypatch, machine, *given, **named)  # noqa: E731
  for numbers in filters._REFUSED.values():
    assert ask(numbers[column]) == EPERM
  socket, clone = filters._SOCKET[machine], filters._CLONE[machine]
  assert [ask(socket, family) for family in (1, 2, 10, 16, 17)] == [
    ALLOW, EPERM, EPERM, EPERM, EPERM,
  ]  # fmt: skip
  assert ask(clone, 0x11) == ALLOW  # SIGCHLD: a fork
  assert ask(clone, 0x003D0F00) == ALLOW  # a thread
  for flag in (0x20000, 0x10000000, 0x20000000, 0x40000000):
    assert ask(clone, flag | 0x11) == EPERM
  assert ask(435) == ENOSYS  # clone3
  assert ask(0x40000000 + 1) == EPERM  # x32
  assert ask(1, arch=0x40000003) == KILL  # 32 bit: other numbers
  write = {'x86_64': 1, 'aarch64': 64}[machine]
  assert ask(write) == ALLOW
