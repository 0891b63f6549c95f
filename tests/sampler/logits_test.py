"""Locks one draw: frequencies, temperature, truncation, keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.sampler import logits as logits_lib

ROWS = 20_000
DRAW = jax.jit(logits_lib.draw)


def keys(count, seed=0):
  draws = np.random.default_rng(seed)
  return draws.integers(0, 2**32, (count, 2), dtype=np.uint32)


def softmax(logits):
  e = np.exp(np.float64(logits) - np.max(logits, -1, keepdims=True))
  return e / e.sum(-1, keepdims=True)


def draw(logits, *, rows=ROWS, temperature=1.0, truncation=None, seed=0):
  wide = np.broadcast_to(np.float32(logits), (rows, len(logits)))
  if truncation is not None:
    top_p, top_k = truncation
    truncation = (
      np.full(rows, top_p, np.float32),
      np.full(rows, top_k, np.int32),
    )
  return DRAW(
    wide,
    keys(rows, seed),
    np.arange(rows, dtype=np.int32) % 7,
    np.full(rows, temperature, np.float32),
    truncation,
  )


def chi_square(tokens, probabilities):
  """Σ (seen - expected)² / expected, over what can be drawn."""
  possible = probabilities > 0
  seen = np.bincount(tokens, minlength=len(probabilities))
  assert seen[~possible].sum() == 0
  expected = probabilities[possible] * len(tokens)
  return np.sum((seen[possible] - expected) ** 2 / expected)


LOGITS = np.array([0.3, -1.2, 2.0, 0.0, 1.1, -0.5])


@pytest.mark.parametrize('temperature', [0.5, 1.0, 1.7])
def test_frequencies_are_the_softmax_at_the_temperature(temperature):
  drawn = draw(LOGITS, temperature=temperature)
  expected = softmax(LOGITS / temperature)
  # 5 degrees of freedom: above 25.7 once in 10,000 seeds.
  assert chi_square(drawn.token, expected) < 25.7
  np.testing.assert_allclose(
    drawn.logprob, np.log(expected)[drawn.token], atol=1e-5
  )
  np.testing.assert_allclose(drawn.kept_logmass, 0.0, atol=1e-5)


def test_frequencies_after_truncation_are_renormalised():
  drawn = draw(LOGITS, truncation=(0.8, 4))
  p = softmax(LOGITS)
  # Of the best four (.520, .211, .095, .070 of .897) the first two hold 82 %.
  kept = np.array([0, 0, 1, 0, 1, 0], bool)
  assert chi_square(drawn.token, np.where(kept, p, 0) / p[kept].sum()) < 15.2
  # The recorded log-prob is that before truncation; the mass is told besides.
  np.testing.assert_allclose(drawn.logprob, np.log(p)[drawn.token], atol=1e-5)
  np.testing.assert_allclose(
    drawn.kept_logmass, np.log(p[kept].sum()), atol=1e-5
  )


def test_greedy_is_the_argmax_and_recorded_at_temperature_one():
  wide = np.random.default_rng(0).normal(size=(64, 9)).astype(np.float32)
  rows = np.arange(64, dtype=np.int32)
  drawn = DRAW(wide, keys(64), rows, np.zeros(64, np.float32))
  np.testing.assert_array_equal(drawn.token, wide.argmax(-1))
  expected = np.log(softmax(wide))[rows, wide.argmax(-1)]
  np.testing.assert_allclose(drawn.logprob, expected, atol=1e-5)


def kept_set(probabilities, top_p, top_k):
  """The best top_k, and of these the fewest that hold top_p; None if close."""
  order = np.argsort(-probabilities, kind='stable')
  order = order[: top_k or len(order)]
  before = np.cumsum(probabilities[order]) - probabilities[order]
  bound = top_p * probabilities[order].sum()
  if np.abs(before[1:] - bound).min(initial=1.0) < 1e-6:
    return None
  return set(order[before < bound].tolist())


def test_truncation_keeps_exactly_the_right_set():
  draws = np.random.default_rng(1)
  rows, vocab = 400, 12
  logits = draws.normal(size=(rows, vocab)) * draws.choice(
    [0.1, 1, 5], (rows, 1)
  )
  top_p = draws.choice([0.05, 0.3, 0.9, 1.0], rows)
  top_k = draws.choice([0, 1, 3, 11, 12, 50], rows)
  logprobs = np.float32(np.log(softmax(logits)))
  out = jax.jit(logits_lib.truncate)(
    logprobs, np.float32(top_p), np.int32(top_k)
  )
  checked = 0
  for i in range(rows):
    expected = kept_set(np.exp(np.float64(logprobs[i])), top_p[i], top_k[i])
    kept = np.flatnonzero(out[i] == logprobs[i])
    assert len(kept) > 0
    np.testing.assert_array_equal(np.delete(out[i], kept), np.float32(-1e30))
    if expected is not None and top_p[i] < 1:
      assert set(kept.tolist()) == expected, i
      checked += 1
    elif top_p[i] == 1:  # nothing but top-k, even where a tail is tiny
      assert len(kept) == min(top_k[i] or vocab, vocab), i
  assert checked >= 200


def test_the_best_token_always_stays():
  drawn = draw(LOGITS, rows=64, truncation=(1e-6, 0))
  np.testing.assert_array_equal(drawn.token, 2)
  np.testing.assert_allclose(
    drawn.kept_logmass, np.log(softmax(LOGITS)[2]), atol=1e-5
  )


def test_key_and_position_alone_decide():
  rows = 256
  draws = np.random.default_rng(2)
  wide = draws.normal(size=(rows, 9)).astype(np.float32)
  words, places = keys(rows), draws.integers(0, 99, rows).astype(np.int32)
  hot = np.ones(rows, np.float32)
  plain = DRAW(wide, words, places, hot)
  order = draws.permutation(rows)
  mixed = DRAW(wide[order], words[order], places[order], hot)
  for a, b in zip(plain, mixed, strict=True):
    np.testing.assert_array_equal(np.asarray(a)[order], b)
  for other in (
    logits_lib.uniforms(words, places + 1),
    logits_lib.uniforms(words ^ np.uint32(1), places),
  ):
    assert (np.asarray(logits_lib.uniforms(words, places)) != other).all()


def test_uniforms_are_uniform_over_positions_of_one_key():
  words = np.broadcast_to(np.array([3, 5], np.uint32), (ROWS, 2))
  u = np.asarray(logits_lib.uniforms(words, np.arange(ROWS, dtype=np.int32)))
  assert u.min() >= 0 and u.max() < 1
  seen = np.bincount((u * 10).astype(int), minlength=10)
  assert np.sum((seen - ROWS / 10) ** 2 / (ROWS / 10)) < 33.7  # 9 degrees


def test_impossible_tokens_are_never_drawn():
  logits = np.array([-np.inf, 0.0, -1e30, 0.0, -np.inf])
  drawn = draw(logits)
  assert set(np.unique(drawn.token)) == {1, 3}
  np.testing.assert_allclose(drawn.logprob, np.log(0.5), atol=1e-6)


def test_equal_logits_at_the_threshold_are_kept_together():
  out = logits_lib.truncate(
    jnp.log(jnp.array([[0.4, 0.2, 0.2, 0.2]])), jnp.ones(1), jnp.array([2])
  )
  assert (np.asarray(out) > -1e29).all()


@pytest.mark.parametrize('vocab', [1, 2, 63, 64, 65, 1000])
def test_a_draw_inverts_the_running_sum(vocab):
  """In float64 by hand, tokens without mass between and behind others."""
  draws = np.random.default_rng(vocab)
  logits = draws.normal(size=(300, vocab)).astype(np.float32)
  logits[draws.random(logits.shape) < 0.4] = -np.inf
  logits[:, draws.integers(vocab)] = 0.5
  words, places = keys(300), np.arange(300, dtype=np.int32)
  drawn = DRAW(logits, words, places, np.ones(300, np.float32))
  p = softmax(logits)
  u = np.asarray(logits_lib.uniforms(words, places), np.float64)[:, None]
  upto = np.cumsum(p, axis=-1)
  expected = (upto <= u).sum(-1)
  sure = np.abs(upto - u).min(-1) > 1e-5
  assert sure.mean() > 0.9
  np.testing.assert_array_equal(drawn.token[sure], expected[sure])
  assert (p[places, drawn.token] > 0).all()
