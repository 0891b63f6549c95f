"""Hostile commands, on each backend that this machine has. None succeeds.

Each case is given limits before it runs, is checked from outside by what it was
after, and is followed by an honest command: the run goes on.
"""

import contextlib
import os
import pathlib
import socket
import time

import pytest

from agentrl_jax.envs import sandbox
from agentrl_jax.envs.sandbox import client, filters, kernel, zygote

LIMITS = sandbox.Limits(
  wall_s=4.0, cpu_s=2, memory_mb=200, processes=16, file_kb=256, tree_kb=1024
)
BACKENDS = [name for name in sandbox.BACKENDS if not sandbox.trial(name)]


@pytest.fixture(params=sandbox.BACKENDS)
def backend(request):
  if request.param not in BACKENDS:
    pytest.skip(f'{request.param}: {sandbox.trial(request.param)}')
  if request.param == 'plain' and filters.landlock_version() < 6:
    pytest.skip('some would succeed, on whoever runs the tests')
  return request.param


@pytest.fixture
def shell(backend):
  """f(command) runs it, and proves that the next command runs as ever."""

  def run(command, **changes):
    limits = sandbox.Limits(**{**vars(LIMITS), **changes})
    result = sandbox.run(command, limits=limits, backend=backend)
    assert_all_is_well(backend)
    return result

  return run


@pytest.fixture
def python(backend):
  """The same for a Python program."""

  def run(source, **changes):
    limits = sandbox.Limits(**{**vars(LIMITS), **changes})
    result = sandbox.run_python(source, limits=limits, backend=backend)
    assert_all_is_well(backend)
    return result

  return run


@pytest.fixture
def public():
  """A folder of the host that everybody may read and write."""
  folder = pathlib.Path('/var/tmp', f'agentrl_attack_{os.getpid()}')
  folder.mkdir(mode=0o777, exist_ok=True)
  folder.chmod(0o777)
  (folder / 'secret').write_text('the host secret')
  (folder / 'secret').chmod(0o666)
  yield folder
  for file in folder.iterdir():
    file.unlink()
  folder.rmdir()


def left_over(backend):
  """Processes of commands that still run, wherever they hang by now."""
  server = client.server(backend)._process.pid
  first = zygote.first_user(server)
  below = kernel.descendants(server)
  found = []
  for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):
    with contextlib.suppress(OSError):
      at = pathlib.Path(f'/proc/{pid}')
      if pid in below or first <= at.stat().st_uid < first + zygote.USERS:
        line = (at / 'cmdline').read_text()
        if 'zygote' not in line:  # spare supervisors are forks of the server
          found.append(line.split('\0')[:3])
  return found


def assert_all_is_well(backend):
  result = sandbox.run('echo fine; ls', files={'a': ''}, backend=backend)
  assert (result.output, result.status) == ('fine\na\n', 0)
  until = time.monotonic() + 10.0
  while (left := left_over(backend)) and time.monotonic() < until:
    time.sleep(0.02)
  assert not left


def test_fork_bomb(shell):
  start = time.monotonic()
  shell(':(){ :|:& };: ; sleep 60', wall_s=1.0)
  assert time.monotonic() - start < 30.0


def test_fork_bomb_of_orphans(python):
  program = """
import os
os.fork()
while True:
  try:
    if os.fork(): os.setsid()
  except OSError:
    pass
"""
  python(program, wall_s=1.0)


def test_processes_are_counted(python):
  result = python("""
import os, time
made = 0
try:
  for _ in range(100):
    if not os.fork():
      time.sleep(9)
      os._exit(0)
    made += 1
except OSError:
  pass
print(made)
""")
  assert 4 <= int(result.output) <= LIMITS.processes


def test_programs_are_shown_read_only(shell, backend):
  if backend == 'plain':
    pytest.skip('sees the mounts of the host')
  result = shell('cut -d" " -f2,4 /proc/mounts')
  shown = [line.split() for line in result.output.splitlines()]
  programs = [
    flags.split(',')
    for at, flags in shown
    if at.startswith(('/usr', '/etc/', '/root', '/opt', '/home'))
  ]
  assert programs
  assert all('ro' in flags and 'nosuid' in flags for flags in programs)


def test_memory_bomb(python):
  result = python('x = []\nwhile True: x.append(bytearray(10**7))')
  assert 'MemoryError' in result.output or result.reason == 'memory'


def test_memory_bomb_by_many_processes(python):
  program = """
import os, time
for _ in range(8):
  if not os.fork():
    x = bytearray(60 * 2**20)
    time.sleep(60)
time.sleep(60)
"""
  assert python(program).reason == 'memory'


def test_endless_output(shell):
  result = shell('yes')
  assert result.reason == 'output'
  assert len(result.output) <= 20 * LIMITS.output_chars
  assert len(result.text()) < LIMITS.output_chars + 200


def test_endless_loop(shell):
  result = shell('while :; do :; done', cpu_s=1)
  assert result.reason in ('cpu', 'wall')


