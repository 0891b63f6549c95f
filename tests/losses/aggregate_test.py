"""Locks how much a token counts, over padding, packing and microbatches."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax import losses

R, T = 4, 8
KINDS = tuple(losses.WEIGHTINGS)


def random_rows(seed):
  """(mask, sequence ids, trajectory ids): several sequences per row."""
  rng = np.random.default_rng(seed)
  sequences = np.sort(rng.integers(0, 3, (R, T)), 1) + 3 * np.arange(R)[:, None]
  sequences = np.where(rng.random((R, T)) < 0.1, -1, sequences)
  sequences[-1, -1] = R * T - 1
  owner = rng.integers(0, 5, R * T)
  trajectories = np.where(sequences >= 0, owner[sequences], -1)
  mask = rng.random((R, T)) < 0.6
  mask[seed % R] = False
  return mask, sequences.astype(np.int32), trajectories.astype(np.int32)


def numpy_weights(kind, mask, sequences, trajectories):
  out = np.zeros(mask.shape)
  ids = trajectories if kind == 'trajectory' else sequences
  groups = [mask & (ids == k) for k in set(ids[mask].tolist()) - {-1}]
  if kind == 'token':
    return mask / max(mask.sum(), 1)
  if kind == 'constant':
    return mask / 12.0
  for group in groups:
    out[group] = 1 / len(groups)
    if kind != 'sequence_token_sum':
      out[group] /= group.sum()
  return out


class AggregateTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_weights_by_hand(self):
    # Sequences: 0 with 2 trained tokens, 1 with 1, 2 with 1 of trajectory 0
    # again, 3 with none. n = 3; trajectories 0 (3 tokens) and 1 (1 token).
    mask = jnp.array([[True, True, True, False], [True, False, False, False]])
    sequences = jnp.array([[0, 0, 1, 1], [2, 3, 3, -1]])
    trajectories = jnp.array([[0, 0, 1, 1], [0, 1, 1, -1]])
    names = ('weighting', 'constant')
    f = self.variant(losses.token_weights, static_argnames=names)
    want = {
      'token': [[1 / 4, 1 / 4, 1 / 4, 0], [1 / 4, 0, 0, 0]],
      'sequence_token_mean': [[1 / 6, 1 / 6, 1 / 3, 0], [1 / 3, 0, 0, 0]],
      'sequence_token_sum': [[1 / 3, 1 / 3, 1 / 3, 0], [1 / 3, 0, 0, 0]],
      'trajectory': [[1 / 6, 1 / 6, 1 / 2, 0], [1 / 6, 0, 0, 0]],
      'constant': [[0.1, 0.1, 0.1, 0], [0.1, 0, 0, 0]],
    }
    for kind, weights in want.items():
      out = f(
        mask,
        weighting=kind,
        sequence_ids=sequences,
        trajectory_ids=trajectories,
        constant=10.0,
      )
      np.testing.assert_allclose(out, weights, rtol=1e-6, err_msg=kind)

  def test_oracle_over_random_cases(self):
    f = jax.jit(
      lambda m, s, t, bound=None: {
        kind: losses.token_weights(
          m,
          weighting=kind,
          sequence_ids=s,
          trajectory_ids=t,
          num_sequences=bound,
          num_trajectories=bound,
          constant=12.0,
        )
        for kind in KINDS
      },
      static_argnames='bound',
    )
    for seed in range(200):
      rows = random_rows(seed)
      loose = f(*rows, bound=50)
      for kind, got in f(*rows).items():
        want = numpy_weights(kind, *rows)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(got, loose[kind])

  def test_packing_changes_nothing(self):
    # The same four sequences, one a row or all in one row.
    lengths = [3, 1, 4, 2]
    wide = np.arange(4)[None] < np.array(lengths)[:, None]
    ids = np.broadcast_to(np.arange(4)[:, None], (4, 4))
    packed_ids = np.repeat(np.arange(4), lengths)[None]
    packed = np.ones(packed_ids.shape, bool)
    for kind in ('sequence_token_mean', 'sequence_token_sum', 'trajectory'):
      a, b = (
        losses.token_weights(
          m, weighting=kind, sequence_ids=i, trajectory_ids=i
        )
        for m, i in ((wide, ids), (packed, packed_ids))
      )
      np.testing.assert_allclose(a[wide], b[0], rtol=1e-6)

  def test_microbatches_add(self):
    mask, sequences, _ = random_rows(1)
    w = losses.token_weights(
      mask, weighting='sequence_token_mean', sequence_ids=sequences
    )
    x = np.random.default_rng(0).normal(size=(R, T)).astype(np.float32)
    whole = losses.aggregate(x, w)
    parts = sum(losses.aggregate(x[r : r + 1], w[r : r + 1]) for r in range(R))
    np.testing.assert_allclose(parts, whole, rtol=1e-5)
    np.testing.assert_allclose(np.sum(w), 1, rtol=1e-6)

  def test_zero_times_nan_is_zero_in_value_and_gradient(self):
    w = jnp.array([[0.5, 0.0, 0.0]])
    x = jnp.array([[2.0, jnp.nan, jnp.inf]])
    value, grad = jax.value_and_grad(losses.aggregate)(x, w)
    np.testing.assert_array_equal(value, 1.0)
    np.testing.assert_array_equal(grad, [[0.5, 0, 0]])

  def test_empty_mask_weighs_nothing(self):
    mask, ids = jnp.zeros((2, 3), bool), jnp.zeros((2, 3), jnp.int32)
    for kind in KINDS:
      out = losses.token_weights(
        mask,
        weighting=kind,
        sequence_ids=ids,
        trajectory_ids=ids,
        constant=1.0,
      )
      assert not np.any(out), kind

  def test_missing_ids_are_an_error(self):
    mask = jnp.ones((1, 2), bool)
    with pytest.raises(ValueError, match='sequence_ids'):
      losses.token_weights(mask, weighting='sequence_token_mean')
    with pytest.raises(ValueError, match='trajectory_ids'):
      losses.token_weights(mask, weighting='trajectory')
    with pytest.raises(ValueError, match='constant'):
      losses.token_weights(mask, weighting='constant')
    with pytest.raises(ValueError, match='allowed: token'):
      losses.token_weights(mask, weighting='sequence')
