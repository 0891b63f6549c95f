"""Locks: a sampler with adapters, merged or beside, is the learner's policy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax import sharding
from agentrl_jax.learner import objective
from agentrl_jax.models import lora
from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.rollout import collate
from agentrl_jax.sampler import engine as engine_lib

LORA = lora.Lora(rank=2, alpha=6.0, targets=tuple(lora.INPUTS))
BASE = ModelConfig(vocab_size=13, embedding_std=0.5, **PRESETS['tiny'])
CONFIG = dataclasses.replace(BASE, lora=LORA)
PROMPTS = ((1, 2, 3), (4, 0, 7, 8, 9, 2), (3,))
TURN = 8


def build(how):
  return engine_lib.Engine(
    CONFIG,
    sharding.make_mesh(dict.fromkeys(sharding.AXES, 1)),
    num_slots=4,
    context_length=32,
    max_turn_tokens=TURN,
    extend_rows=2,
    extend_chunk=4,
    decode_chunk=3,
    stop_ids=(12,),
    adapters=how,
  )


@pytest.fixture(scope='module')
def weights(draw_params):
  """B of an adapter is not zero, or nothing would be seen."""
  return jax.tree.map(lambda x: 0.5 * x, draw_params(CONFIG))


@pytest.fixture(scope='module', params=('merged', 'beside'))
def engine(request, weights):
  built = build(request.param)
  if request.param == 'merged':  # also after the base alone
    assert built.publish(lora.base(weights), 0)
  return request.param, built


def play(engine):
  slots = {engine.acquire(): i for i in range(len(PROMPTS))}
  for slot, i in slots.items():
    words = np.array([i, 7], np.uint32)
    engine.request(slot, PROMPTS[i], words=words, temperature=1.0, budget=TURN)
  done = {}
  while len(done) < len(PROMPTS):
    for completion in engine.pump():
      done[slots[completion.slot]] = completion
      engine.release(completion.slot)
  return [done[i] for i in range(len(PROMPTS))]


def rescored(weights, completions):
  """[R, T] log-probs by the learner, of prompts and completions."""
  batch = collate.empty_rows(len(PROMPTS), 16)
  for i, (prompt, done) in enumerate(zip(PROMPTS, completions, strict=True)):
    tokens = [*prompt, *done.tokens]
    batch.tokens[i, : len(tokens)] = tokens
    batch.segment_ids[i, : len(tokens)] = 1
    batch.positions[i, : len(tokens)] = range(len(tokens))
    batch.mask[i, len(prompt) : len(tokens)] = True
  with jax.numpy_rank_promotion('allow'):
    scores, _ = objective.logprobs_and_entropy(CONFIG, weights, batch, 1.0)
  scores = np.asarray(scores)
  return [
    scores[i, len(prompt) : len(prompt) + len(done.tokens)]
    for i, (prompt, done) in enumerate(zip(PROMPTS, completions, strict=True))
  ]


def test_it_draws_from_the_learners_policy(engine, weights):
  how, built = engine
  assert built.publish(weights, 1)
  completions = play(built)
  for done, scores in zip(completions, rescored(weights, completions)):
    np.testing.assert_allclose(done.logprobs, scores, atol=5e-5)
  plain = rescored(lora.base(weights), completions)
  apart = [
    np.abs(done.logprobs - scores).max()
    for done, scores in zip(completions, plain)
  ]
  assert min(apart) > 0.05
  held = jax.tree.leaves(built._params)
  layers = built._params['layers'][0]
  assert ('lora' in layers) == (how == 'beside')
  assert len(held) == len(jax.tree.leaves(build_like(how, weights)))


def build_like(how, weights):
  chosen = lora.base(weights) if how == 'merged' else weights
  num_layers = CONFIG.num_layers
  layers = tuple(chosen['layers'] for _ in range(num_layers))
  return {**chosen, 'layers': layers}


def test_merged_into_a_coarse_base_it_is_rounded_once(weights):
  """W in bfloat16 and activations in float32: the sum keeps its digits."""
  coarse = lora.join(
    jax.tree.map(lambda x: x.astype(jnp.bfloat16), lora.base(weights)),
    lora.split(weights)[0],
  )
  built = build('merged')
  assert built.publish(coarse, 0)
  completions = play(built)
  for done, scores in zip(completions, rescored(coarse, completions)):
    np.testing.assert_allclose(done.logprobs, scores, atol=5e-5)