def test_signals_are_ignored_in_vain(shell):
  start = time.monotonic()
  result = shell(
    "trap '' TERM INT HUP XCPU PIPE USR1; while :; do sleep 9; done", wall_s=0.5
  )
  assert result.reason == 'wall'
  assert time.monotonic() - start < 20.0


def test_writing_outside(shell, public):
  shell(
    f'echo x > {public}/new; echo x >> {public}/secret; rm -rf {public}/secret;'
    'for f in /usr/bin /etc /root /var/tmp /dev/shm /home; do '
    'echo x > $f/agentrl_was_here; done'
  )
  assert [f.name for f in public.iterdir()] == ['secret']
  assert (public / 'secret').read_text() == 'the host secret'
  assert not pathlib.Path('/usr/bin/agentrl_was_here').exists()
  assert not pathlib.Path('/dev/shm/agentrl_was_here').exists()
  assert not pathlib.Path('/var/tmp/agentrl_was_here').exists()


def test_reading_host_files(shell, public):
  result = shell(
    f'cat {public}/secret; cat {__file__} /etc/shadow /etc/hostname; '
    f'ls {public} {pathlib.Path(__file__).parent}; cat /proc/mounts'
  )
  assert 'the host secret' not in result.output
  assert 'attacks_test' not in result.output.replace(__file__, '')
  assert 'root:' not in result.output


def test_reading_the_environment(shell, monkeypatch):
  monkeypatch.setenv('AGENTRL_KEY', 'sesame')
  result = shell(
    f'env; cat /proc/*/environ /proc/{os.getpid()}/environ | tr "\\0" "\\n"'
  )
  assert 'HOME=/task' in result.output
  assert 'sesame' not in result.output
  assert 'AGENTRL_KEY' not in result.output


def test_network(python):
  with socket.create_server(('127.0.0.1', 0)) as server:
    server.settimeout(0.2)
    port = server.getsockname()[1]
    result = python(f"""
import socket
for family, kind, at in (
  (socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', {port})),
  (socket.AF_INET, socket.SOCK_DGRAM, ('8.8.8.8', 53)),
  (socket.AF_INET6, socket.SOCK_STREAM, ('::1', {port})),
  (socket.AF_PACKET, socket.SOCK_RAW, None),
  (socket.AF_NETLINK, socket.SOCK_RAW, None),
):
  try:
    s = socket.socket(family, kind)
    s.connect(at) if at else None
    print('through')
  except OSError as e:
    print('refused')
""")
    assert result.output == 'refused\n' * 5
    with pytest.raises(TimeoutError):
      server.accept()


def test_abstract_sockets_of_the_host(python):
  name = f'agentrl_{os.getpid()}'
  with socket.socket(socket.AF_UNIX) as server:
    server.bind('\0' + name)
    server.listen()
    result = python(f"""
import socket
try:
  socket.socket(socket.AF_UNIX).connect('\\0{name}')
  print('through')
except OSError:
  print('refused')
""")
  assert result.output == 'refused\n'


def test_killing_the_parent_and_everybody(shell, backend):
  server = client.server(backend)._process.pid
  shell(
    f'kill -9 {os.getpid()}; kill -9 {server}; kill -STOP {server}; kill -9 1;'
    'kill -9 $PPID; kill -9 -1; kill -9 0'
  )
  assert client.server(backend)._process.pid == server
  state = pathlib.Path(f'/proc/{server}/stat').read_text().split()[2]
  assert state in 'SR'


def test_links_out(shell, public):
  result = shell(
    f'ln -s {public}/secret a; ln -s / b; ln -s ../../.. c; mkdir d;'
    f'ln -s {public} d/e; ln {public}/secret f; ln /etc/hostname g; echo 1 > h'
  )
  assert result.files == {'h': '1\n'}
  assert any('a link' in why for why in result.dropped)


def test_names_that_lead_out_come_neither_in_nor_back(backend):
  for path in ('../x', '/etc/x', 'a/../../x', '', 'a//b', 'a\n', '-rf'):
    with pytest.raises(
      (ValueError, sandbox.SandboxError), match='inside|path|-'
    ):
      sandbox.run('true', files={path: 'x'}, backend=backend)
  result = sandbox.run(
    "touch $'a\\nb' $'\\033[2Jc' -- -rf 'd e'", backend=backend
  )
  assert set(result.files) == {'d e'}
  assert not any('\x1b' in why for why in result.dropped)


def test_zip_slip(python, public):
  """An extractor that believes the names in an archive."""
  python(f"""
import os
for name in ('../slip', '../../slip', '../../../../../..{public}/slip'):
  try:
    os.makedirs(os.path.dirname(name), exist_ok=True)
    open(name, 'w').write('x')
  except OSError:
    pass
""")
  assert [f.name for f in public.iterdir()] == ['secret']


