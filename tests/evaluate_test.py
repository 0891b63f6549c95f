"""Which weights play which tasks: without a device, on parts that are played.

The whole program runs in `tests/experiments/launch_test.py`.
"""

import pathlib
import types

import pytest

from agentrl_jax import assembly, checkpoint, config, evaluate, weights
from agentrl_jax.rollout import evaluation, loop, store
from agentrl_jax.text import tokenizer


class Saved:
  """Checkpoints at 2, 4 and 6; the best is 4."""

  steps, latest, best = (2, 4, 6), 6, 4
  closed = 0

  def __init__(self, directory, **options):
    assert options['read_only']

  def close(self):
    Saved.closed += 1


@pytest.fixture
def run(tmp_path, monkeypatch):
  """(directory, what was asked of the parts)."""
  c = config.default()
  c.seed = 11
  (tmp_path / 'config.json').write_text(config.to_json(c))
  asked = types.SimpleNamespace(closed=0, written=[], calls=[])

  def close():
    asked.closed += 1

  def publish(params, step):
    asked.published = params, step

  def play(collector, tasks, **options):
    asked.calls.append((tasks, options))
    return {f'{options["name"]}/success': 0.5}, ['trajectory']

  monkeypatch.setattr(
    tokenizer,
    'load',
    lambda path: types.SimpleNamespace(vocab_size=300, style='tiny'),
  )
  for name, made in {
    'mesh': lambda c: 'mesh',
    'tasks': lambda c, split: [f'{split}/{i}' for i in range(5)],
    'engine': lambda *parts: types.SimpleNamespace(publish=publish),
    'collector': lambda *parts: types.SimpleNamespace(close=close),
  }.items():
    monkeypatch.setattr(assembly, name, made)
  monkeypatch.setattr(
    evaluate, 'Language', lambda *parts: setattr(asked, 'language', parts)
  )
  monkeypatch.setattr(checkpoint, 'Checkpoints', Saved)
  monkeypatch.setattr(
    weights, 'restored', lambda saved, step, *_: f'weights of {step}'
  )
  monkeypatch.setattr(evaluation, 'evaluate', play)
  monkeypatch.setattr(
    store, 'write', lambda *a, **k: asked.written.append((a, k))
  )
  return str(tmp_path), asked


def test_by_default_the_last_weights_play_the_whole_test_panel(run):
  directory, asked = run
  row = evaluate.run(directory, evaluate.Request(), None)
  assert row == {'step': 6, 'tasks': 5, 'seed': 11, 'test/success': 0.5}
  assert asked.published == ('weights of 6', 6)
  ((tasks, options),) = asked.calls
  assert tasks == [f'test/{i}' for i in range(5)]
  assert options == {'seed': 11, 'name': 'test', 'modes': ('', '_greedy')}
  assert asked.written == [((directory, 6, ['trajectory']), {'kind': 'test'})]


def test_a_turn_sees_of_the_past_what_it_saw_in_training(run):
  directory, asked = run
  c = config.default()
  c.rollout.memory, c.rollout.window, c.rollout.thinking = 'window', 3, 'strip'
  pathlib.Path(directory, 'config.json').write_text(config.to_json(c))
  evaluate.run(directory, evaluate.Request(), None)
  assert asked.language[2] == assembly.memory(c)
  assert asked.language[2].name == 'window' and asked.language[2].window == 3


def test_validation_has_the_name_that_training_gives_it(run):
  directory, asked = run
  request = evaluate.Request(
    'validation', tasks=2, modes=('_greedy',), which='best', seed=0
  )
  row = evaluate.run(directory, request, None)
  assert row == {'step': 4, 'tasks': 2, 'seed': 0, 'eval/success': 0.5}
  ((tasks, options),) = asked.calls
  assert tasks == ['validation/0', 'validation/1']
  assert options == {'seed': 0, 'name': 'eval', 'modes': ('_greedy',)}


@pytest.mark.parametrize('which, step', [('last', 6), ('best', 4), ('2', 2)])
def test_a_checkpoint_by_name_or_iteration(run, which, step):
  directory, asked = run
  request = evaluate.Request(which=which, tasks=99)
  row = evaluate.run(directory, request, None)
  assert (row['step'], row['tasks']) == (step, 5)  # no more than there are


@pytest.mark.parametrize('which', ['3', 'first', '-2', ''])
def test_a_checkpoint_that_is_not_there(run, which):
  directory, asked = run
  closed = Saved.closed
  with pytest.raises(ValueError, match=r'last, best or one of \(2, 4, 6\)'):
    evaluate.run(directory, evaluate.Request(which=which), None)
  assert not asked.calls and Saved.closed == closed + 1


def test_an_interrupted_evaluation_closes_what_it_opened(run, monkeypatch):
  directory, asked = run

  def stop(*_, **__):
    raise loop.Interrupted

  monkeypatch.setattr(evaluation, 'evaluate', stop)
  with pytest.raises(loop.Interrupted):
    evaluate.run(directory, evaluate.Request(), None)
  assert asked.closed == 1 and not asked.written


def test_a_directory_without_a_run(tmp_path):
  with pytest.raises(config.ConfigError, match='no config.json'):
    evaluate.run(str(tmp_path), evaluate.Request(), None)
