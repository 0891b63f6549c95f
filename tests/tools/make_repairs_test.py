"""One command writes a catalogue; installed code is never written as ours."""

import importlib.util
import json
import pathlib
import sys

import pytest

from agentrl_jax.envs import repair
from agentrl_jax.envs.code import catalogue

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def tool():
  path = ROOT / 'tools' / 'make_repairs.py'
  spec = importlib.util.spec_from_file_location('make_repairs', path)
  module = importlib.util.module_from_spec(spec)
  sys.modules['make_repairs'] = module
  spec.loader.exec_module(module)
  return module


def test_a_catalogue_that_tasks_can_be_drawn_from(tool, tmp_path, capsys):
  out = tmp_path / 'repairs.json'
  assert tool.main([f'--out={out}', '--most=2']) == 0
  numbers = json.loads(capsys.readouterr().out)
  made = catalogue.load(str(out))
  assert numbers['name'] == 'own'
  assert numbers['kept'] == len(made['bugs']) > 20
  assert (
    numbers['kept'] + numbers['unnoticed'] + numbers['unusable']
    == (numbers['tried'])
  )
  # The first two functions of ours, as the package has them.
  own = catalogue.load()
  names = list(made['items'])
  assert names == list(own['items'])[:2]
  assert made['bugs'] == [bug for bug in own['bugs'] if bug[0] in names]
  data = repair.generate(0, catalogue=str(out))
  assert f'{data["module"]}.{data["function"]}' in names


def test_functions_of_an_installed_module(tool):
  names = {item.name for item in tool.installed('textwrap')}
  assert 'textwrap_textwrap.dedent' not in names  # has no examples
  assert tool.installed('no_such_package') == []
  found = {item.function: item for item in tool.installed('statistics')}
  assert 'median_low' in found
  assert 'class StatisticsError' in found['median_low'].text


def test_what_is_installed_wants_a_file_of_its_own(tool, capsys):
  before = catalogue.OWN.read_bytes()
  assert tool.main(['--package=statistics']) == 2
  assert '--out' in capsys.readouterr().err
  assert catalogue.OWN.read_bytes() == before
