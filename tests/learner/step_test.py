"""Locks the update: microbatches, padding, masks, what is not finite."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax import losses, sharding
from agentrl_jax.learner import objective, optimizer, step
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.rollout import collate

TINY = ModelConfig(vocab_size=11, embedding_std=0.5, **PRESETS['tiny'])
MESH = sharding.make_mesh(dict(data=1, fsdp=1, tensor=1))
ROWS, LENGTH = 4, 12
OPTIONS = dict(
  name='adam',
  learning_rate=1e-2,
  warmup=0,
  schedule='constant',
  b1=0.9,
  b2=0.99,
  epsilon=1e-8,
  weight_decay=0.01,
  clip_norm=1.0,
)
POLICY = objective.PolicyObjective(
  loss=functools.partial(losses.LOSSES['ppo_clip'], dual_clip=3.0),
  entropy_coef=0.01,
)


def rows(count, seed=0):
  """Two segments and padding a row; the weights add up to 1."""
  draws = np.random.default_rng(seed)
  shape = (count, LENGTH)
  batch = collate.empty_rows(count, LENGTH)
  segments = np.broadcast_to([1] * 5 + [2] * 5 + [0] * 2, shape)
  batch.tokens[:] = draws.integers(0, 11, shape)
  batch.segment_ids[:] = segments
  batch.positions[:] = [*range(5), *range(5), 0, 0]
  batch.mask[:] = (draws.random(shape) < 0.6) & (segments > 0)
  batch.mask[:, [0, 5]] = False
  batch.advantages[:] = draws.normal(size=shape)
  batch.behavior_logprobs[:] = -2.4 + 0.3 * draws.normal(size=shape)
  batch.weights[:] = batch.mask / max(batch.mask.sum(), 1)
  return batch


@functools.cache
def learner(num_rows, name='adam'):
  return step.Learner(
    TINY, POLICY, optimizer.make({**OPTIONS, 'name': name}, 10), MESH, num_rows
  )


@pytest.fixture(scope='module')
def weights(draw_params):
  return draw_params(TINY)


def update(weights, batches, name='adam'):
  """(weights, metrics, info) after one update from the start."""
  built = learner(batches[0].tokens.shape[0], name)
  state, metrics, info = built.update(built.create(weights), batches)
  return jax.device_get((state.params, metrics, info))


@pytest.fixture(scope='module')
def whole(weights):
  return update(weights, [rows(2 * ROWS)])


def test_microbatches_add_up_to_one_batch(weights, whole):
  batch = rows(2 * ROWS)
  parts = update(weights, collate.microbatches(batch, ROWS))
  for a, b in zip(whole[1:], parts[1:], strict=True):
    chex.assert_trees_all_close(a, b, rtol=1e-5, atol=1e-6)
  # Adam's first step is the sign of the gradient: what is almost 0 may flip.
  chex.assert_trees_all_close(whole[0], parts[0], atol=2e-4)
  one, two = (
    gradient(weights, batches)
    for batches in ([batch], collate.microbatches(batch, ROWS))
  )
  chex.assert_trees_all_close(one, two, atol=1e-6)
  assert max(np.abs(x).max() for x in jax.tree.leaves(one)) > 1e-3


@functools.partial(jax.jit, static_argnames='policy')
def _gradient(weights, batch, policy=POLICY):
  return jax.grad(lambda p: policy(TINY, p, batch)[0])(weights)


def gradient(weights, batches):
  parts = [_gradient(weights, batch) for batch in batches]
  return jax.tree.map(lambda *x: sum(x), *parts)


def test_empty_rows_change_nothing(weights, whole):
  batch = jax.tree.map(
    lambda a, b: np.concatenate([a, b]),
    rows(2 * ROWS),
    collate.empty_rows(ROWS, LENGTH),
  )
  padded = update(weights, collate.microbatches(batch, ROWS))
  chex.assert_trees_all_close(whole[1], padded[1], rtol=1e-5, atol=1e-6)
  chex.assert_trees_all_close(whole[0], padded[0], atol=2e-4)


def test_what_stands_under_the_mask_changes_no_bit(weights, whole):
  batch = rows(2 * ROWS)
  for values in (batch.behavior_logprobs, batch.advantages):
    values[~batch.mask] = np.nan
  chex.assert_trees_all_equal(whole, update(weights, [batch]))


def bad(kind):
  batch = rows(ROWS)
  place = tuple(np.argwhere(batch.mask)[0])
  if kind == 'gradient':
    batch.advantages[place] = np.nan
  else:
    batch.weights[place] = np.inf
  return batch


@pytest.mark.parametrize('kind', ['gradient', 'weight'])
def test_a_bad_update_is_skipped_counted_and_recovered_from(weights, kind):
  built = learner(ROWS)
  state, _, _ = built.update(built.create(weights), [rows(ROWS)])
  before = jax.device_get(state)
  for skipped in (1, 2):
    state, _, info = built.update(state, [rows(ROWS), bad(kind)])
    assert not info['finite']
    chex.assert_trees_all_equal(
      (before.params, before.opt_state),
      jax.device_get((state.params, state.opt_state)),
    )
    assert int(state.skipped) == int(state.skipped_in_row) == skipped
    assert int(state.updates) == 1
  state, _, info = built.update(state, [rows(ROWS, seed=1)])
  assert info['finite']
  counts = state.updates, state.skipped, state.skipped_in_row
  assert [int(x) for x in counts] == [2, 2, 0]
  # As though the bad ones had never been.
  other = built.create(weights)
  for seed in (0, 1):
    other, _, _ = built.update(other, [rows(ROWS, seed)])
  chex.assert_trees_all_equal(*jax.device_get((state.params, other.params)))


def test_a_loss_that_is_not_finite_is_skipped_too(weights):
  """log 0 in a reference makes the loss infinite and no gradient."""

  def endless(config, params, batch):
    loss, metrics = POLICY(config, params, batch)
    metrics.sums['loss'] = jnp.where(batch.tokens[0, 0] == 0, jnp.inf, loss)
    return loss, metrics

  built = step.Learner(TINY, endless, optimizer.make(OPTIONS, 9), MESH, ROWS)
  batch = rows(ROWS)
  batch.tokens[0, 0] = 0
  state, _, info = built.update(built.create(weights), [batch])
  assert np.isfinite(info['grad_norm']) and not info['finite']
  chex.assert_trees_all_equal(*jax.device_get((state.params, weights)))


@pytest.mark.parametrize('name', ['adam', 'adamw', 'muon', 'sgd'])
def test_every_optimizer_lowers_the_loss(weights, name):
  built = learner(ROWS, name)
  state = built.create(weights)
  seen = []
  for _ in range(4):
    state, metrics, info = built.update(state, [rows(ROWS)])
    seen.append(float(metrics.sums['loss']))
    assert float(info['update_norm']) > 0
  assert seen[-1] < seen[0]


def test_state_is_donated_and_the_callers_weights_are_not(weights):
  built = learner(ROWS)
  mine = jax.tree.map(jnp.copy, weights)
  state = built.create(mine)
  held = state.params['head'].unsafe_buffer_pointer()
  new, _, _ = built.update(state, [rows(ROWS)])
  assert state.params['head'].is_deleted()
  assert jax.tree.leaves(state.opt_state)[-1].is_deleted()
  assert new.params['head'].unsafe_buffer_pointer() == held
  chex.assert_trees_all_equal(mine, weights)  # still there, unchanged


def test_sums_and_state_are_updated_in_place(weights):
  """By XLA's own count: what is donated takes no second place in memory."""
  built = learner(ROWS)
  programs = built.lower(rows(ROWS))
  sizes = {k: x.compile().memory_analysis() for k, x in programs.items()}
  params = sum(x.nbytes for x in jax.tree.leaves(weights))
  state = sum(x.nbytes for x in jax.tree.leaves(built.create(weights)))
  assert sizes['accumulate'].alias_size_in_bytes >= params
  assert sizes['apply'].alias_size_in_bytes >= state + params
  # Besides there are metrics alone.
  for name, taken in (('accumulate', params), ('apply', state + params)):
    assert sizes[name].output_size_in_bytes < taken + 2000


