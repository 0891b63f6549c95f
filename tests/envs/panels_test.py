"""Panels are fixed, generated once, and survive kills and races."""

import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import types

import pytest

from agentrl_jax import envs
from agentrl_jax.envs import flight, flight_agent, panels

SMALL = {'num_train': 20, 'num_validation': 5, 'num_test': 7}

GOLDEN_LEGS = [['Harbin', 'Beijing'], ['Beijing', 'Wuhan']]
GOLDEN_FLIGHT = ['CZ1831', 'Beijing', 'Wuhan', '15:00', 1110, 0]
GOLDEN_SUM = {'left': 13, 'operator': '+', 'right': 13}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv('AGENTRL_JAX_DATA', str(tmp_path))
  return tmp_path


def data(dataset):
  return [dataset[index].data for index in range(len(dataset))]


def test_sizes_and_names():
  sizes = [len(envs.tasks('flight', s, **SMALL)) for s in panels.SPLITS]
  assert sizes == [20, 5, 7]
  first = envs.tasks('flight', 'test', **SMALL)[3]
  assert first.name == 'flight/test/3'
  assert len(first.data['legs']) == 2
  with pytest.raises(IndexError):
    envs.tasks('flight', 'test', **SMALL)[7]


def test_a_panel_does_not_depend_on_its_size_or_its_cache(
  tmp_path, monkeypatch
):
  small = data(envs.tasks('flight', 'train', **SMALL))
  monkeypatch.setenv('AGENTRL_JAX_DATA', str(tmp_path / 'other'))
  large = data(envs.tasks('flight', 'train', **{**SMALL, 'num_train': 30}))
  assert large[:20] == small


def test_the_first_tasks_are_these_for_ever():
  """A change of the panels must be deliberate: published numbers hang on it."""
  panel = envs.tasks('flight', 'test', **SMALL)
  assert panel[0].data['legs'] == GOLDEN_LEGS
  assert panel[0].data['flights'][0] == GOLDEN_FLIGHT
  sums = envs.tasks('arithmetic', 'test', **SMALL)
  assert sums[0].data == GOLDEN_SUM


def test_splits_differ_and_small_spaces_do_not_overlap():
  sizes = {'num_train': 400, 'num_validation': 100, 'num_test': 100}
  seen = {}
  for split in panels.SPLITS:
    panel = envs.tasks('arithmetic', split, high=19, **sizes)
    seen[split] = {json.dumps(each) for each in data(panel)}
  assert not seen['train'] & seen['test']
  assert not seen['train'] & seen['validation']
  assert not seen['validation'] & seen['test']


def test_options_and_code_name_the_directory(monkeypatch):
  def directory(**options):
    return envs.tasks('flight', 'train', **SMALL, **options).directory

  plain = directory()
  assert directory(instructions='none') == plain  # not of the tasks
  assert directory(legs=2) == plain  # the default, spelt out
  assert directory(legs=1) != plain
  monkeypatch.setattr(panels.sources, 'version', lambda name: 'edited')
  assert directory() != plain


def test_what_is_in_a_file_that_an_option_names_names_the_directory(tmp_path):
  book = tmp_path / 'book.json'

  def directory():
    what = {'options': {'levels': (1, 2), 'catalogue': str(book)}}
    return panels._prepare(
      'x', flight.FlightEnv, 'tasks', what, 'TaskPanels', SPLITS
    )

  missing = directory()
  book.write_text('one')
  first = directory()
  book.write_text('two')
  assert len({missing, first, directory()}) == 3
  book.write_text('one')
  assert directory() == first


SPLITS = {'train': lambda: iter([{'index': 0, 'data': '{}'}])}


