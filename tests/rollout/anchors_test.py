"""Which turns share a state: against brute force, never across groups."""

import difflib
import itertools
import random

import numpy as np
import pytest

from agentrl_jax.rollout import anchors

KEYS = [  # two groups of two trajectories
  [['start', 'a', 'start'], ['start', 'b']],
  [['start', None, 'a'], ['a']],
]


def test_equal_keys_of_a_group_get_one_id_by_first_appearance():
  expected = [
    [0, 1, 0],
    [0, 2, -1],
    [3, -1, 4],  # another group: 'start' is another state; None is none
    [4, -1, -1],
  ]
  ids = anchors.exact(KEYS)
  assert ids.dtype == np.int32
  np.testing.assert_array_equal(ids, expected)
  np.testing.assert_array_equal(anchors.exact(KEYS, num_turns=5)[:, :3], ids)
  assert (anchors.exact(KEYS, num_turns=5)[:, 3:] == -1).all()


def test_too_few_columns_are_refused():
  with pytest.raises(ValueError, match='3 turns do not fit num_turns=2'):
    anchors.exact(KEYS, num_turns=2)
  assert anchors.exact([[[], []]]).shape == (2, 0)


def random_keys(seed, words=('a', 'b', 'c', None)):
  draw = random.Random(seed)
  return [
    [
      [draw.choice(words) for _ in range(draw.randint(0, 5))]
      for _ in range(draw.randint(1, 4))
    ]
    for _ in range(3)
  ]


@pytest.mark.parametrize('seed', range(20))
def test_exact_pairs_what_brute_force_pairs(seed):
  keys = random_keys(seed)
  ids = anchors.exact(keys, num_turns=5)
  places = [
    (g, row, t, key)
    for row, (g, trajectory) in enumerate(
      (g, trajectory) for g, group in enumerate(keys) for trajectory in group
    )
    for t, key in enumerate(trajectory)
  ]
  for (g, r, t, a), (h, s, u, b) in itertools.combinations(places, 2):
    same = g == h and a is not None and a == b
    assert (ids[r, t] == ids[s, u] and ids[r, t] >= 0) == same
  used = np.unique(ids[ids >= 0])
  np.testing.assert_array_equal(used, np.arange(len(used)))  # no gaps


def greedy_oracle(keys, threshold):
  """One group, flat keys: index of the first member of each one's cluster."""
  firsts, out = [], []
  for i, key in enumerate(keys):
    for j in firsts:
      matcher = difflib.SequenceMatcher(None, keys[j], key)
      if matcher.ratio() >= threshold:
        out.append(j)
        break
    else:
      firsts.append(i)
      out.append(i)
  return out


@pytest.mark.parametrize('threshold', [0.5, 0.75, 0.9, 1.0])
def test_similarity_is_greedy_by_first_members(threshold):
  draw = random.Random(0)
  for _ in range(10):
    words = [''.join(draw.choices('ab', k=4)) for _ in range(8)]
    ids = anchors.similarity([[words]], threshold)[0].tolist()
    oracle = greedy_oracle(words, threshold)
    names = {first: n for n, first in enumerate(sorted(set(oracle)))}
    assert ids == [names[first] for first in oracle]


def test_similarity_depends_on_the_order_of_appearance():
  # abcd ~ abcx ~ abyx at 0.75, but abcd and abyx share only half.
  chain = ['abcd', 'abcx', 'abyx']
  assert anchors.similarity([[chain]], 0.75).tolist() == [[0, 0, 1]]
  middle_first = [chain[1], chain[0], chain[2]]
  assert anchors.similarity([[middle_first]], 0.75).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize('alike', [anchors.similarity, anchors.subsequence])
def test_similarity_never_joins_groups_and_one_is_exact(alike):
  ids = alike(KEYS, 0.01)
  assert not set(ids[:2].ravel()) & set(ids[2:].ravel()) - {-1}
  np.testing.assert_array_equal(alike(KEYS, 1.0), anchors.exact(KEYS))
  with pytest.raises(ValueError, match='threshold=0'):
    alike(KEYS, 0)


def test_blocks_stand_in_a_row_and_subsequences_need_not():
  # abxab and xaby: the longest block is xab (3), and nothing is left beside it
  # that is equal: 2 * 3 / 9. aybzc and abc have no block longer than 1: a, b
  # and c one after another, 2 * 3 / 8. cab and abc: ab, 2 * 2 / 6.
  for keys, ratio in (
    (['abxab', 'xaby'], 6 / 9),
    (['aybzc', 'abc'], 6 / 8),
    (['cab', 'abc'], 4 / 6),
  ):
    for alike in (anchors.similarity, anchors.subsequence):
      assert alike([[keys]], ratio).tolist() == [[0, 0]]
      assert alike([[keys]], ratio + 1e-9).tolist() == [[0, 1]]
  # xyz is the longest block, and what stands left of it in one key and right in
  # the other is lost: 2 * 3 / 17. a, b, c and d follow each other: 2 * 4 / 17.
  keys = ['xyza1b2c3d', 'abcdxyz']
  for alike, ratio in (
    (anchors.similarity, 6 / 17),
    (anchors.subsequence, 8 / 17),
  ):
    assert alike([[keys]], ratio).tolist() == [[0, 0]]
    assert alike([[keys]], ratio + 1e-9).tolist() == [[0, 1]]


def test_turn_index_pairs_equal_turns_of_a_group():
  expected = [[0, 1, 2], [0, 1, -1], [3, 4, 5], [3, -1, -1]]
  np.testing.assert_array_equal(anchors.turn_index(KEYS), expected)


def test_shuffled_deals_a_groups_own_keys_by_the_generator():
  keys = [[list('aaab'), list('ccd')], [list('xyz'), list('x')]]
  one, two = (
    anchors.shuffled(keys, np.random.default_rng(3)) for _ in range(2)
  )
  np.testing.assert_array_equal(one, two)

  def sizes(ids):
    counts = np.unique(ids[ids >= 0], return_counts=True)[1]
    return sorted(counts.tolist())

  for rows in (slice(0, 2), slice(2, 4)):
    assert sizes(one[rows]) == sizes(anchors.exact(keys)[rows])
  assert not set(one[:2].ravel()) & set(one[2:].ravel()) - {-1}
  others = [
    anchors.shuffled(keys, np.random.default_rng(seed)) for seed in range(5)
  ]
  assert any((one != other).any() for other in others)


@pytest.mark.parametrize('seed', range(10))
def test_history_joins_equal_windows_only(seed):
  levels = 3
  ids = anchors.exact(random_keys(seed, ('a', 'b', None)), num_turns=5)
  history = anchors.history(ids, levels)
  assert history.shape == (*ids.shape, levels)
  for level in range(levels):
    windows = {}
    for b, t in np.ndindex(ids.shape):
      window = tuple(ids[b, max(t - level, 0) : t + 1].tolist())
      whole = len(window) == level + 1 and min(window) >= 0
      assert (history[b, t, level] >= 0) == whole
      if whole:
        windows.setdefault(window, set()).add(int(history[b, t, level]))
    assert all(len(found) == 1 for found in windows.values())
    assert len(set().union(*windows.values())) == len(windows)
