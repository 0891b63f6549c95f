"""Locks what a comparison with peers says."""

import argparse

import pytest

from tools.peers import compare


def test_ours_over_the_best_peer_in_float32():
  speeds = {
    'tunix': [90.0, 100.0, 400.0],
    'ct2_int8': [180.0, 200.0, 210.0],
    'ours': [150.0, 140.0, 160.0],
  }
  told = compare.line('sample', speeds)
  assert told['tunix'] == 100.0 and told['ours'] == 150.0
  assert told['ratio'] == 1.5 and told['ratio_any'] == 0.75
  assert told['rounds'] == 3


def test_every_peer_has_its_script_and_we_come_last():
  options = argparse.Namespace(tunix='T', torch='P', repeats=2)
  for workload in compare.PEERS:
    made = compare.commands(workload, options)
    assert list(made)[-1] == 'ours'
    for python, script, *_ in list(made.values())[:-1]:
      assert (compare.HERE / script).exists() and python in 'TP'


def test_a_peer_that_fails_is_not_left_out():
  options = argparse.Namespace(core=0, repeats=1)
  with pytest.raises(RuntimeError, match='no such flag'):
    compare.run(['sh', '-c', 'echo no such flag >&2; exit 1'], options)
