"""A policy that really thinks: traces sampled, stripped, and still learnt."""

import dataclasses
import functools
import pathlib

import jax
import numpy as np
import pytest
import rollout_fakes as made

from agentrl_jax import assembly, display, metrics, runtime, train, types
from agentrl_jax import config as config_lib
from agentrl_jax.models import params as params_lib
from agentrl_jax.rollout import episode, loop, store
from agentrl_jax.text import templates, tokenizer

TINY = pathlib.Path(__file__).parents[1] / 'experiments' / 'tiny_config.py'
TRACE, SPEECH = 'xyz', 'abc'


@functools.cache
def known():
  return tokenizer.train(['xyz abc task 1 Echo.'] * 9, vocab_size=330,
                         style='tiny_think')  # fmt: skip


def letters(text):
  return [known().encode(letter)[0] for letter in text]


def thinking_weights(model):
  """A Markov chain: <think>, letters of a trace, </think>, others, the end.

  Layers add nothing; a token's embedding says which state it leads to, and the
  head what that state draws.
  """
  ids = known().special_ids
  end = templates.stop_ids(known(), 'tiny_think')[0]
  states = [
    ([ids['<|assistant|>']], [ids['<think>']]),
    ([ids['<think>']], letters(TRACE)),
    (letters(TRACE), [*letters(TRACE), ids['</think>']]),
    ([ids['</think>']], letters(SPEECH)),
    (letters(SPEECH), [*letters(SPEECH), end]),
  ]
  params = params_lib.init(model, jax.random.key(0))
  table = np.zeros(params['embed']['table'].shape, np.float32)
  head = np.zeros(params['head'].shape, np.float32)
  for channel, (after, drawn) in enumerate(states):
    table[after, channel] = 1.0
    head[channel, drawn] = 4.0  # logits of 16: the norm makes 4 of 1
  layers = jax.tree.map(np.zeros_like, params['layers'])
  return {**params, 'embed': {'table': table}, 'head': head, 'layers': layers}


def trainer(workdir, **sets):
  module = config_lib.load_module(str(TINY))
  fields = {
    'text.style': 'tiny_think',
    'rollout.thinking': 'strip',
    'rollout.max_turn_tokens': '24',
    'rollout.tasks': '2',
    'log.trajectories': '-1',
    'doctor.strict': 'all',
    'watch.every': '0',
  }
  c = config_lib.load(str(TINY), {**module.UNTRAINED, **fields, **sets})
  language = episode.Language(known(), 'tiny_think', assembly.memory(c))
  model = assembly.model_config(c, known().vocab_size)
  mesh = assembly.mesh(c)
  player = loop.Collector(
    assembly.engine(c, model, language, mesh),
    made.EchoEnv,
    language,
    assembly.limits(c),
  )
  parts = train.Parts(
    c,
    language,
    model,
    mesh,
    player,
    display.Display('quiet'),
    runtime.Stop(),
  )
  return train.Trainer(parts, str(workdir), thinking_weights(model), 0.0)


def learnt(one):
  """Runs it; returns (trajectories with advantages, batches of the update)."""
  seen, update = [], one.update

  def noting(updates, extras):
    seen.extend(batch for batches in updates for batch in batches)
    return update(updates, extras)

  one.update = noting
  one.run()
  return store.read(one.workdir, 1), seen


@pytest.fixture(scope='module', autouse=True)
def panel():
  tasks = [types.Task('echo', 'train', i, {'turns': 3}) for i in range(9)]
  patch = pytest.MonkeyPatch()
  patch.setattr(assembly, 'tasks', lambda config, split: tasks)
  yield
  patch.undo()


@pytest.mark.parametrize('thinking', ['strip', 'keep'])
def test_a_trace_gets_its_turns_advantage_where_it_was_sampled(
  thinking, tmp_path
):
  one = trainer(tmp_path, **{'rollout.thinking': thinking})
  records, batches = learnt(one)
  row = metrics.read(tmp_path)[-1]
  assert row['doctor/failed'] == 0 and row['updates'] == 1
  assert row['policy/first_ratio_deviation'] < 1e-4
  think = known().special_ids['<think>']
  turns = thoughtful = 0
  for record in records:
    t = record.trajectory
    turns += len(t.turns)
    for s, turn in enumerate(t.turns):
      context = t.contexts[turn.context]
      said = context.tokens[turn.start : turn.end]
      assert all(context.sampled_mask[turn.start : turn.end])
      thoughtful += said[0] == think and '</think>' in turn.text
      # Of earlier traces the turn sees what the config says.
      before = context.tokens[: turn.start].count(think)
      assert before == (s if thinking == 'keep' else 0)
      # The world never hears one.
      assert not any('think' in m.content for m in turn.observation)
    assert len(t.contexts) == (1 if thinking == 'keep' else len(t.turns))
  assert turns > 12 and thoughtful > 0.9 * turns
  # Every trace is trained, with the advantage of its turn.
  opened = 0
  for batch in batches:
    for r, p in np.argwhere(batch.mask & (batch.tokens == think)):
      b, s = batch.row_trajectory[r, p], batch.row_turn[r, p]
      want = records[b].advantages[s]
      assert batch.advantages[r, p] == pytest.approx(want, abs=1e-6)
      opened += 1
  assert opened >= thoughtful
  assert any(any(record.advantages) for record in records)


def test_what_is_said_is_the_same_however_traces_are_kept(tmp_path):
  """The first turn saw no history: one key, one trace."""
  first = []
  for thinking in ('strip', 'keep'):
    one = trainer(tmp_path / thinking, **{'rollout.thinking': thinking})
    records, _ = learnt(one)
    first.append(
      [dataclasses.astuple(r.trajectory.turns[0])[:4] for r in records]
    )
  assert first[0] == first[1]