def test_huge_file(shell):
  result = shell('head -c 100000000 /dev/zero > big; stat -c %s big')
  assert int(result.output.split()[-1]) <= LIMITS.file_kb << 10


def test_many_files(shell):
  result = shell(
    'for i in $(seq 100); do head -c 200000 /dev/zero > f$i; done; '
    'for i in $(seq 9000); do : > g$i; done; sleep 1'
  )
  assert result.reason == 'files' or 'No space left' in result.output
  assert sum(map(len, result.files.values())) <= LIMITS.tree_kb << 10
  assert len(result.files) <= LIMITS.tree_files


def test_sparse_and_deep_trees(python):
  result = python("""
import os
for i in range(3000):
  try:
    os.mkdir('d'); os.chdir('d')
  except OSError:
    break
open('deep', 'w').close()
""")
  assert result.files == {}


def test_pipes_and_devices_do_not_hang_the_reader(shell):
  result = shell('mkfifo p; mknod n b 8 0; mknod c c 1 5; : > plain')
  assert result.files == {'plain': ''}


def test_zombies_and_grandchildren(shell):
  start = time.monotonic()
  result = shell(
    'for i in 1 2 3; do (setsid nohup sleep 777 >/dev/null 2>&1 &) ; done;'
    'sleep 777 & disown; python3 -c "import os; os.fork() or os._exit(0)";'
    'echo done'
  )
  assert 'done' in result.output
  assert time.monotonic() - start < 20.0


def test_a_daemon_that_keeps_the_output_open(shell):
  result = shell('(setsid sh -c "sleep 1; yes" &); echo left', wall_s=60)
  assert result.output == 'left\n'


def test_ptrace(python, backend):
  server = client.server(backend)._process.pid
  result = python(f"""
import ctypes, os
libc = ctypes.CDLL(None)
for pid in (os.getppid(), 1, {os.getpid()}, {server}):
  print(libc.ptrace(16, pid, 0, 0))
""")
  assert result.output == '-1\n' * 4


def test_proc(shell, public):
  """Ways to the host's files, memory and settings through /proc."""
  result = shell(
    f'for p in 1 $PPID {os.getpid()}; do '
    f'cat /proc/$p/root{public}/secret /proc/$p/cwd/setup.py; '
    f'cat /proc/{os.getpid()}/fd/0;'
    'head -c 9 /proc/$p/mem; done 2>/dev/null;'
    f'ls -d /proc/{os.getpid()}/cwd/* 2>/dev/null;'
    '(echo c > /proc/sysrq-trigger; echo x > /proc/sys/kernel/hostname;'
    'echo -1000 > /proc/self/oom_score_adj) 2>/dev/null; echo end'
  )
  assert result.output == 'end\n'
  assert socket.gethostname() != 'x'


def test_namespaces_and_mounts_of_its_own(shell):
  result = shell(
    'unshare -Ur true && echo through; unshare -m true && echo through;'
    'mount -t tmpfs x /tmp && echo through; chroot / true && echo through;'
    'nsenter -t 1 -a true && echo through; umount /proc && echo through; echo'
  )
  assert 'through' not in result.output


def test_setuid_programs(shell):
  result = shell('for s in su sudo passwd; do $s -c id </dev/null; done; id -u')
  assert 'uid=0' not in result.output
  assert result.output.split()[-1] != '0'


def test_capabilities_and_users(python):
  result = python("""
import os, resource
for f in (
  lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]),
  lambda: os.nice(-5), lambda: os.chown('/task', 0, 0),
  lambda: resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40)),
  lambda: resource.setrlimit(resource.RLIMIT_NPROC, (10**6, 10**6)),
):
  try:
    f()
    print('through')
  except (OSError, ValueError):
    print('refused')
""")
  assert result.output == 'refused\n' * 7


def test_no_open_files_are_inherited(python):
  result = python("""
import os
found = []
for fd in range(64):
  try:
    os.fstat(fd)
    found.append(fd)
  except OSError:
    pass
print(found)
""")
  assert result.output == '[0, 1, 2]\n'


def test_terminal_sequences(shell):
  result = shell(
    r"printf '\033]0;title\007\033[2J\033[31mred\033[0m \x07\x08 \xff\r\n'"
  )
  assert result.text() == 'red \\x07\\x08 \ufffd'


def test_the_terminal_of_the_run(python):
  result = python("""
import ctypes, os
libc = ctypes.CDLL(None)
for at in ('/dev/tty', '/dev/console', '/dev/pts/0'):
  try:
    fd = os.open(at, os.O_RDWR)
    print('refused' if libc.ioctl(fd, 0x5412, b'x') else 'through')  # TIOCSTI
  except OSError:
    print('refused')
""")
  assert result.output == 'refused\n' * 3


def test_commands_do_not_meet(shell):
  shell('echo mine > /tmp/mark; echo mine > mark; (sleep 9 &)')
  result = shell('ls -A /tmp . ; ls $TMPDIR')
  assert 'mark' not in result.output
