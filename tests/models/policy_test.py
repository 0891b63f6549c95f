"""Locks that a foreign model trains and samples by the same code.

The model is a flax.nnx module; `policy_of` is all that it takes.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from agentrl_jax import sharding
from agentrl_jax.learner import objective, optimizer, step
from agentrl_jax.models import heads, params, transformer
from agentrl_jax.models.policy import Policy
from agentrl_jax.rollout import collate
from agentrl_jax.sampler import engine as engine_lib

V, D, LENGTH, STOP = 7, 16, 12, 6
MESH = sharding.make_mesh(dict(data=1, fsdp=1, tensor=1))


class Reader(nnx.Module):
  """One layer of attention within segments; positions are embedded."""

  def __init__(self, rngs):
    self.embed = nnx.Embed(V, D, rngs=rngs)
    self.place = nnx.Embed(16, D, rngs=rngs)
    self.mix = nnx.Linear(D, D, rngs=rngs)
    self.head = nnx.Linear(D, V, use_bias=False, rngs=rngs)

  def __call__(self, tokens, positions, segment_ids):
    x = self.embed(tokens) + self.place(positions)
    scores = jnp.einsum('rtd,rsd->rts', self.mix(x), x)
    order = jnp.arange(tokens.shape[1])
    seen = segment_ids[:, :, None] == segment_ids[:, None]
    seen &= (order[:, None] >= order[None])[None]
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e9))
    return jnp.tanh(x + jnp.einsum('rts,rsd->rtd', weights, x))


def policy_of(module: type[nnx.Module]) -> Policy:
  graph, _ = nnx.split(module(nnx.Rngs(0)), nnx.Param)
  return Policy(
    hidden=lambda params, *inputs: nnx.merge(graph, params)(*inputs),
    head=lambda params: params['head']['kernel'],
    init=lambda key: nnx.to_pure_dict(nnx.state(module(nnx.Rngs(key)))),
    d_model=D,
    vocab_size=V,
  )


READER = policy_of(Reader)


@pytest.fixture(scope='module', autouse=True)
def _their_broadcasts():
  """flax broadcasts biases by rank."""
  with jax.numpy_rank_promotion('allow'):
    yield


@pytest.fixture(scope='module')
def weights():
  return params.init(READER, jax.random.key(1))


def rows():
  """Two rows that count up; every token but the first is to be learnt."""
  batch = collate.empty_rows(2, LENGTH)
  batch.tokens[:] = np.add.outer([0, 3], np.arange(LENGTH)) % 6
  batch.positions[:] = np.arange(LENGTH)
  batch.segment_ids[:] = 1
  batch.mask[:, 1:] = True
  batch.weights[:] = batch.mask / batch.mask.sum()
  return batch


def test_weights_are_described_by_what_init_makes(weights):
  described = params.abstract(READER)
  assert jax.tree.map(jnp.shape, weights) == jax.tree.map(jnp.shape, described)
  # Tables of 7 and 16 rows, a matrix with a bias, and the head.
  assert params.count(READER) == (7 + 16) * D + D * D + D + D * V
  valued = dataclasses.replace(READER, value_head=True)
  assert params.count(valued) == params.count(READER) + D + 1
  made = params.init(valued, jax.random.key(1))
  assert made['value']['kernel'].shape == (D,)
  tokens = rows().tokens
  np.testing.assert_array_equal(
    transformer.hidden(valued, made, tokens).hidden,
    transformer.hidden(READER, weights, tokens).hidden,
  )
  np.testing.assert_array_equal(
    heads.matrix(valued, made), weights['head']['kernel']
  )


def test_it_learns_to_count_and_the_sampler_counts_on(weights):
  tx = optimizer.make(
    dict(
      name='adam',
      learning_rate=3e-2,
      warmup=0,
      schedule='constant',
      b1=0.9,
      b2=0.99,
      epsilon=1e-8,
      weight_decay=0.0,
      clip_norm=1.0,
    ),
    40,
  )
  learner = step.Learner(READER, objective.likelihood, tx, MESH, 2)
  state, losses = learner.create(weights), []
  for _ in range(40):
    state, metrics, _ = learner.update(state, [rows()])
    losses.append(float(metrics.sums['loss']))
  assert losses[0] > 1.0 and losses[-1] < 0.2
  engine = engine_lib.Engine(
    READER,
    MESH,
    num_slots=2,
    context_length=LENGTH,
    max_turn_tokens=3,
    extend_rows=2,
    extend_chunk=3,
    decode_chunk=2,
    stop_ids=(STOP,),
  )
  assert engine.publish(state.params, 1)
  contexts = {engine.acquire(): [0, 1], engine.acquire(): [3, 4, 5, 0]}
  told = {slot: [] for slot in contexts}
  new = dict(contexts)
  for turn in range(2):  # the second extends what the first left
    for slot, tokens in new.items():
      engine.request(
        slot,
        tokens,
        words=np.array([turn, slot], np.uint32),
        temperature=0.0,
        budget=3,
      )
    new = {}
    while engine.busy:
      for done in engine.pump():
        contexts[done.slot] = [*contexts[done.slot], *done.tokens]
        told[done.slot] += done.logprobs
        new[done.slot] = [done.tokens[-1]]
  expected = {0: [0, 1, 2, 3, 4, 5, 0, 1], 1: [3, 4, 5, 0, 1, 2, 3, 4, 5, 0]}
  assert sorted(contexts.values()) == sorted(expected.values())
  for slot, tokens in contexts.items():
    batch = collate.empty_rows(1, LENGTH)
    batch.tokens[0, : len(tokens)] = tokens
    batch.positions[:] = np.arange(LENGTH)
    batch.segment_ids[0, : len(tokens)] = 1
    logprobs, _ = objective.logprobs_and_entropy(
      READER, state.params, batch, 1.0
    )
    ours = logprobs[0, len(tokens) - 6 : len(tokens)]
    np.testing.assert_allclose(told[slot], ours, atol=1e-5)


def test_a_slot_is_refilled_without_being_wiped(weights):
  """What an older, longer context left behind is the future."""
  from agentrl_jax.models import cache

  held = cache.init(READER, 2, LENGTH)
  assert cache.num_bytes(READER, 2, LENGTH) == held.tokens.nbytes
  old = jnp.full((1, LENGTH), 5)
  places = jnp.arange(LENGTH)[None]
  slot = jnp.array([1])
  given = dict(positions=places, slots=slot)
  held = transformer.hidden(READER, weights, old, cache=held, **given).cache
  tokens = jnp.array([[1, 2, 3, 0]])
  given['positions'] = jnp.array([[0, 1, 2, LENGTH]])  # the last is idle
  output = transformer.hidden(READER, weights, tokens, cache=held, **given)
  alone = transformer.hidden(READER, weights, tokens[:, :3]).hidden
  np.testing.assert_allclose(output.hidden[:, :3], alone, atol=1e-5)
  np.testing.assert_array_equal(
    output.cache.tokens, [[0] * LENGTH, [1, 2, 3] + [5] * (LENGTH - 3)]
  )