def test_demonstrations_are_whole_episodes():
  made = envs.demonstrations('flight', num=12, legs=1)
  assert len(made) == 12
  for index in range(12):
    record = made[index]
    assert record['task'].index == index
    roles = [message['role'] for message in record['messages']]
    assert roles[:3] == ['system', 'user', 'assistant']
    assert roles[3:] == ['tool', 'assistant'] * (len(roles) // 2 - 2) + ['tool']
  assert {made[i]['success'] for i in range(12)} == {True, False}


def test_demonstrations_replay_and_follow_their_options():
  rates = dict.fromkeys(dataclasses.asdict(flight_agent.Rates()), 0.0)
  made = envs.demonstrations('flight', num=4, rates=rates, instructions='none')
  for index in range(4):
    record = made[index]
    assert record['success']
    env = flight.FlightEnv(instructions='none')
    prompt = env.reset(record['task']).messages[0].content
    assert record['messages'][1]['content'] == prompt
  other = envs.demonstrations('flight', num=4, seed=1)
  assert other[0]['task'].data != made[0]['task'].data


def test_unknown_names_are_errors():
  with pytest.raises(ValueError, match='unknown split'):
    envs.tasks('flight', 'dev')
  with pytest.raises(ValueError, match='no option leg'):
    envs.tasks('flight', 'test', leg=1)
  with pytest.raises(ValueError, match='known: arithmetic, .*flight'):
    envs.tasks('fly', 'test')


def test_datasets_pickle_and_know_no_jax():
  script = (
    'import sys, pickle\n'
    'from agentrl_jax import envs\n'
    "t = envs.tasks('arithmetic', 'train', num_train=3)\n"
    't[0]; u = pickle.loads(pickle.dumps(t)); assert u[1] == t[1]\n'
    "assert not {'jax', 'tensorflow', 'grain', 'flax'} & set(sys.modules)\n"
  )
  subprocess.run([sys.executable, '-c', script], check=True)
  panel = envs.tasks('arithmetic', 'train', num_train=3)
  assert pickle.loads(pickle.dumps(panel))[2] == panel[2]


SCRIPT = """
import sys, time
from agentrl_jax import envs
from agentrl_jax.envs import flight, flight_agent, panels
plain = flight.FlightEnv.generate
def slow(seed, **options):
  print('generating', file=sys.stderr, flush=True)
  time.sleep(float(sys.argv[1]))
  return plain(seed, **options)
flight.FlightEnv.generate = staticmethod(slow)
sizes = {'num_train': 20, 'num_validation': 5, 'num_test': 7}
panel = envs.tasks('flight', 'test', **sizes)
print('got', panel[6].data['seed'], flush=True)
"""


def generator(seconds):
  return subprocess.Popen(
    [sys.executable, '-c', SCRIPT, str(seconds)],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def test_two_at_once_generate_once():
  pair = [generator(0.002), generator(0.002)]
  seen = [process.communicate(timeout=60) for process in pair]
  assert [process.returncode for process in pair] == [0, 0]
  assert sum(err.count('generating') for _, err in seen) == 32
  assert len({out.split('got')[1] for out, _ in seen}) == 1


def test_a_killed_generation_leaves_nothing_that_is_used(cache):
  process = generator(0.05)
  for _ in range(10):  # in the midst of writing
    assert process.stderr.readline() == 'generating\n'
  os.kill(process.pid, signal.SIGKILL)
  process.communicate()
  whole = [path for path in cache.iterdir() if not path.name.startswith('.')]
  assert whole == []
  start = time.monotonic()
  panel = envs.tasks('flight', 'test', **SMALL)
  assert len(panel) == 7
  assert time.monotonic() - start < 30  # the dead one's lock is free
  assert not list(cache.glob('.*.partial'))


def test_generating_prints_nothing(capfd):
  envs.tasks('arithmetic', 'test', **SMALL)
  assert capfd.readouterr() == ('', '')


def test_a_dataset_appears_whole_by_one_rename(cache, monkeypatch):
  def killed(*paths):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    # Of this module only: TFDS renames its own files while it writes.
    stub = types.SimpleNamespace(
      rename=killed, environ=os.environ, path=os.path
    )
    patch.setattr(panels, 'os', stub)
    with pytest.raises(KeyboardInterrupt):
      envs.tasks('arithmetic', 'test', **SMALL)
  assert all(path.name.startswith('.') for path in cache.iterdir())
  assert len(envs.tasks('arithmetic', 'test', **SMALL)) == 7
