"""Locks the cache: decoding with it is the full forward, slots never mix."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.models import cache, params, transformer
from agentrl_jax.models.config import PRESETS, ModelConfig

TINY = ModelConfig(vocab_size=11, embedding_std=0.5, **PRESETS['tiny'])
SLOTS, COLUMNS = 4, 16
TEXT = np.random.default_rng(0).integers(0, 11, (SLOTS, 12)).astype(np.int32)


@pytest.fixture(scope='module')
def weights(draw_params):
  return draw_params(TINY)


@pytest.fixture(scope='module')
def full(weights):
  return transformer.forward(TINY, weights, TEXT)[0]


@functools.partial(jax.jit, static_argnums=0)
def cached(config, weights, tokens, positions, held, slots=None):
  return transformer.forward(
    config,
    params.unstack(weights),
    tokens,
    positions=positions,
    cache=held,
    slots=slots,
  )


def one_by_one(weights, held, rows=SLOTS, start=0):
  outputs = []
  for t in range(start, TEXT.shape[1]):
    positions = np.full((rows, 1), t, np.int32)
    logits, held = cached(TINY, weights, TEXT[:, t : t + 1], positions, held)
    outputs.append(logits[:, 0])
  return np.stack(outputs, axis=1), held


def test_token_by_token_equals_full_forward(weights, full):
  logits, _ = one_by_one(weights, cache.init(TINY, SLOTS, COLUMNS))
  np.testing.assert_allclose(logits, full, atol=1e-5)


def extend(weights, held, slots, starts, counts, width=5):
  """One call of `width` columns; row i has counts[i] real tokens."""
  tokens = np.zeros((len(slots), width), np.int32)
  positions = np.full((len(slots), width), COLUMNS, np.int32)
  for i, (slot, start, count) in enumerate(zip(slots, starts, counts)):
    tokens[i, :count] = TEXT[slot, start : start + count]
    positions[i, :count] = np.arange(start, start + count)
  return cached(TINY, weights, tokens, positions, held, jnp.array(slots))


def test_chunks_on_slots_in_odd_order_equal_full_forward(weights, full):
  held = cache.init(TINY, SLOTS, COLUMNS)
  for slots, starts, counts in (
    ([3, 0], [0, 0], [5, 2]),
    ([0, 2], [2, 0], [5, 5]),
    ([2, 3], [5, 5], [1, 5]),
    ([1, 0], [0, 7], [0, 5]),  # slot 1 is idle
    ([3, 2], [10, 6], [2, 5]),
  ):
    logits, held = extend(weights, held, slots, starts, counts)
    for i, (slot, start, count) in enumerate(zip(slots, starts, counts)):
      np.testing.assert_allclose(
        logits[i, :count], full[slot, start : start + count], atol=1e-5
      )
  for layer in (*held.keys, *held.values):
    np.testing.assert_array_equal(layer[1], 0.0)


def test_idle_tokens_write_nothing(weights):
  _, held = one_by_one(weights, cache.init(TINY, SLOTS, COLUMNS))
  idle = np.full((SLOTS, 1), COLUMNS, np.int32)
  idle[1] = COLUMNS + 9
  _, after = cached(TINY, weights, TEXT[:, :1], idle, held)
  jax.tree.map(np.testing.assert_array_equal, held, after)


def test_nan_of_another_slot_does_not_leak(weights, full):
  held = cache.init(TINY, SLOTS, COLUMNS)
  held = jax.tree.map(lambda x: x.at[2].set(jnp.nan), held)
  logits, _ = one_by_one(weights, held)
  others = [0, 1, 3]
  np.testing.assert_allclose(
    logits[np.array(others)], full[np.array(others)], atol=1e-5
  )
  assert np.isnan(logits[2]).any()  # the poison was real


def test_columns_of_an_older_context_are_not_seen(weights, full):
  """A slot is refilled without being wiped."""
  held = jax.tree.map(
    lambda x: jnp.full_like(x, 3.0), cache.init(TINY, SLOTS, COLUMNS)
  )
  logits, _ = one_by_one(weights, held)
  np.testing.assert_allclose(logits, full, atol=1e-5)


def test_writes_go_where_they_say():
  held = cache.init(TINY, SLOTS, COLUMNS)
  new = jnp.arange(1.0, 65).reshape(2, 2, 2, 8)  # [R, T, K, C]
  slots, positions = jnp.array([3, 1]), jnp.array([[4, COLUMNS], [0, 15]])
  keys = cache.write_keys(held.keys[0], new, slots, positions)
  values = cache.write_values(held.values[0], new, slots, positions)
  np.testing.assert_array_equal(keys[3, :, 0, :, 4], new[0, 0])
  np.testing.assert_array_equal(keys[1, :, 0, :, 15], new[1, 1])
  np.testing.assert_array_equal(values[3, :, 4], new[0, 0])
  np.testing.assert_array_equal(values[1, :, 0], new[1, 0])
  for array in (keys, values):
    assert np.count_nonzero(array) == 3 * 16  # one of four was dropped


def test_keys_lie_in_blocks():
  held = cache.init(TINY, SLOTS, 150)
  assert held.columns == 150
  assert held.keys[0].shape == (SLOTS, 2, 3, 8, 64)
  new = jnp.arange(1.0, 49).reshape(1, 3, 2, 8)
  keys = cache.write_keys(
    held.keys[0], new, jnp.array([2]), jnp.array([[63, 64, 149]])
  )
  for i, (block, column) in enumerate(((0, 63), (1, 0), (2, 21))):
    np.testing.assert_array_equal(keys[2, :, block, :, column], new[0, i])
  assert np.count_nonzero(keys) == 48


@pytest.mark.parametrize('columns', [COLUMNS, 64, 150])
def test_num_bytes_is_what_init_makes(columns):
  held = jax.tree.leaves(cache.init(TINY, SLOTS, columns))
  assert sum(x.nbytes for x in held) == cache.num_bytes(TINY, SLOTS, columns)
