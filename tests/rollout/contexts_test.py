"""Several contexts a trajectory: from the sampler to the gradient."""

import collections
import dataclasses
import functools
import pathlib
import random
import time

import jax
import numpy as np
import pytest
import rollout_fakes as made

from agentrl_jax import (
  assembly,
  display,
  losses,
  metrics,
  runtime,
  train,
  types,
)
from agentrl_jax import config as config_lib
from agentrl_jax.learner import objective
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.rollout import collate, loop, store
from agentrl_jax.text import memory as memory_lib
from agentrl_jax.text import templates

ROOT = pathlib.Path(__file__).parents[2]
DRAWS = loop.Draws(0, 'train', 3)
TINY = ModelConfig(vocab_size=61, embedding_std=0.5, **PRESETS['tiny'])
PPO = losses.LOSSES['ppo_clip']


def play(language, engine=None, make_env=made.EchoEnv, workers=0):
  engine = engine or made.FakeEngine(made.draw_text)
  limits = made.limits(max_context=256)
  player = loop.Collector(engine, make_env, language, limits, workers=workers)
  entries = [loop.Entry(task, s) for task in made.tasks(4) for s in range(3)]
  try:
    return player.collect(entries, DRAWS)
  finally:
    player.close()


def random_delays(seed):
  draw = random.Random(seed)

  def delay(*_):
    time.sleep(draw.choice((0, 0, 0.001, 0.004)))

  return functools.partial(made.EchoEnv, delay)


def remembering(*fields):
  """The made-up language with another memory."""
  memory = memory_lib.Memory(*fields)
  return dataclasses.replace(made.language(), memory=memory)


def forgetful(prompt, exchanges, window):
  """Shows replies but the last one as a dash: history is rewritten."""
  del window
  dash = (types.Message('tool', '-'),)
  old = [(said, dash) for said, _ in exchanges[:-1]]
  return memory_lib.everything(prompt, [*old, *exchanges[-1:]], 0)


MEMORIES = {
  'window': ('window', 1),
  'split': (f'{__name__}:forgetful', 1, 'keep', 'split'),
  'mask': (f'{__name__}:forgetful', 1, 'keep', 'mask'),
}


@pytest.mark.parametrize('name', MEMORIES)
def test_several_contexts_whatever_the_order(name):
  language = remembering(*MEMORIES[name])
  expected = play(language)
  for slots, seed in ((1, 0), (5, 1)):
    engine = made.FakeEngine(made.draw_text, num_slots=slots, seed=seed)
    assert expected == play(language, engine, random_delays(seed), workers=4)
  for t in expected:
    assert len(t.turns) == t.task.data['turns']
    # A drift needs two replies, a window one.
    cuts = {'window': len(t.turns), 'split': max(len(t.turns) - 1, 1)}
    assert len(t.contexts) == cuts.get(name, 1)


@pytest.mark.parametrize('name', MEMORIES)
def test_the_sampler_holds_the_last_context(name):
  engine = made.FakeEngine(made.draw_text, num_slots=12)
  played = play(remembering(*MEMORIES[name]), engine)
  left = collections.Counter(map(tuple, engine.contexts.values()))
  last = (t.contexts[-1].tokens[:-1] for t in played)
  assert left == collections.Counter(last)


def test_a_memory_changes_no_key():
  words = []
  for language in (made.language(), remembering('window', 1)):
    engine = made.FakeEngine(made.draw_text)
    play(language, engine)
    words.append(sorted(request[0] for request in engine.requests))
  assert words[0] == words[1]


def cut(trajectory, kind):
  """The same turns, cut otherwise: each in a context of its own, or in two."""
  (context,) = trajectory.contexts
  parts = {'whole': [0], 'each': range(len(trajectory.turns)), 'two': [0, 1]}
  owner = [min(s, len(parts[kind]) - 1) for s in range(len(trajectory.turns))]
  contexts = [
    types.Context(
      tokens=context.tokens,
      sampled_mask=_only(trajectory, owner, c),
      logprobs=context.logprobs,
      versions=context.versions,
    )
    for c in range(max(owner) + 1)
  ]
  turns = [
    dataclasses.replace(turn, context=c)
    for turn, c in zip(trajectory.turns, owner)
  ]
  return dataclasses.replace(
    trajectory, turns=tuple(turns), contexts=tuple(contexts)
  )


def _only(trajectory, owner, c):
  mask = [False] * len(trajectory.contexts[0].tokens)
  for turn, mine in zip(trajectory.turns, owner):
    if mine == c:
      mask[turn.start : turn.end] = [True] * (turn.end - turn.start)
  return tuple(mask)


def batch_of(played, row_length=24):
  advantages = np.random.default_rng(0).normal(size=(len(played), 4))
  batch = collate.token_rows(
    played, advantages, range(len(played)), row_length=row_length, num_rows=1
  )
  return collate.with_weights(
    batch, weighting='trajectory', num_trajectories=len(played)
  )


