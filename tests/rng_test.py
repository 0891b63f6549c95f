"""Locks random streams: by name and index, for ever the same."""

import itertools

import jax
import numpy as np

from agentrl_jax import rng

GOLDEN = [3764335476, 1265904541]


def test_words_are_what_they_always_were():
  """A run resumed by a later version draws the same numbers."""
  np.testing.assert_array_equal(rng.words(0, 'init'), GOLDEN)
  assert rng.words(0, 'init').dtype == np.uint32


def test_every_part_and_the_order_count():
  parts = (3, 'train', 5, 'flight/7', 0, 1, 2)
  variants = [parts]
  for i, part in enumerate(parts):
    other = part + 'x' if isinstance(part, str) else part + 8
    variants.append((*parts[:i], other, *parts[i + 1 :]))
  variants.append((3, 'train', 5, 'flight/7', 1, 0, 2))
  keys = {rng.sampling_words(*v).tobytes() for v in variants}
  assert len(keys) == len(variants)


def test_parts_do_not_run_together():
  pairs = [('a', 'bc'), ('ab', 'c'), ('abc',), (1, 2), (12,), ('1', '2')]
  assert len({rng.words(*p).tobytes() for p in pairs}) == len(pairs)


def test_a_numpy_integer_is_its_integer():
  np.testing.assert_array_equal(rng.words(np.int64(3), 'x'), rng.words(3, 'x'))
  assert (rng.words('3', 'x') != rng.words(3, 'x')).any()


def test_members_and_purposes_do_not_share_keys():
  grid = itertools.product(('train', 'eval', 'greedy'), range(4), range(8))
  keys = {
    rng.sampling_words(0, purpose, 1, 'task', sample, 0, turn).tobytes()
    for purpose, turn, sample in grid
  }
  assert len(keys) == 3 * 4 * 8


def test_streams_and_generators_repeat():
  a, b = rng.stream(1, 'init'), rng.stream(2, 'init')
  assert jax.random.uniform(a) == jax.random.uniform(rng.stream(1, 'init'))
  assert jax.random.uniform(a) != jax.random.uniform(b)
  first = rng.generator(1, 'tasks').permutation(20)
  np.testing.assert_array_equal(
    first, rng.generator(1, 'tasks').permutation(20)
  )
  assert (first != rng.generator(2, 'tasks').permutation(20)).any()
