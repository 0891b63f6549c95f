"""Locks that every way to attend sees the same tokens."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.models import fused

ROWS, T, H, K, C = 2, 128, 4, 2, 8


def arrays(length=T, seed=0):
  draws = np.random.default_rng(seed)
  q, k, v = (
    jnp.asarray(draws.normal(size=(ROWS, length, heads, C)), jnp.float32)
    for heads in (H, K, K)
  )
  # Packed: two segments, a padded tail; the second row is one segment.
  segments = np.ones((ROWS, length), np.int32)
  segments[0, length // 3 :] = 2
  segments[0, -length // 8 :] = 0
  return q, k, v, jnp.asarray(segments)


def oracle(q, k, v, segments, window):
  """One query head at a time, in float64."""
  q, k, v, segments = (np.asarray(x, np.float64) for x in (q, k, v, segments))
  out = np.zeros(q.shape)
  at = np.arange(q.shape[1])
  for r in range(len(q)):
    seen = (segments[r][:, None] == segments[r]) & (at[:, None] >= at)
    if window:
      seen &= at[:, None] - at < window
    for h in range(H):
      scores = q[r, :, h] @ k[r, :, h * K // H].T / np.sqrt(C)
      weights = np.where(seen, np.exp(scores - scores.max()), 0)
      weights /= weights.sum(axis=1, keepdims=True)
      out[r, :, h] = weights @ v[r, :, h * K // H]
  return out


WAYS = {
  'xla': fused.blocks,
  'dot_product': fused.dot_product,
  'splash': functools.partial(fused.splash, interpret=True),
}


@pytest.mark.parametrize('window', [0, 5])
@pytest.mark.parametrize('name', WAYS)
def test_each_way_gives_the_oracle(name, window):
  q, k, v, segments = arrays()
  out = jax.jit(lambda *x: WAYS[name](segments, window)(*x))(q, k, v)
  expected = oracle(q, k, v, segments, window)
  real = np.asarray(segments) > 0
  np.testing.assert_allclose(np.asarray(out)[real], expected[real], atol=2e-5)


@pytest.mark.parametrize('window', [0, 5])
def test_gradients_are_those_of_the_blocks(window):
  q, k, v, segments = arrays(length=24)

  def loss(way, *x):
    return jnp.sum(jnp.square(way(segments, window)(*x)))

  ours, theirs = (
    jax.grad(functools.partial(loss, way), argnums=(0, 1, 2))(q, k, v)
    for way in (fused.blocks, fused.dot_product)
  )
  for a, b in zip(ours, theirs, strict=True):
    np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize('window', [0, 5])
def test_gradients_of_splash_are_those_of_the_blocks(window):
  q, k, v, segments = arrays()

  def loss(way, *x):
    return jnp.sum(jnp.square(way(segments, window)(*x)))

  ours, theirs = (
    jax.grad(functools.partial(loss, way), argnums=(0, 1, 2))(q, k, v)
    for way in (fused.blocks, WAYS['splash'])
  )
  for a, b in zip(ours, theirs, strict=True):
    np.testing.assert_allclose(a, b, atol=1e-4)


def test_cudnn_is_the_same_call_with_another_implementation(monkeypatch):
  seen = []

  def called(*arrays, **options):
    seen.append(options)
    return arrays[0]

  monkeypatch.setattr(jax.nn, 'dot_product_attention', called)
  q, k, v, segments = arrays(length=16)
  for name in ('dot_product', 'cudnn'):
    fused.ATTENTIONS[name](segments, 5)(q, k, v)
  ours, theirs = seen
  assert ours.pop('implementation') == 'xla'
  assert theirs.pop('implementation') == 'cudnn'
  np.testing.assert_array_equal(ours.pop('mask'), theirs.pop('mask'))
  assert ours == theirs == {'is_causal': True, 'local_window_size': (4, 0)}


@pytest.mark.parametrize(
  'shapes, expected',
  [
    (('cpu', 'float32', 32, 384), 'xla'),
    (('gpu', 'bfloat16', 128, 384), 'cudnn'),
    (('gpu', 'float32', 128, 384), 'xla'),  # cuDNN takes half precision
    (('gpu', 'bfloat16', 256, 384), 'xla'),
    (('tpu', 'bfloat16', 128, 384), 'splash'),
    (('tpu', 'bfloat16', 128, 400), 'xla'),  # no whole blocks
  ],
)
def test_choice_by_device_and_shapes(shapes, expected):
  assert fused.best(*shapes) == expected
  assert not fused.faults(expected, *shapes[1:])


@pytest.mark.parametrize(
  'given, words',
  [
    (('cudnn', 'float32', 128, 384), 'needs bfloat16'),
    (('cudnn', 'bfloat16', 12, 384), 'head_dim'),
    (('splash', 'bfloat16', 128, 400), 'multiple of 128'),
  ],
)
def test_what_cannot_be_is_refused(given, words):
  (fault,) = fused.faults(*given)
  assert words in fault


def test_rows_that_are_no_whole_blocks_are_refused():
  *_, segments = arrays(length=24)
  with pytest.raises(ValueError, match='24 tokens.*128.*row_length'):
    fused.splash(segments)


def test_what_no_test_ran_is_said():
  assert fused.UNTESTED.keys() == fused.ATTENTIONS.keys() - {
    'xla',
    'dot_product',
  }
