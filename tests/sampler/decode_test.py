"""Locks the two device programs where the engine cannot reach them."""

import dataclasses

import jax
import numpy as np
import pytest

from agentrl_jax.models import params
from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.sampler import decode

TINY = ModelConfig(vocab_size=13, embedding_std=0.5, **PRESETS['tiny'])
SLOTS, COLUMNS, TURN = 4, 16, 6
EXTEND = jax.jit(decode.extend, static_argnums=0, static_argnames='stop_ids')
DECODE = jax.jit(decode.decode, static_argnums=0, static_argnames='stop_ids')


@pytest.fixture(scope='module')
def weights(draw_params):
  return params.unstack(draw_params(TINY))


def extension(slots, counts, *, final=True, start=0):
  rows = len(slots)
  tokens = np.random.default_rng(0).integers(0, 12, (rows, 4))
  return decode.Extension(
    slots=np.int32(slots),
    tokens=tokens.astype(np.int32),
    start=np.full(rows, start, np.int32),
    count=np.int32(counts),
    final=np.full(rows, final) & (np.array(counts) > 0),
    words=np.arange(2 * rows, dtype=np.uint32).reshape(rows, 2),
    temperature=np.ones(rows, np.float32),
    budget=np.full(rows, TURN, np.int32),
  )


@pytest.fixture(scope='module')
def started(weights):
  """Slots 3 and 1 in a turn; 0 and 2 empty."""
  state = decode.init(TINY, SLOTS, COLUMNS, TURN)
  new = extension([3, 1, SLOTS], [4, 2, 0])
  return EXTEND(TINY, weights, state, new, stop_ids=())


def test_extend_touches_its_slots_only(started):
  np.testing.assert_array_equal(started.length, [0, 2, 0, 4])
  np.testing.assert_array_equal(started.live, [False, True, False, True])
  np.testing.assert_array_equal(started.count, [0, 1, 0, 1])
  np.testing.assert_array_equal(started.budget, [0, TURN, 0, TURN])
  np.testing.assert_array_equal(started.words[3], [0, 1])
  np.testing.assert_array_equal(started.words[1], [2, 3])
  for layer in started.cache.keys:
    filled = np.abs(layer).max((1, 3)) > 0  # [slots, blocks, columns]
    filled = filled.reshape(len(filled), -1)
    np.testing.assert_array_equal(filled.sum(1), [0, 2, 0, 4])


def test_a_part_of_a_prompt_starts_no_turn(weights):
  state = decode.init(TINY, SLOTS, COLUMNS, TURN)
  new = extension([2], [4], final=False)
  state = EXTEND(TINY, weights, state, new, stop_ids=())
  np.testing.assert_array_equal(state.length, [0, 0, 4, 0])
  assert not state.live.any() and not state.count.any()


def test_decode_fills_turns_and_leaves_the_rest(weights, started):
  state, used = DECODE(
    TINY, weights, started, np.int32(99), np.int32(1), stop_ids=()
  )
  np.testing.assert_array_equal(state.count, [0, TURN, 0, TURN])
  # The last token of a turn is in no cache.
  np.testing.assert_array_equal(
    state.length, [0, 2 + TURN - 1, 0, 4 + TURN - 1]
  )
  np.testing.assert_array_equal(used, [TURN - 1, 2 * (TURN - 1)])
  assert not state.live.any()
  np.testing.assert_array_equal(state.tokens[0], 0)
  np.testing.assert_array_equal(state.tokens[1, -1], state.last_token[1])
  for before, after in zip(started.cache.values, state.cache.values):
    np.testing.assert_array_equal(before[0], after[0])
    np.testing.assert_array_equal(before[1, :, :2], after[1, :, :2])


def test_steps_are_bounded_and_go_on(weights, started):
  whole = DECODE(
    TINY, weights, started, np.int32(99), np.int32(1), stop_ids=()
  )[0]
  state = started
  for steps in (2, 0, 1, 9):
    state, used = DECODE(
      TINY, weights, state, np.int32(steps), np.int32(1), stop_ids=()
    )
    assert used[0] == min(steps, 2) if steps < 9 else 2
  jax.tree.map(np.testing.assert_array_equal, whole, state)


def test_returns_once_few_slots_are_live(weights, started):
  """Slot 1 ends after 2 tokens; with stop_below=2 decoding returns then."""
  short = started.replace(budget=np.int32([0, 2, 0, TURN]))
  run = (TINY, weights, short, np.int32(99))
  state, used = DECODE(*run, np.int32(2), stop_ids=())
  assert used[0] == 1
  np.testing.assert_array_equal(state.live, [False, False, False, True])
  state, used = DECODE(*run, np.int32(1), stop_ids=())
  np.testing.assert_array_equal(used, [TURN - 1, TURN])


def test_nan_in_a_slot_stays_there(weights, started):
  poison = started.replace(
    cache=jax.tree.map(lambda x: x.at[1].set(np.nan), started.cache)
  )
  clean, _ = DECODE(
    TINY, weights, started, np.int32(9), np.int32(1), stop_ids=()
  )
  ill, _ = DECODE(TINY, weights, poison, np.int32(9), np.int32(1), stop_ids=())
  np.testing.assert_array_equal(clean.tokens[3], ill.tokens[3])
  np.testing.assert_array_equal(clean.logprobs[3], ill.logprobs[3])
  assert np.isnan(ill.logprobs[1]).any()


def test_bfloat16_decodes(draw_params):
  config = dataclasses.replace(TINY, dtype='bfloat16')
  weights = params.unstack(draw_params(config))
  state = decode.init(config, SLOTS, COLUMNS, TURN)
  state = EXTEND(config, weights, state, extension([0], [3]), stop_ids=())
  state, _ = DECODE(
    config, weights, state, np.int32(99), np.int32(1), stop_ids=()
  )
  assert state.count[0] == TURN
  assert state.logprobs.dtype == np.float32
  assert np.isfinite(state.logprobs[0]).all() and (state.logprobs[0] < 0).all()