def test_shapes_alone_lower_what_runs(weights):
  built = learner(ROWS)
  state = built.create(weights)
  before = jax.tree.map(np.asarray, state)
  lowered = built.lower(rows(ROWS))['accumulate'].compile()
  gradients = built._zeros(state.params)
  metrics = built._no_metrics(state.params, rows(ROWS), ())
  sums, _ = lowered(state.params, gradients, metrics, rows(ROWS), {}, {})
  want = gradient(weights, [rows(ROWS)])
  chex.assert_trees_all_close(sums, want, atol=1e-6)
  chex.assert_trees_all_equal(jax.device_get(state), before)


def test_gradients_are_taken_at_rounded_weights(weights):
  """The weights themselves stay float32 and move less than their rounding."""
  config = dataclasses.replace(TINY, dtype='bfloat16')
  options = {**OPTIONS, 'learning_rate': 1e-5}
  built = step.Learner(
    config, POLICY, optimizer.make(options, 9), MESH, ROWS, 'bfloat16'
  )
  state = built.create(weights)
  rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16), weights)
  want = jax.jit(jax.grad(lambda p: POLICY(config, p, rows(ROWS))[0]))(rounded)
  norm = np.sqrt(sum(np.sum(np.float32(x) ** 2) for x in jax.tree.leaves(want)))
  norms = []
  for _ in range(5):
    state, _, info = built.update(state, [rows(ROWS)])
    norms.append(info['grad_norm'])
  np.testing.assert_allclose(norms[0], norm, rtol=2e-2)
  assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(state.params))
  moved = np.abs(state.params['head'] - weights['head'])
  # Five of Adam's steps of 1e-5; a weight of 0.1 in bfloat16 has steps of 5e-4.
  assert 2e-5 < np.median(moved) < 6e-5
  assert (
    jax.tree.leaves(built.lower(rows(ROWS))['accumulate'].args_info)[0].dtype
    == jnp.bfloat16
  )


