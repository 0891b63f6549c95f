"""tools/run makes its own environment, whatever the first call met."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]

# A python whose venv and pip take no time: it makes bin/python a script that
# logs installs and says which arguments it got.
FAKE = """#!/bin/sh
case "$*" in
  '-m venv '*)
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  '-m pip install'*)
    echo "$*" >>"$LOG"; sleep ${SLOW-0} ;;
  '-c import fcntl'*) exec REAL "$@" ;;
  '-c import ensurepip'*) ;;
  *) echo "ran: $*" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path):
  (tmp_path / 'tools').mkdir()
  shutil.copy(ROOT / 'tools' / 'run', tmp_path / 'tools' / 'run')
  (tmp_path / 'setup.py').write_text('one')
  fake = tmp_path / 'fake'
  fake.write_text(FAKE.replace('REAL', sys.executable))
  fake.chmod(0o755)
  return tmp_path


def start(checkout, *arguments, **env):
  return subprocess.Popen(
    [str(checkout / 'tools' / 'run'), *arguments],
    env={
      **os.environ,
      'AGENTRL_EXTRAS': '',
      'AGENTRL_PYTHON': str(checkout / 'fake'),
      'LOG': str(checkout / 'log'),
      **env,
    },
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    cwd=checkout,
    start_new_session=True,
  )


def call(checkout, *arguments, **env):
  process = start(checkout, *arguments, **env)
  out, err = process.communicate(timeout=60)
  return process.returncode, out, err


def installs(checkout):
  log = checkout / 'log'
  return log.read_text().splitlines() if log.exists() else []


def test_the_first_call_installs_and_the_second_does_not(checkout):
  assert call(checkout, 'a.py', '--x=1 2')[:2] == (0, 'ran: a.py --x=1 2\n')
  assert call(checkout, 'b.py') == (0, 'ran: b.py\n', '')
  assert len(installs(checkout)) == 1


def test_pytest_gets_the_test_extra_and_covers_plain_calls(checkout):
  call(checkout, '-m', 'pytest')
  call(checkout, 'a.py')
  (line,) = installs(checkout)
  assert line.endswith(f'--editable {checkout}[test]')


def test_other_extras_are_asked_for_by_name(checkout):
  call(checkout, 'a.py')
  call(checkout, 'a.py', AGENTRL_EXTRAS='cuda13')
  assert installs(checkout)[1].endswith('[cuda13]')


def test_another_setup_py_installs_again(checkout):
  call(checkout, 'a.py')
  (checkout / 'setup.py').write_text('two')
  call(checkout, 'a.py')
  assert len(installs(checkout)) == 2


def test_a_shim_that_exits_127_is_passed_over(checkout):
  shim = checkout / 'shim'
  shim.write_text('#!/bin/sh\nexit 127\n')
  shim.chmod(0o755)
  code, out, _ = call(
    checkout, 'a.py', AGENTRL_PYTHON=f'{shim} {checkout / "fake"}'
  )
  assert (code, out) == (0, 'ran: a.py\n')


def test_without_an_interpreter_it_says_what_is_needed(checkout):
  code, _, err = call(checkout, 'a.py', AGENTRL_PYTHON='/no/python')
  assert code == 1 and 'needs Python 3.11, 3.12 or 3.13' in err


def test_a_killed_first_call_leaves_nothing_that_is_taken_for_good(checkout):
  process = start(checkout, 'a.py', SLOW='30')
  deadline = time.monotonic() + 30
  while not installs(checkout) and time.monotonic() < deadline:
    time.sleep(0.02)
  os.killpg(process.pid, signal.SIGKILL)
  process.communicate()
  (checkout / '.venv' / 'half').touch()
  assert call(checkout, 'a.py')[:2] == (0, 'ran: a.py\n')
  assert not (checkout / '.venv' / 'half').exists()
  assert len(installs(checkout)) == 2


def test_two_calls_at_once_install_once(checkout):
  both = [start(checkout, name, SLOW='0.5') for name in ('a.py', 'b.py')]
  outs = [process.communicate(timeout=60)[0] for process in both]
  assert outs == ['ran: a.py\n', 'ran: b.py\n']
  assert len(installs(checkout)) == 1


def test_a_failed_installation_is_no_success(checkout):
  fake = checkout / 'fake'
  fake.write_text(fake.read_text().replace('sleep', 'exit 3; sleep'))
  code, out, err = call(checkout, 'a.py')
  assert code == 1 and out == '' and 'installation failed' in err


@pytest.mark.slow
def test_a_real_environment_is_made(tmp_path):
  subprocess.run(['git', 'clone', '-q', ROOT, tmp_path / 'clone'], check=True)
  program = 'import agentrl_jax, jax; print(agentrl_jax.__file__)'
  result = subprocess.run(
    [tmp_path / 'clone' / 'tools' / 'run', '-c', program],
    capture_output=True,
    text=True,
  )
  assert result.stdout.startswith(str(tmp_path / 'clone')), result.stderr
