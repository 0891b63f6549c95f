"""Locks the way of experts' choices: from the sampler to the gradient."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rollout_fakes as made

from agentrl_jax import losses, sharding, types
from agentrl_jax.learner import objective
from agentrl_jax.models import transformer
from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.rollout import collate, loop, store
from agentrl_jax.rollout import stream as stream_lib
from agentrl_jax.sampler.engine import Engine
from agentrl_jax.text import memory as memory_lib

# One expert a token, whose weight is then 1: a router that moves changes what
# is chosen and nothing else.
CONFIG = ModelConfig(
  vocab_size=made.language().tokenizer.vocab_size,
  embedding_std=0.5,
  num_experts=4,
  experts_per_token=1,
  d_expert=16,
  **PRESETS['tiny'],
)
POLICY = objective.PolicyObjective(loss=losses.LOSSES['ppo_clip'])
MEMORIES = {
  'append': (),
  'window': ('window', 1),
  'split': (f'{__name__}:forgetful', 1, 'keep', 'split'),
  'mask': (f'{__name__}:forgetful', 1, 'keep', 'mask'),
}


def forgetful(prompt, exchanges, window):
  """Shows replies but the last one as a dash: history is rewritten."""
  del window
  dash = (types.Message('tool', '-'),)
  old = [(said, dash) for said, _ in exchanges[:-1]]
  return memory_lib.everything(prompt, [*old, *exchanges[-1:]], 0)


@pytest.fixture(scope='module')
def weights(draw_params):
  return draw_params(CONFIG)


@pytest.fixture(scope='module')
def engine(weights):
  built = Engine(
    CONFIG,
    sharding.make_mesh({}),
    num_slots=4,
    num_lanes=2,
    context_length=128,
    max_turn_tokens=8,
    extend_rows=2,
    extend_chunk=16,
    decode_chunk=4,
    stop_ids=range(0, CONFIG.vocab_size, 4),  # an untrained policy ends, too
    record_routes=True,
  )
  built.publish(weights, 0)
  return built


@functools.cache
def _memory(name):
  memory = memory_lib.Memory(*MEMORIES[name])
  return dataclasses.replace(made.language(), memory=memory)


def play(engine, name):
  player = loop.Collector(engine, made.EchoEnv, _memory(name), made.limits())
  entries = [loop.Entry(task, s) for task in made.tasks(3) for s in range(2)]
  try:
    return player.collect(entries, loop.Draws(0, 'train', 0))
  finally:
    player.close()


def array(context):
  return collate._array(context.routes)


HIDDEN = jax.jit(transformer.hidden, static_argnums=0)


@pytest.mark.parametrize('name', MEMORIES)
def test_recorded_experts_are_those_of_the_whole_context(engine, weights, name):
  contexts = [c for t in play(engine, name) for c in t.contexts]
  assert len(contexts) > (6 if name in ('window', 'split') else 5)
  text = np.zeros((len(contexts), 128), np.int32)
  for row, context in zip(text, contexts):
    row[: len(context.tokens)] = context.tokens
  text = np.pad(text, [(0, -len(text) % 4), (0, 0)])
  expected = np.concatenate(
    [
      HIDDEN(CONFIG, weights, jnp.asarray(part)).aux['routes']
      for part in np.split(text, len(text) // 4)
    ]
  )
  different = 0
  for context, chosen in zip(contexts, expected):
    routes = array(context)
    assert routes.shape == (len(context.tokens), 2, 1)
    known = int((routes >= 0).all((1, 2)).sum())
    assert (routes[known:] == -1).all()
    # All but the last token sampled, and what no turn came after.
    assert known == max(np.flatnonzero(context.sampled_mask), default=0)
    different += (routes[:known] != chosen[:known]).sum()
  assert different <= 1  # near ties


def packed(trajectories):
  return collate.token_rows(
    trajectories,
    np.ones((len(trajectories), 4), np.float32),
    range(len(trajectories)),
    row_length=128,
    num_rows=4,
  )


@functools.partial(jax.jit, static_argnums=0)
def measured(policy, params, batch):
  return policy(CONFIG, params, batch)[1]


def test_the_first_ratio_is_one_by_replay_alone(engine, weights):
  batch = packed(play(engine, 'split'))
  (batch, *_) = collate.microbatches(batch, 4)
  batch = batch.replace(weights=np.float32(batch.mask / batch.mask.sum()))
  # The learner's router, as if its numbers were rounded otherwise.
  draws = np.random.default_rng(0)
  moved = jax.tree.map(jnp.copy, weights)
  noise = draws.normal(size=moved['layers']['router'].shape)
  moved['layers']['router'] += jnp.float32(0.05 * noise)
  held = measured(POLICY, moved, batch)
  free = measured(POLICY, moved, batch.replace(routes=None))
  assert held.maxima['ratio'] < 1e-4 < 0.05 < free.maxima['ratio']
  kept = held.sums['expert_kept'] / held.sums['expert_tokens']
  assert 0.8 < kept < 1
  assert free.sums['expert_kept'] == free.sums['expert_tokens']


def test_routes_are_on_disk_as_they_were(engine):
  for trajectory in play(engine, 'window'):
    record = store.Record(trajectory)
    assert store.loads(store.dumps(record)) == record


def test_a_sampler_that_records_nothing_gives_nothing():
  engine = made.FakeEngine(made.draw_text)
  played = play(engine, 'append')
  assert all(c.routes is None for t in played for c in t.contexts)
  assert packed(played).routes is None


def noted(*experts):
  return np.array(experts, np.int8)[:, None, None]


def test_a_stream_keeps_routes_in_line_with_its_tokens():
  stream = stream_lib.Stream()
  stream.append((5, 6), sampled=False)
  stream.append((7, 8), True, (-1.0, -1.0), (0, 0))
  stream.note_routes(noted(1, 2, 3))  # 8 was never read
  assert array(stream.context()).ravel().tolist() == [1, 2, 3, -1]
  forked = stream.copy()
  stream.cut(2)
  stream.append((9, 9, 9), sampled=False)
  assert array(stream.context()).ravel().tolist() == [1, 2, -1, -1, -1]
  stream.note_routes(noted(1, 2, 0, 0, 3))
  assert array(stream.context()).ravel().tolist() == [1, 2, 0, 0, 3]
  assert array(forked.context()).ravel().tolist() == [1, 2, 3, -1]


def test_packed_routes_lie_beside_their_tokens():
  def context(first, *experts):
    tokens = range(first, first + len(experts))
    data = noted(*experts)
    return types.Context(
      tokens=tuple(tokens),
      sampled_mask=(False, *[True] * (len(experts) - 1)),
      logprobs=(0.0,) * len(experts),
      versions=(0,) * len(experts),
      routes=types.Routes(data.shape, 'int8', data.tobytes()),
    )

  turns = [made.turn(1, 2)]
  trajectories = [
    made.trajectory(turns, [context(10, 1, 2)]),
    made.trajectory(turns, [context(20, 3, 0, -1)]),
    made.trajectory(turns, [dataclasses.replace(context(30, 1), routes=None)]),
  ]
  batch = collate.token_rows(
    trajectories,
    np.zeros((3, 1), np.float32),
    range(3),
    row_length=6,
    num_rows=2,
  )
  assert batch.tokens.tolist() == [[10, 11, 20, 21, 22, 30], [0] * 6]
  assert batch.routes[0].ravel().tolist() == [1, 2, 3, 0, -1, -1]
  assert (batch.routes[1] == -1).all() and batch.routes.dtype == np.int8
  taller = collate.pad_rows(batch, 3)
  assert taller.routes.shape == (3, 6, 1, 1) and (taller.routes[2] == -1).all()