def test_rows_that_do_not_divide_are_refused():
  mesh = jax.sharding.AbstractMesh((1, 3, 1, 2), sharding.AXES)
  with pytest.raises(ValueError, match='4 rows.*6 devices.*config.train.rows'):
    step.Learner(TINY, POLICY, optimizer.make(OPTIONS, 1), mesh, 4)


def test_a_value_head_learns_a_constant_return(weights):
  config = dataclasses.replace(TINY, value_head=True)
  policy = dataclasses.replace(POLICY, value_coef=1.0)
  options = {**OPTIONS, 'learning_rate': 3e-2, 'weight_decay': 0.0}
  built = step.Learner(config, policy, optimizer.make(options, 9), MESH, ROWS)
  batch = rows(ROWS)
  batch.advantages[:] = 0
  extra = {
    'returns': np.where(batch.mask, 0.8, 0).astype(np.float32),
    'old_values': np.zeros(batch.mask.shape, np.float32),
    'value_weights': batch.weights,
  }
  state = built.create(params_lib.with_value_head(config, weights))
  errors = []
  for _ in range(30):
    state, metrics, _ = built.update(state, [batch], [extra])
    errors.append(float(metrics.sums['value']))
  assert errors[0] == pytest.approx(0.64, rel=1e-5)  # from zeros
  assert errors[-1] < 0.01
  assert (np.asarray(state.params['value']['kernel']) != 0).any()
