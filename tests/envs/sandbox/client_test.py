"""A command is a function of text; a dead server is an error, then another."""

import contextlib
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import threading
import time

import pytest

from agentrl_jax.envs import sandbox
from agentrl_jax.envs.sandbox import client, zygote

BACKENDS = [name for name in sandbox.BACKENDS if not sandbox.trial(name)]


@pytest.fixture(params=BACKENDS)
def backend(request):
  return request.param


def test_files_go_in_and_come_back(backend):
  result = sandbox.run(
    'cat a.txt; mkdir -p d/e; echo new > d/e/f; rm b; echo "é" >> a.txt',
    files={'a.txt': 'hé\n', 'b': '', 'c/x y.md': '1'},
    backend=backend,
  )
  assert result.ok
  assert result.output == 'hé\n'
  assert result.files == {'a.txt': 'hé\né\n', 'c/x y.md': '1', 'd/e/f': 'new\n'}


def test_bytes_that_are_no_text_survive(backend):
  result = sandbox.run("printf '\\377\\0x' > a", backend=backend)
  again = sandbox.run('od -An -tx1 a', files=result.files, backend=backend)
  assert again.output.split() == ['ff', '00', '78']


def test_the_exit_status_and_the_signal_are_told(backend):
  assert sandbox.run('exit 7', backend=backend).text() == '[exit 7]'
  result = sandbox.run('echo a; kill -9 $$', backend=backend)
  # bwrap tells a signal as 128 and its number.
  assert result.text() in ('a\n[signal 9]', 'a\n[exit 137]')
  late = sandbox.run(
    'sleep 9', limits=sandbox.Limits(wall_s=0.2), backend=backend
  )
  assert late.text() == '[ended: it took longer than 0.2 s]'
  assert not late.ok


def test_the_same_command_says_the_same(backend):
  command = 'ls -l --time-style=full-iso; pwd; umask; env | grep -v TMPDIR;'
  command += 'python3 -c "print(list({*\'abcdef\'}))"'
  runs = {
    sandbox.run(command, files={'a': 'x'}, backend=backend).output
    for _ in range(2)
  }
  if backend == 'plain':  # its user has another number each time
    runs = {text.partition('/task')[2] for text in runs}
  else:
    assert all('agent agent 1 2020-01-01 00:00:00' in text for text in runs)
  assert len(runs) == 1


def test_python_runs_as_a_program(backend):
  source = 'import sys, os\nprint(__name__, sys.argv, os.getcwd())\nsys.exit(3)'
  result = sandbox.run_python(source, backend=backend)
  where = result.output.split()[-1]
  assert (result.output.split()[:2], result.status) == (
    ['__main__', "['-c']"],
    3,
  )
  assert where == '/task'
  wrong = sandbox.run_python('1/0', backend=backend)
  assert wrong.status == 1
  assert 'ZeroDivisionError' in wrong.output


