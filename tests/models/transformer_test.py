"""Locks the decoder: packed = alone, remat and unrolling, golden numbers."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.models import params, transformer
from agentrl_jax.models.config import PRESETS, ModelConfig

TINY = ModelConfig(
  vocab_size=11, embedding_std=0.5, **{**PRESETS['tiny'], 'num_layers': 3}
)


def change(**fields):
  return dataclasses.replace(TINY, **fields)


@pytest.fixture(scope='module')
def weights(draw_params):
  return draw_params(TINY)


def tokens(*shape, seed=0):
  return np.random.default_rng(seed).integers(0, 11, shape).astype(np.int32)


@functools.partial(jax.jit, static_argnums=0)
def forward(config, weights, tokens, positions=None, segments=None):
  return transformer.forward(
    config, weights, tokens, positions=positions, segment_ids=segments
  )[0]


def test_golden_logits():
  """Fixed weights that do not hang on a random generator."""
  fixed = jax.tree.map(
    lambda x: (
      jnp.cos(jnp.arange(x.size, dtype=jnp.float32)).reshape(x.shape) / 3
    ),
    params.abstract(TINY),
  )
  logits = forward(TINY, fixed, jnp.array([[1, 2, 3, 4]], jnp.int32))
  np.testing.assert_allclose(logits[0, :, :3], GOLDEN, atol=2e-5)


GOLDEN = [
  [0.104393, 0.024228, -0.078212],
  [0.006215, -0.089026, -0.102417],
  [-0.070076, -0.088397, -0.025447],
  [-0.099937, -0.056715, 0.03865],
]


def test_eager_runs_under_strict_shapes(weights):
  eager = transformer.forward(TINY, weights, tokens(2, 5))[0]
  np.testing.assert_allclose(
    eager, forward(TINY, weights, tokens(2, 5)), atol=1e-5
  )


@pytest.mark.parametrize(
  'fields',
  [
    {},
    {'num_kv_heads': 1},
    {'num_kv_heads': 4},
    {'qk_norm': False},
    {'tie_embeddings': True},
  ],
  ids=str,
)
def test_packed_equals_alone(fields, draw_params):
  config = change(**fields)
  weights = draw_params(config)
  first, second = tokens(1, 5, seed=1), tokens(1, 8, seed=2)
  packed = np.concatenate([first, second, np.zeros((1, 3), np.int32)], axis=1)
  positions = np.array([[*range(5), *range(8), 0, 0, 0]])
  segments = np.array([[1] * 5 + [2] * 8 + [0] * 3])
  logits = forward(config, weights, packed, positions, segments)
  assert np.isfinite(logits).all()
  for part, alone in ((logits[:, :5], first), (logits[:, 5:13], second)):
    np.testing.assert_allclose(part, forward(config, weights, alone), atol=1e-5)


def test_what_stands_elsewhere_changes_nothing_bitwise(weights):
  positions = np.array([[*range(5), *range(8), 0, 0, 0]] * 2)
  segments = np.array([[1] * 5 + [2] * 8 + [0] * 3] * 2)
  one = tokens(2, 16, seed=3)
  other = one.copy()
  other[1] = 7  # another row
  other[0, 5:] = (other[0, 5:] + 1) % 11  # another segment, padding
  a = forward(TINY, weights, one, positions, segments)
  b = forward(TINY, weights, other, positions, segments)
  np.testing.assert_array_equal(a[0, :5], b[0, :5])
  assert not np.allclose(a[0, 5:], b[0, 5:])


def test_the_future_changes_nothing_and_the_past_does(weights):
  one, other = tokens(1, 9), tokens(1, 9)
  other[0, 6] = (other[0, 6] + 1) % 11
  a, b = forward(TINY, weights, one), forward(TINY, weights, other)
  np.testing.assert_array_equal(a[0, :6], b[0, :6])
  assert (np.abs(a[0, 6:] - b[0, 6:]).max(-1) > 1e-4).all()


def test_order_of_tokens_matters(weights):
  """Without rotary positions the last logits would be the same."""
  a = forward(TINY, weights, jnp.array([[1, 2, 3]]))
  b = forward(TINY, weights, jnp.array([[2, 1, 3]]))
  assert np.abs(a[0, 2] - b[0, 2]).max() > 1e-3


@pytest.mark.parametrize(
  'fields',
  [{'remat': 'block'}, {'remat': 'dots'}, {'scan_unroll': 3}],
  ids=str,
)
def test_how_it_is_run_changes_no_loss_and_no_gradient(weights, fields):
  assert_same_gradients(TINY, change(**fields), weights)


def test_layers_of_two_kinds_are_recomputed_too(weights):
  mixed = change(sliding_window=3, sliding_layers=(True, False))
  recomputed = dataclasses.replace(mixed, remat='block')
  assert_same_gradients(mixed, recomputed, weights)
  assert not np.allclose(
    forward(mixed, weights, tokens(2, 6)), forward(TINY, weights, tokens(2, 6))
  )


def assert_same_gradients(one, other, weights):
  def loss(config, weights):
    logits = transformer.forward(config, weights, tokens(2, 6))[0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - logits[..., 0])

  run = jax.jit(jax.value_and_grad(loss, 1), static_argnums=0)
  chex.assert_trees_all_close(run(one, weights), run(other, weights), atol=1e-6)


def test_bfloat16_is_near_float32(weights):
  config = change(dtype='bfloat16')
  output = transformer.hidden(config, weights, tokens(1, 6))
  assert output.hidden.dtype == jnp.bfloat16
  logits = forward(config, weights, tokens(1, 6))
  assert logits.dtype == jnp.float32
  exact = forward(TINY, weights, tokens(1, 6))
  gap = np.abs(logits - exact)
  assert 1e-4 < gap.max() < 0.3
