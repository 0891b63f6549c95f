"""A world that waits is used once, replaced if it died, and changes nothing."""

import os
import signal
import time

import pytest

from agentrl_jax.envs import sandbox
from agentrl_jax.envs.sandbox import bwrap, client, jail, kernel, watch, zygote

WHY = sandbox.trial('bwrap')
needs_bwrap = pytest.mark.skipif(bool(WHY), reason=WHY)


def waiting():
  """Processes of worlds that wait, once all do."""
  server = client.server('bwrap')._process.pid
  until = time.monotonic() + 20.0
  while time.monotonic() < until:
    shells = [p for p in kernel.descendants(server) if is_shell(p)]
    if len(shells) == zygote._SPARES:
      return shells
    time.sleep(0.02)
  raise AssertionError('no world came up')


def is_shell(pid):
  try:
    with open(f'/proc/{pid}/cmdline') as file:
      return file.read() == '/bin/sh\0-s\0zygote\0'
  except OSError:
    return False


@needs_bwrap
def test_worlds_that_died_waiting_are_replaced():
  sandbox.run('true', backend='bwrap')
  server = client.server('bwrap')
  killed = waiting()
  for pid in killed:
    os.kill(pid, signal.SIGKILL)
  until = time.monotonic() + 20.0
  while any(map(is_shell, killed)) and time.monotonic() < until:
    time.sleep(0.01)
  for _ in range(zygote._SPARES + 1):
    assert sandbox.run('echo up', backend='bwrap').output == 'up\n'
  assert client.server('bwrap') is server


@needs_bwrap
def test_a_world_is_used_once():
  mark = 'echo x > /tmp/mark; echo x > /task/mark; ls /tmp /task'
  runs = [sandbox.run(mark, backend='bwrap').output for _ in range(4)]
  assert runs == ['/task:\nmark\n\n/tmp:\nmark\n'] * 4


@needs_bwrap
def test_words_reach_the_command_as_they_are():
  words = ["it's", 'a\nb', '$HOME', '`id`', '\\', '', '"', '\udcff', '</x']
  source = 'import os, sys; print([os.fsencode(a) for a in sys.argv[1:]])'
  command = ['/usr/bin/env', 'python3', '-c', source, *words]
  output = sandbox.run(command, backend='bwrap').output
  assert output == f'{[os.fsencode(word) for word in words]}\n'
  long = 'x' * 100_000  # more than a pipe holds
  assert sandbox.run(['/bin/echo', long], backend='bwrap').reason == 'output'


@needs_bwrap
def test_the_shell_adds_nothing_to_the_environment():
  lines = sandbox.run(['/usr/bin/env'], backend='bwrap').output.splitlines()
  found = dict(line.split('=', 1) for line in lines)
  for name in ('SHLVL', '_', 'OLDPWD'):  # of a bash that is called sh
    found.pop(name, None)
  assert found == jail.environment()


def test_the_limits_of_another_process():
  pid = os.fork()
  if not pid:
    time.sleep(60)
    os._exit(0)
  try:
    request = {**sandbox.Limits(open_files=17).request()}
    watch.limit(request, 12345, pid)
    with open(f'/proc/{pid}/limits') as file:
      rows = {line[:26].strip(): line[26:].split() for line in file}
    assert rows['Max open files'][:2] == ['17', '17']
    assert rows['Max processes'][:2] == ['32', '32']
    assert rows['Max address space'][0] == str(256 << 20)
    with open('/proc/self/limits') as file:  # and none of ours
      assert 'Max open files            17 ' not in file.read()
  finally:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_world_that_does_not_come_up_says_why(tmp_path):
  for name in ('task', 'tmp'):
    (tmp_path / name).mkdir()
  program = tmp_path / 'program'
  program.write_text('#!/bin/sh\necho no namespaces here >&2\nexit 1\n')
  program.chmod(0o755)
  programs = {'bwrap': str(program), 'setpriv': '/usr/bin/setpriv'}
  uid = 1 << 20 if os.geteuid() == 0 else None
  with pytest.raises(OSError, match='bwrap: no namespaces here'):
    bwrap.start(programs, str(tmp_path), uid)
