"""Locks off-policy weights and masks: neutral on-policy, right off it."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax import losses

RATIO = np.array([[1.0, 4.0, 0.25, 1.0], [0.1, 3.0, 1.0, 9.0]], np.float32)
IDS = np.array([[0, 0, 0, 1], [2, 2, -1, 7]], np.int32)
MASK = np.array([[True, True, True, True], [True, True, True, False]])
PROXIMAL = np.where(MASK, np.log(RATIO), np.nan)
BEHAVIOR = np.where(MASK, np.zeros((2, 4), np.float32), np.nan)


class CorrectionTest(chex.TestCase):
  def test_sequences_over_random_cases(self):
    f = jax.jit(
      lambda p, b, i, m: (
        losses.truncated_importance_weights(
          p, b, m, level='sequence', sequence_ids=i
        ),
        losses.geometric_rejection_mask(p, b, i, m, low=0.9, high=1.1),
        losses.veto_mask(p, b, i, m, threshold=0.5),
        losses.icepop_mask(p, b, m, low=0.8, high=1.2),
      )
    )
    for seed in range(200):
      rng = np.random.default_rng(seed)
      ids = rng.integers(-1, 6, (4, 7))
      ids[0, 0] = 27
      mask = rng.random((4, 7)) < 0.7
      behavior = rng.normal(size=(4, 7)).astype(np.float32)
      log_ratio = np.float32(0.3) * rng.normal(size=(4, 7)).astype(np.float32)
      want = np.zeros((4, 4, 7))
      ratio = np.exp(np.float64(log_ratio))
      want[3] = mask & (ratio >= 0.8) & (ratio <= 1.2)
      for k in set(ids[mask].tolist()) - {-1}:
        own = mask & (ids == k)
        logs = np.float64(log_ratio[own])
        want[0][own] = min(np.exp(logs.sum()), 2)
        want[1][own] = 0.9 <= np.exp(logs.mean()) <= 1.1
        want[2][own] = np.exp(logs.min()) >= 0.5
      got = f(behavior + log_ratio, behavior, ids, mask)
      np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)
      np.testing.assert_array_equal(got[1], want[1])
      np.testing.assert_array_equal(got[2], want[2])
      np.testing.assert_array_equal(got[3], want[3])

  def test_truncated_weights_by_hand(self):
    f = jax.jit(
      losses.truncated_importance_weights, static_argnames=('level', 'cap')
    )
    out = f(PROXIMAL, BEHAVIOR, MASK)
    want = [[1, 2, 0.25, 1], [0.1, 2, 1, 0]]
    np.testing.assert_allclose(out, want, rtol=1e-5)
    # Products: 1*4/4 = 1; 1; .1*3 = .3; the token without a turn: 0.
    out = f(PROXIMAL, BEHAVIOR, MASK, level='turn', sequence_ids=IDS)
    want = [[1, 1, 1, 1], [0.3, 0.3, 0, 0]]
    np.testing.assert_allclose(out, want, rtol=1e-5)
    with pytest.raises(ValueError, match='sequence_ids'):
      losses.truncated_importance_weights(
        PROXIMAL, BEHAVIOR, MASK, level='sequence'
      )

  def test_masks_by_hand(self):
    out = losses.icepop_mask(PROXIMAL, BEHAVIOR, MASK)
    want = [[True, True, False, True], [False, True, True, False]]
    np.testing.assert_array_equal(out, want)
    out = losses.icepop_mask(PROXIMAL, BEHAVIOR, MASK, high=3.5)
    np.testing.assert_array_equal(out[0], [True, False, False, True])
    # Geometric means: 1, 1, sqrt(.3) = .55.
    out = losses.geometric_rejection_mask(
      PROXIMAL, BEHAVIOR, IDS, MASK, low=0.9, high=1.1
    )
    want = [[True, True, True, True], [False, False, False, False]]
    np.testing.assert_array_equal(out, want)
    out = losses.veto_mask(PROXIMAL, BEHAVIOR, IDS, MASK, threshold=0.2)
    np.testing.assert_array_equal(out, want)
    out = losses.veto_mask(PROXIMAL, BEHAVIOR, IDS, MASK, threshold=0.3)
    want = [[False, False, False, True], [False, False, False, False]]
    np.testing.assert_array_equal(out, want)

  def test_on_policy_changes_nothing(self):
    grouped = MASK & (IDS >= 0)
    same = (PROXIMAL, PROXIMAL)
    out = losses.truncated_importance_weights(*same, MASK)
    np.testing.assert_array_equal(out, MASK)
    np.testing.assert_array_equal(losses.icepop_mask(*same, MASK), MASK)
    for f in (losses.geometric_rejection_mask, losses.veto_mask):
      np.testing.assert_array_equal(f(*same, IDS, MASK), grouped)

  def test_no_gradient_passes(self):
    def f(x):
      w = losses.truncated_importance_weights(x, BEHAVIOR, MASK)
      p = losses.interpolated_proximal_logprobs(
        x, BEHAVIOR, IDS, MASK, version=3
      )
      return jnp.sum(w) + jnp.sum(p)

    assert not np.any(jax.grad(f)(PROXIMAL))

  def test_interpolated_proximal_by_hand(self):
    # Ages 0, 1, 2, 4 at version 5: alpha 0, 0, 1/2, 3/4 of the way from
    # behavior -1 to current -3.
    out = losses.interpolated_proximal_logprobs(
      jnp.full((1, 5), -3.0),
      jnp.full((1, 5), -1.0),
      jnp.array([[5, 4, 3, 1, -1]]),
      jnp.array([[True, True, True, True, False]]),
      version=5,
    )
    np.testing.assert_allclose(out, [[-1, -1, -2, -2.5, 0]])

  @chex.variants(with_jit=True, without_jit=True)
  def test_diagnostics_by_hand(self):
    # Ratios 1, 2, .5: mean 7/6, two of three outside .8..1.2.
    # r - 1 - log r: 0, 1 - log 2, -.5 + log 2: sum .5.
    # ESS: 3.5^2 / (3 * 5.25).
    new = jnp.log(jnp.array([[1.0, 2.0, 0.5, 7.0]]))
    mask = jnp.array([[True, True, True, False]])
    out = self.variant(losses.diagnostics)(new, jnp.zeros((1, 4)), mask)
    want = {
      'ratio_mean': 7 / 6,
      'ratio_max': 2,
      'clip_fraction': 2 / 3,
      'approx_kl': 0.5 / 3,
      'mismatch': 2 * np.log(2) / 3,
      'ess': 3.5**2 / (3 * 5.25),
    }
    assert out.keys() == want.keys()
    for name, value in want.items():
      np.testing.assert_allclose(out[name], value, rtol=1e-5, err_msg=name)

  def test_diagnostics_of_nothing_are_zero(self):
    x = jnp.full((1, 2), jnp.nan)
    out = losses.diagnostics(x, x, jnp.zeros((1, 2), bool))
    assert not any(np.any(v) for v in out.values()), out

  def test_staleness_by_hand(self):
    out = losses.staleness_histogram(
      jnp.array([[5, 4, 1, -1]]),
      jnp.array([[True, True, True, False]]),
      version=5,
      num_bins=3,
    )
    np.testing.assert_array_equal(out, [1, 1, 1])
