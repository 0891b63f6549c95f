"""`.ci/run` runs what the README promises, and nothing else instead."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]

FAKE = """#!/bin/sh
echo "$HOME|$*" >>calls
case "$*" in '-m pytest') echo '3 passed in 0.1s'; exit ${CODE-0} ;; esac
case "$*" in *--no-index*) exit 1 ;; esac
"""


@pytest.fixture
def checkout(tmp_path):
  for name in ('.ci/run', 'README.md'):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    shutil.copy(ROOT / name, tmp_path / name)
  (tmp_path / 'tools').mkdir()
  (tmp_path / 'tools' / 'run').write_text(FAKE)
  (tmp_path / 'tools' / 'run').chmod(0o755)
  return tmp_path


def ci(checkout):
  return subprocess.run(
    ['bash', '.ci/run'], cwd=checkout, capture_output=True, text=True
  )


def calls(checkout):
  lines = (checkout / 'calls').read_text().splitlines()
  return [line.partition('|')[2] for line in lines]


def test_the_commands_are_those_of_the_readme(checkout):
  result = ci(checkout)
  assert result.returncode == 0, result.stderr
  made = calls(checkout)
  smoke = 'experiments/launch.py --config=configs/smoke.py'
  assert made.index(smoke) < made.index('-m pytest')
  assert any(call.startswith('-m ruff check') for call in made)
  assert any(call.startswith('-m ruff format --check') for call in made)
  assert result.stdout.splitlines()[-1] == '3 passed in 0.1s'


def test_the_runs_see_an_empty_home(checkout):
  ci(checkout)
  homes = {
    call.partition('|')[0]
    for call in (checkout / 'calls').read_text().splitlines()
    if call.endswith(('smoke.py', '-m pytest'))
  }
  (home,) = homes
  assert home != str(pathlib.Path.home()) and not pathlib.Path(home).exists()


@pytest.mark.parametrize(
  'line', ['--config=configs/gigpo.py', 'tools/run -m pytest']
)
def test_a_readme_without_the_line_fails(checkout, line):
  readme = checkout / 'README.md'
  readme.write_text(readme.read_text().replace(line, 'something else'))
  result = ci(checkout)
  assert result.returncode != 0 and 'README.md has no line' in result.stderr


def test_failing_tests_fail_the_whole(checkout, monkeypatch):
  monkeypatch.setenv('CODE', '1')
  result = ci(checkout)
  assert result.returncode != 0 and 'failed after' in result.stderr
