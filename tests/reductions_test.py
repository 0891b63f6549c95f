"""Locks reductions over ids: -1, masks, bounds, dense numbering."""

import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax import reductions

VALUES = jnp.array([1.0, 5.0, jnp.nan, 7.0, 2.0])
IDS = jnp.array([3, 0, 3, -1, 3])
MASK = jnp.array([True, True, False, True, True])


def test_segments_by_hand():
  # Id 3 holds 1 and 2 (its NaN is masked), id 0 holds 5, 7 is in no group.
  args = (VALUES, IDS, MASK)
  for bound in (4, 9):
    rest = [0.0] * (bound - 4)
    want = {
      reductions.segment_sum: [5, 0, 0, 3],
      reductions.segment_mean: [5, 0, 0, 1.5],
      reductions.segment_min: [5, 0, 0, 1],
      reductions.segment_max: [5, 0, 0, 2],
    }
    for f, values in want.items():
      np.testing.assert_array_equal(f(*args, num_ids=bound), values + rest)
    count = reductions.segment_count(IDS, MASK, num_ids=bound)
    np.testing.assert_array_equal(count, [1, 0, 0, 2, *rest])


def test_gather_does_not_wrap():
  # -1 must not read the last group's 40.
  out = reductions.gather(jnp.array([10.0, 20, 30, 40]), IDS, MASK)
  np.testing.assert_array_equal(out, [40, 10, 0, 0, 40])


def test_dense_ids_number_pairs():
  f = jax.jit(lambda a, b, m: reductions.dense_ids(a, b, mask=m))
  for seed in range(50):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-1, 4, (2, 20)) * 1_000_000
    mask = rng.random(20) < 0.8
    got = np.asarray(f(a, b, mask))
    valid = mask & (a >= 0) & (b >= 0)
    pairs = sorted(set(zip(a[valid], b[valid])))
    want = [pairs.index(pair) if v else -1 for pair, v in zip(zip(a, b), valid)]
    # The numbering is by sorted (b, a): equal up to a renaming.
    assert len(set(zip(got.tolist(), want))) == len(set(want))
    assert sorted(set(got[valid].tolist())) == list(range(len(pairs)))
    assert np.all(got[~valid] == -1)


def test_masked_mean_of_nothing_is_zero():
  assert reductions.masked_mean(VALUES, MASK) == 15 / 4
  assert reductions.masked_mean(VALUES, MASK & False) == 0
