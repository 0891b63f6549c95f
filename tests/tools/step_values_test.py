"""Exact values by hand, and Monte-Carlo ones beside them."""

import importlib.util
import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location(
  'step_values', ROOT / 'tools' / 'step_values.py'
)
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)


def test_values_by_hand():
  """S . G over three holes; half of the moves go anywhere.

  At (0, 1): right with 1/2 + 1/8 arrives: V_1 = 5/8. Up stays where it is
  (1/8), left goes to S (1/8), down falls in. At S with two moves: right with
  5/8, then 5/8; up and left (2/8) stay, then V_1(S) = 0: V_2 = 25/64.
  At (0, 1) with two moves: 5/8 + 1/8 V_1 = 45/64.
  """
  found = tool.values(['S.G', 'OOO', 'OOO'], 0.5, 2)
  assert found[1] == {(0, 0): 0.0, (0, 1): 0.625}
  assert found[2] == {(0, 0): 25 / 64, (0, 1): 45 / 64}


def test_who_never_goes_astray_arrives_if_there_is_time():
  found = tool.values(['S.G', 'OOO', 'OOO'], 0.0, 2)
  assert [found[k][0, 0] for k in (1, 2)] == [0.0, 1.0]


def test_more_rollouts_are_nearer(capsys):
  arguments = ['--lakes=5', '--size=3', '--rollouts=4,48']
  assert tool.main(arguments) == 0
  few, many = map(json.loads, capsys.readouterr().out.splitlines())
  assert few['values'] == 'mc4' and few['states'] == many['states'] > 10
  assert many['rank_correlation'] > few['rank_correlation'] > 0.3
  assert many['rank_correlation'] > 0.9
  assert many['mean_error'] < 0.08 < few['mean_error']


def test_no_rollouts_are_refused(capsys):
  with pytest.raises(SystemExit):
    tool.main(['--lakes=x'])
  assert tool.main(['--lakes=1', '--rollouts=0']) == 1
  assert 'rollouts=0' in capsys.readouterr().err
