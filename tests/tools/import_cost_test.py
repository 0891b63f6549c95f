"""Locks what importing weights is said to cost, and that files are shards."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tools import import_cost

FILE = pathlib.Path(import_cost.__file__)


def test_the_command_tells_of_weights_that_it_makes(tmp_path):
  command = [sys.executable, str(FILE), str(tmp_path / 'w'), '--make=tiny']
  done = subprocess.run(
    [*command, '--mesh=data=2', '--name=small'],
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    timeout=300,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  row = json.loads(done.stdout)
  files = sorted((tmp_path / 'w').glob('*.safetensors'))
  stored = sum(path.stat().st_size for path in files)
  assert len(files) > 1
  # Two devices hold each weight, in float32 what was stored in bfloat16: four
  # times the files, less their headers.
  assert row['weights'] == pytest.approx(4 * stored / 1e9, rel=0.2)
  assert row['weights'] < 4 * stored / 1e9
  assert row['name'] == 'small' and row['seconds'] > 0
  assert row['share'] == pytest.approx(row['growth'] / row['weights'])


@pytest.mark.parametrize(
  'arguments, text',
  [
    (['--mesh=fdsp=8'], 'is not AXIS=SIZE'),
    (['--make=qwen3-0.6'], 'did you mean qwen3_0.6b?'),
    (['--child'], 'no config.json'),
  ],
)
def test_what_cannot_be_is_told(arguments, text, tmp_path, capsys):
  assert import_cost.main([str(tmp_path), *arguments]) == 1
  assert text in capsys.readouterr().err


def test_memory_is_that_of_this_process():
  now = import_cost._memory('VmRSS')
  held = bytearray(b'x' * 2**26)
  assert import_cost._memory('VmRSS') - now > 0.9 * len(held)
  most = import_cost._memory('VmHWM')
  del held
  assert import_cost._memory('VmHWM') == most >= import_cost._memory('VmRSS')
