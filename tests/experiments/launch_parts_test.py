"""Locks parts of the command in this process; launch_test.py runs it whole."""

import argparse
import contextlib
import importlib.util
import json
import pathlib
import types

import pytest

from agentrl_jax import distributed, supervisor

LAUNCH = pathlib.Path(__file__).parents[2] / 'experiments' / 'launch.py'
FILES = ('config.json', 'host.json')


@pytest.fixture
def command():
  spec = importlib.util.spec_from_file_location('launch', LAUNCH)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


@pytest.mark.parametrize(
  'error, code',
  [
    (distributed.Lost('gone'), supervisor.TRY_AGAIN),
    (RuntimeError('a bug'), 1),
  ],
)
def test_only_a_lost_process_is_a_reason_to_try_again(
  error, code, command, tmp_path, monkeypatch
):
  def attempt(*_):
    raise error

  monkeypatch.setattr(command, 'attempt', attempt)
  monkeypatch.setattr(supervisor, 'follow_parent', lambda _: None)
  monkeypatch.setattr(command.runtime, 'tune_allocator', lambda: None)
  monkeypatch.setattr(command.display_lib, 'quiet_logs', lambda: None)
  flags = argparse.Namespace(worker=7, display='plain', config='c')
  assert command.work(flags, None, tmp_path) == code


def test_a_lock_that_is_still_empty_is_waited_for(
  command, tmp_path, monkeypatch
):
  lock = tmp_path / '.lock'
  lock.touch()
  monkeypatch.setattr(command.time, 'sleep', lambda _: lock.write_text('7'))
  assert command.owner(tmp_path) == '7'


def test_a_run_that_goes_on_elsewhere_is_noted_as_there(
  command, tmp_path, monkeypatch
):
  config = command.config_lib.default()
  facts, said = {'devices': 8, 'hosts': 1}, []
  monkeypatch.setattr(command, 'host_facts', lambda: facts)
  display = types.SimpleNamespace(warn=said.append)

  def claim():
    with contextlib.ExitStack() as held:
      command.claim(config, tmp_path, display, held)

  def noted():
    kept = [json.loads((tmp_path / x).read_text()) for x in FILES]
    return kept[0]['mesh']['fsdp'], kept[1]['devices']

  config.mesh.fsdp = 8
  claim()
  facts['devices'] = config.mesh.fsdp = 2
  with pytest.raises(command.config_lib.ConfigError, match='reshard'):
    claim()
  assert noted() == (8, 8) and not said
  config.checkpoint.reshard = True
  claim()
  assert noted() == (2, 2) and 'devices 8 is now 2' in said[0]
  claim()
  assert len(said) == 1  # it is known by now
