"""Locks norm and feed-forward by hand."""

import jax.numpy as jnp
import numpy as np

from agentrl_jax.models import layers


def test_rms_norm_by_hand():
  # [3, 4]: mean square 12.5, epsilon 12.5: divided by 5; scaled by 2 and 10.
  out = layers.rms_norm(
    jnp.array([[3.0, 4.0]]), jnp.array([2.0, 10.0]), epsilon=12.5
  )
  np.testing.assert_allclose(out, [[1.2, 8.0]], rtol=1e-6)


def test_rms_norm_is_taken_in_float32():
  x = jnp.full((1, 4), 300.0, jnp.float16)  # its square overflows float16
  out = layers.rms_norm(x, jnp.ones(4), epsilon=1e-6)
  assert out.dtype == jnp.float16
  np.testing.assert_allclose(out, 1.0, rtol=1e-3)


def test_gated_mlp_by_hand():
  layer = {
    'gate': jnp.array([[1.0, 0.0]]),
    'up': jnp.array([[3.0, 5.0]]),
    'down': jnp.array([[2.0], [7.0]]),
  }
  # x = 1: silu(1) * 3 * 2 + silu(0) * ... = 6 / (1 + e^-1)
  out = layers.gated_mlp(jnp.ones((1, 1)), layer)
  np.testing.assert_allclose(out, [[6 / (1 + np.exp(-1))]], rtol=1e-6)


def test_the_activation_may_be_gelu():
  layer = {'gate': [[1.0]], 'up': [[3.0]], 'down': [[2.0]]}
  layer = {name: jnp.array(value) for name, value in layer.items()}
  # x = 1: 6 times 1/2 (1 + tanh(sqrt(2/π) (1 + 0.044715)))
  out = layers.gated_mlp(jnp.ones((1, 1)), layer, activation='gelu_tanh')
  inner = np.sqrt(2 / np.pi) * 1.044715
  np.testing.assert_allclose(out, [[3 * (1 + np.tanh(inner))]], rtol=1e-6)