def test_threads_call_at_once(backend):
  found = {}

  def call(number):
    found[number] = sandbox.run(f'sleep 0.1; echo {number}', backend=backend)

  threads = [threading.Thread(target=call, args=(n,)) for n in range(6)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert {n: r.output for n, r in found.items()} == {
    n: f'{n}\n' for n in range(6)
  }


def test_a_dead_server_is_an_error_and_another_takes_over(backend):
  server = client.server(backend)
  os.kill(server._process.pid, signal.SIGKILL)
  server._process.wait()
  assert not server.is_alive
  assert sandbox.run('echo up', backend=backend).output == 'up\n'
  assert client.server(backend) is not server


def test_a_server_without_an_answer_is_replaced(backend, monkeypatch):
  server = client.server(backend)
  monkeypatch.setattr(client, '_PATIENCE_S', -9.5)
  with pytest.raises(sandbox.SandboxError, match='no answer'):
    sandbox.run('sleep 5', backend=backend)
  monkeypatch.undo()
  assert sandbox.run('echo up', backend=backend).output == 'up\n'
  assert client.server(backend) is not server


def children(pid):
  path = pathlib.Path(f'/proc/{pid}/task/{pid}/children')
  return path.read_text().split()


def test_supervisors_that_die_waiting_are_replaced(backend):
  sandbox.run('true', backend=backend)
  server = client.server(backend)
  wait_until(lambda: len(children(server._process.pid)) == zygote._SPARES)
  killed = children(server._process.pid)
  for pid in killed:
    os.kill(int(pid), signal.SIGKILL)
  wait_until(
    lambda: len(set(children(server._process.pid)) - set(killed)) == 2,
    seconds=5.0,
  )
  assert sandbox.run('echo up', backend=backend).output == 'up\n'
  assert client.server(backend) is server


def test_close_leaves_nothing(backend):
  sandbox.run('true', backend=backend)
  server = client.server(backend)
  base = pathlib.Path(server._base)
  assert base.is_dir()
  sandbox.close()
  assert not server.is_alive
  assert not base.exists()


def running(line):
  """Processes of this machine with that command line."""
  found = []
  for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
    with contextlib.suppress(OSError):
      if path.read_text().replace('\0', ' ').strip() == line:
        found.append(path)
  return found


def wait_until(condition, seconds=20.0):
  until = time.monotonic() + seconds
  while not condition() and time.monotonic() < until:
    time.sleep(0.02)
  assert condition()


def test_a_killed_run_leaves_no_server_and_no_command(backend):
  line = f'sleep 7{os.getpid()}'
  program = (
    'import threading, time\n'
    'from agentrl_jax.envs import sandbox\n'
    'from agentrl_jax.envs.sandbox import client\n'
    f'server = client.server({backend!r})\n'
    f'call = lambda: sandbox.run({line!r}, backend={backend!r})\n'
    'threading.Thread(target=call, daemon=True).start()\n'
    'print(server._process.pid, server._base, flush=True)\n'
    'time.sleep(99)\n'
  )
  with subprocess.Popen(
    [sys.executable, '-c', program], stdout=subprocess.PIPE
  ) as run:
    pid, base = run.stdout.readline().decode().split()
    wait_until(lambda: running(line))
    run.kill()
  left = [pathlib.Path(base), pathlib.Path('/proc', pid, 'exe')]
  wait_until(lambda: not running(line))
  wait_until(lambda: not any(map(os.path.lexists, left)))


def test_the_plain_backend_is_never_chosen_silently(monkeypatch):
  monkeypatch.setattr(client, '_choice', [])
  monkeypatch.setattr(
    client, 'trial', lambda name: '' if name == 'plain' else f'no {name}'
  )
  with pytest.warns(sandbox.ContainmentWarning, match='WITHOUT NAMESPACES'):
    choice = sandbox.choose()
  assert choice == sandbox.Choice(
    'plain', {'bwrap': 'no bwrap', 'namespaces': 'no namespaces'}
  )
  assert not choice.is_contained


def test_the_best_backend_is_chosen(monkeypatch):
  monkeypatch.setattr(client, '_choice', [])
  monkeypatch.setattr(client, 'trial', lambda name: '')
  assert sandbox.choose() == sandbox.Choice('bwrap', {})
  assert sandbox.choose().is_contained


def test_without_any_backend_nothing_runs(monkeypatch):
  monkeypatch.setattr(client, '_choice', [])
  monkeypatch.setattr(client, 'trial', lambda name: 'broken')
  with pytest.raises(sandbox.SandboxError, match='broken'):
    sandbox.run('true')


def test_an_unknown_backend_is_an_error():
  with pytest.raises(ValueError, match='docker.*bwrap, namespaces, plain'):
    sandbox.run('true', backend='docker')
  assert 'known: bwrap' in sandbox.trial('docker')


def test_what_is_no_command_is_the_commands_fault(backend):
  """And never another command, as a shell makes of it that drops a null."""
  kept = {'a.txt': 'x'}
  for words in ([], ['/bin/echo', 'a\0b'], 'echo a\0b'):
    result = sandbox.run(words, backend=backend, files=kept)
    assert (result.status, result.files) == (126, kept)
  assert sandbox.run_python('print(1)\0', backend=backend).status == 126


def test_a_program_that_is_not_there_is_the_commands_fault(backend):
  result = sandbox.run(['/usr/bin/no_such_program'], backend=backend)
  assert result.status != 0


@pytest.mark.slow
def test_a_call_costs_little_beside_the_command(backend):
  """Medians on an idle machine; `tools/sandbox_cost.py` records them."""

  def median(call):
    call()
    times = []
    for _ in range(40):
      start = time.perf_counter()
      call()
      times.append(time.perf_counter() - start)
    return statistics.median(times)

  alone = median(lambda: subprocess.run(['/bin/true'], check=True))
  inside = median(lambda: sandbox.run(['/bin/true'], backend=backend))
  assert inside - alone < 0.015
