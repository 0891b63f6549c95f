"""Locks how log-probabilities are compared: masked first, then bounded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.losses import clamp

MASK = jnp.array([[True, True, True, False]])
NEW = jnp.array([[-1.0, 0.0, -100.0, jnp.nan]])
OLD = jnp.array([[-3.0, -100.0, 0.0, -jnp.inf]])


def test_by_hand():
  np.testing.assert_array_equal(
    clamp.difference(NEW, OLD, MASK), [[2, 100, -100, 0]]
  )
  np.testing.assert_array_equal(
    clamp.clamped_difference(NEW, OLD, MASK), [[2, 20, -20, 0]]
  )


@pytest.mark.parametrize('f', [clamp.difference, clamp.clamped_difference])
def test_what_is_masked_reaches_no_gradient(f):
  new, old = jax.grad(lambda x, y: f(x, y, MASK).sum(), (0, 1))(NEW, OLD)
  inside = [[1, 1, 1, 0]] if f is clamp.difference else [[1, 0, 0, 0]]
  np.testing.assert_array_equal(new, inside)
  np.testing.assert_array_equal(old, -np.array(inside))


def test_exponentials_of_it_are_finite_in_float32():
  largest = jnp.float32(clamp.MAX_LOG_RATIO)
  assert np.isfinite(jnp.exp(largest) ** 2)
  assert jnp.exp(-largest) > 0


def test_masks_are_bool_and_shapes_are_equal():
  with pytest.raises(AssertionError):
    clamp.difference(NEW, OLD, MASK.astype(jnp.float32))
  with pytest.raises(AssertionError):
    clamp.difference(NEW, OLD[:, :2], MASK)
