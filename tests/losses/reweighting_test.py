"""Locks how corrections combine: weights multiply, masks intersect."""

import functools

import chex
import numpy as np
import pytest
from absl.testing import parameterized

from agentrl_jax import losses

MASK = np.array([[True, True, True, True, False]])
IDS = {
  'turn': np.array([[0, 0, 1, 1, -1]]),
  'sequence': np.array([[0, 0, 0, 0, -1]]),
}
BEHAVIOR = np.log(np.array([[0.5, 0.5, 0.5, 0.5, 0.5]], np.float32))
# Ratios 2, 1, 1/2, 8.
PROXIMAL = BEHAVIOR + np.log(np.array([[2, 1, 0.5, 8, 9]], np.float32))
EVERY = (
  ('tis', {'cap': 3.0}),
  ('icepop', {}),
  ('geometric', {'level': 'turn', 'low': 0.1, 'high': 10.0}),
  ('veto', {}),
)


class CorrectTest(chex.TestCase, parameterized.TestCase):
  def correct(self, *parts, proximal=PROXIMAL):
    call = functools.partial(losses.correct, parts)
    return self.variant(call)(proximal, BEHAVIOR, IDS, MASK)

  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(
    ([('tis', {'cap': 3.0})], [2, 1, 0.5, 3], [1, 1, 1, 1]),
    # Products: 2 of the first turn, 4 of the second; 8 of all.
    ([('tis', {'cap': 3.0, 'level': 'turn'})], [2, 2, 3, 3], [1, 1, 1, 1]),
    ([('tis', {'cap': 9, 'level': 'sequence'})], [8] * 4, [1, 1, 1, 1]),
    ([('icepop', {'low': 0.6, 'high': 5.0})], [1, 1, 0, 0], [1, 1, 0, 0]),
    # Geometric means: √2 and 2; of all, 8^(1/4) = 1.68.
    (
      [('geometric', {'level': 'turn', 'low': 0.9, 'high': 1.5})],
      [1, 1, 0, 0],
      [1, 1, 0, 0],
    ),
    ([('geometric', {'low': 0.9, 'high': 1.7})], [1] * 4, [1] * 4),
    ([('veto', {'threshold': 0.6})], [0] * 4, [0] * 4),
    (
      [('veto', {'threshold': 0.6, 'level': 'turn'}), ('tis', {'cap': 1.5})],
      [1.5, 1, 0, 0],
      [1, 1, 0, 0],
    ),
    # Two weights: 2 · 2, 1 · 2, ½ · 4, 3 · 4.
    (
      [('tis', {'cap': 3.0}), ('tis', {'cap': 9, 'level': 'turn'})],
      [4, 2, 2, 12],
      [1, 1, 1, 1],
    ),
    (
      [('icepop', {'low': 0.6, 'high': 5.0}), ('veto', {})],
      [1, 1, 0, 0],
      [1, 1, 0, 0],
    ),
    ([], [1] * 4, [1] * 4),
  )
  def test_by_hand(self, parts, weights, kept):
    got, mask = self.correct(*parts)
    np.testing.assert_allclose(got[0], [*weights, 0], rtol=1e-5)
    np.testing.assert_array_equal(mask[0], [*map(bool, kept), False])

  @chex.variants(with_jit=True, without_jit=True)
  def test_of_one_policy_nothing_is_corrected(self):
    weights, mask = self.correct(*EVERY, proximal=BEHAVIOR)
    np.testing.assert_array_equal(weights, MASK)
    np.testing.assert_array_equal(mask, MASK)


@pytest.mark.parametrize(
  'part, words',
  [
    (('tiss', {}), "unknown name 'tiss'.*nearest: 'tis'"),
    (('veto', {'level': 'token'}), "level='token'; allowed: turn, sequence"),
  ],
)
def test_what_is_not_known_is_told(part, words):
  with pytest.raises(ValueError, match=words):
    losses.correct([part], PROXIMAL, BEHAVIOR, IDS, MASK)
