"""Locks the estimate's command line, and that XLA is asked where it is told."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from agentrl_jax import footprint
from agentrl_jax.models import params as params_lib
from tools import estimate

ROOT = pathlib.Path(__file__).parents[2]
FILE = ROOT / 'tools' / 'estimate.py'


def test_the_arithmetic_is_printed(capsys):
  asked = ['--model=Qwen2.5-1.5B', '--mesh=fsdp=4,tensor=2', '--hardware=all']
  assert estimate.main([*asked, '--slots=64']) == 0
  told = capsys.readouterr().out
  assert 'P = 1.54 G weights' in told and '8 devices' in told
  plan = estimate.make_plan(estimate.parse([*asked, '--slots=64']))
  parts = footprint.memory(plan)
  lines = told.splitlines()
  for name, size in [*parts.items(), ('all', sum(parts.values()))]:
    (line,) = (x for x in lines if x.startswith(f'  {name:16s} '))
    assert float(line.split()[1]) == pytest.approx(size / 1e9, abs=5e-3)
  assert set(estimate.HOW) >= {
    *parts,
    *footprint.seconds(plan, footprint.HARDWARE['h100']),
  }
  for name in footprint.HARDWARE:
    assert f'{name} has' in told


@pytest.mark.parametrize(
  'option, text',
  [
    ('--model=qwen2.5-1b', 'did you mean qwen2.5_1.5b?'),
    ('--mesh=fdsp=8', "'fdsp=8' is not AXIS=SIZE"),
    ('--mesh=fsdp=0', "'fsdp=0' is not AXIS=SIZE"),
    ('--remat=all', 'not one of none, block, dots'),
    ('--dtype=float16', 'not one of float32, bfloat16'),
    ('--hardware=h10', 'not one of all, h100'),
  ],
)
def test_what_it_does_not_know_is_told(capsys, option, text):
  given = {'--model': 'tiny', option.partition('=')[0]: option.split('=', 1)[1]}
  arguments = [f'{name}={value}' for name, value in given.items()]
  assert estimate.main(arguments) == 1
  assert text in capsys.readouterr().err


def test_the_recorded_table_is_what_the_arithmetic_says():
  numbers = json.loads((ROOT / 'docs' / 'numbers.json').read_text())
  assert numbers['estimate']['table'] == estimate.table()
  rows = estimate.table().splitlines()[2:]
  assert len(rows) == 4 and 'too large' in rows[2]


def test_xla_is_asked_for_as_many_devices():
  """The command itself, with a small policy over 2 forced devices."""
  arguments = ['--model=tiny', '--mesh=fsdp=2', '--row_length=64', '--compile']
  arguments += ['--dtype=float32', '--param_dtype=float32']
  done = subprocess.run(
    [sys.executable, str(FILE), *arguments],
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    timeout=300,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  assert "by XLA's own count" in done.stdout
  rows = [x.split() for x in done.stdout.splitlines()[-2:]]
  assert [row[0] for row in rows] == ['accumulate', 'apply']


def test_what_the_learner_holds_by_hand(capsys):
  """On one device, where nothing is split."""
  arguments = ['--model=tiny', '--mesh=fsdp=1', '--remat=dots', '--json']
  assert estimate.main(arguments) == 0
  row = json.loads(capsys.readouterr().out)
  plan = estimate.make_plan(estimate.parse(arguments))
  weights = params_lib.count(plan.model)
  assert row['name'] == 'dots_arithmetic'
  assert row['state'] == pytest.approx(16e-9 * weights)  # P, 2 P, P in float32
  parts = footprint.memory(plan)
  others = [n for n in parts if n.startswith(('gathered', 'activ', 'loss'))]
  rest = 2 * weights + sum(parts[name] for name in others)  # and P in bfloat16
  assert len(others) == 3 and row['temp'] == pytest.approx(1e-9 * rest)


@pytest.mark.slow
@pytest.mark.parametrize('remat', ['block', 'dots', 'none'])
def test_a_full_size_step_on_eight_devices(remat):
  """Qwen2.5-1.5B compiled from shapes: state exactly, temporaries within 2x.

  In float32, which CPU devices compute in: XLA widens bfloat16 for them.
  """
  arguments = ['--model=qwen2.5-1.5b', '--mesh=fsdp=8', f'--remat={remat}']
  arguments += ['--dtype=float32', '--param_dtype=float32', '--compile']
  plan = estimate.make_plan(estimate.parse(arguments))
  flags = '--xla_force_host_platform_device_count=8'
  done = subprocess.run(
    [sys.executable, str(FILE), *arguments, '--child'],
    env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': flags},
    stdout=subprocess.PIPE,
    timeout=1800,
    text=True,
  )
  counted = json.loads(done.stdout.splitlines()[-1])
  sizes = {name: 1e9 * size for name, size in estimate.learner(plan).items()}
  assert counted['apply']['argument'] == pytest.approx(sizes['state'], rel=1e-3)
  assert counted['apply']['alias'] == pytest.approx(sizes['state'], rel=1e-3)
  assert 0.5 < counted['accumulate']['temp'] / sizes['temp'] < 2