LENGTHS = ([3, 1, 2], [4], [1, 1, 5, 2])


@pytest.mark.parametrize('kind', ['whole', 'two', 'each'])
def test_a_trajectory_weighs_the_same_however_it_is_cut(kind):
  """Three trajectories weigh 1/3; a token of the first 1/3 / 6."""
  played = [cut(made.append_only(lengths), kind) for lengths in LENGTHS]
  batch = batch_of(played)
  for b, lengths in enumerate(LENGTHS):
    mine = (batch.row_trajectory == b) & batch.mask
    assert mine.sum() == sum(lengths)
    expected = 1 / 3 / sum(lengths)
    np.testing.assert_allclose(batch.weights[mine], expected, rtol=1e-6)


@functools.partial(jax.jit, static_argnums=0)
def _loss_and_gradient(policy, weights, batch):
  def loss(params):
    return policy(TINY, params, batch)[0]

  return jax.value_and_grad(loss)(weights)


def test_packed_is_unpacked_is_whole_in_loss_and_gradient(draw_params):
  """However turns are cut and packed, they pull with the same force.

  In `cut` every context holds all earlier tokens, so that a turn sees the same
  past in each.
  """
  weights = draw_params(TINY)
  policy = objective.PolicyObjective(loss=PPO)
  found = {}
  for kind in ('whole', 'two', 'each'):
    for row_length in (14, 48):  # a context a row; several a row
      played = [cut(made.append_only(lengths), kind) for lengths in LENGTHS]
      batch = batch_of(played, row_length)
      # Behind 14 columns: rows of one program, whatever was packed.
      found[kind, row_length] = _loss_and_gradient(policy, weights, batch)
      rows = len(batch.tokens)
      assert rows == sum(len(t.contexts) for t in played) or row_length > 14
  loss, gradient = found['whole', 14]
  assert abs(loss) > 1e-3
  for other_loss, other in found.values():
    np.testing.assert_allclose(other_loss, loss, atol=1e-6)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(other)):
      np.testing.assert_allclose(a, b, atol=1e-6)


def test_contexts_come_back_from_disk(tmp_path):
  played = play(remembering('window', 1))
  assert max(len(t.contexts) for t in played) == 3
  store.write(tmp_path, 1, played)
  assert [r.trajectory for r in store.read(tmp_path, 1)] == played


# Through the real trainer, sampler and learner.

TINY_CONFIG = ROOT / 'tests' / 'experiments' / 'tiny_config.py'
FIELDS = {
  **config_lib.load_module(str(TINY_CONFIG)).UNTRAINED,
  'rollout.temperature': '0.5',
}


def load_config(name):
  names = ('memory', 'window', 'thinking', 'drift')
  fields = {
    f'rollout.{key}': str(value) for key, value in zip(names, MEMORIES[name])
  }
  return config_lib.load(str(TINY_CONFIG), {**FIELDS, **fields})


def ending_weights(model):
  """Weights, never trained, whose policy ends its turns all the same."""
  params = params_lib.init(model, jax.random.key(0))
  end = templates.stop_ids(made.language().tokenizer, 'tiny')[0]
  # Channel 0 is a constant that only the end token listens to.
  table = params['embed']['table'].at[:, 0].set(4.0)
  head = params['head'].at[0].set(0.0).at[0, end].set(0.9)
  return {**params, 'embed': {'table': table}, 'head': head}


@pytest.mark.parametrize('name', MEMORIES)
def test_the_first_ratio_is_one_with_several_contexts(
  name, tmp_path, monkeypatch
):
  panel = [types.Task('echo', 'train', i, {'turns': 3}) for i in range(9)]
  monkeypatch.setattr(assembly, 'tasks', lambda config, split: panel)
  c = load_config(name)
  language = remembering(*MEMORIES[name])
  assert assembly.memory(c) == language.memory
  model = assembly.model_config(c, language.tokenizer.vocab_size)
  mesh = assembly.mesh(c)
  sampler = assembly.engine(c, model, language, mesh)
  player = loop.Collector(sampler, made.EchoEnv, language, assembly.limits(c))
  quiet, stop = display.Display('quiet'), runtime.Stop()
  parts = train.Parts(c, language, model, mesh, player, quiet, stop)
  train.Trainer(parts, str(tmp_path), ending_weights(model), 0.0).run()
  row = metrics.read(tmp_path)[-1]
  assert row['policy/first_ratio_deviation'] < 1e-4 and row['updates'] == 1
  assert row['doctor/failed'] == 0
  played = [r.trajectory for r in store.read(tmp_path, 1)]
  assert sum(len(t.turns) for t in played) > 1.5 * len(played)
  contexts = sum(len(t.contexts) for t in played)
  assert (contexts > len(played)) == (name != 'mask')
