"""tools/doctor.py from the command line: a config, our trajectories, a dump."""

import importlib.util
import json
import pathlib

import pytest

from agentrl_jax.doctor import findings

ROOT = pathlib.Path(__file__).parents[2]
TINY = ROOT / 'tests' / 'experiments' / 'tiny_config.py'


@pytest.fixture(scope='module')
def doctor():
  spec = importlib.util.spec_from_file_location(
    'doctor_tool', ROOT / 'tools' / 'doctor.py'
  )
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def test_a_sound_config_passes_every_check(doctor, capsys):
  assert doctor.main([f'--config={TINY}']) == 0
  shown = capsys.readouterr().out
  assert f'0 of {len(findings.CHECKS)} checks failed' in shown
  for check in findings.CHECKS:
    assert f'\n{check} ' in f'\n{shown}'


def test_an_unknown_key_is_a_failed_check(doctor, capsys):
  assert doctor.main([f'--config={TINY}', '--config.train.row=4']) == 1
  shown = capsys.readouterr().out
  assert 'config     FAILED' in shown
  assert 'did you mean config.train.rows?' in shown
  assert 'likely: a misspelt field' in shown and 'remedy: ' in shown


def test_faults_of_a_dump_are_told_by_line(doctor, tmp_path, capsys):
  path = tmp_path / 'dump.jsonl'
  rows = [
    {'uid': 1, 'prompts': [1, 2], 'responses': [3, 4], 'reward': reward}
    | {'response_mask': mask}
    for reward, mask in ((1.0, [1, 1]), (0.0, [0, 0]))
  ]
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  assert doctor.main([f'--trajectories={path}']) == 1
  shown = capsys.readouterr().out
  assert 'line 2: no token is trained' in shown
  assert 'drift      not applicable' in shown
  assert doctor.main(['--trajectories', str(tmp_path / 'none')]) == 1
  assert 'no such file' in capsys.readouterr().err


def test_one_of_the_two_is_asked_for(doctor, capsys):
  with pytest.raises(SystemExit):
    doctor.main([])
  assert 'either --config=FILE or --trajectories' in capsys.readouterr().err
