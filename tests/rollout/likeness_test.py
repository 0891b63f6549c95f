"""Alike is what the ratio says, at any length, whatever bounds rule out."""

import difflib
import random

import pytest
from rapidfuzz import distance

from agentrl_jax.rollout import likeness

ALPHABETS = ('ab', 'abc ', 'etaoinshrdlu qxz019', 'aαβé\ud800漢b', '\0\x80')


def edited(draw, text, most=3):
  """The text with a few characters replaced, removed or put in."""
  letters = list(text)
  for _ in range(draw.randint(1, most)):
    at = draw.randrange(len(letters))
    new = str(draw.randrange(10 ** draw.randint(1, 5)))
    letters[at : at + draw.randint(0, 6)] = new
  return ''.join(letters)


def pairs(seed, num):
  """Random pairs of 0 to 420 characters, most of them near each other."""
  draw = random.Random(seed)
  for _ in range(num):
    letters = draw.choice(ALPHABETS)
    size = draw.choice((0, 1, 3, 8, 30, 120, 199, 200, 260, 420))
    a = ''.join(draw.choices(letters, k=size))
    if a and draw.random() < 0.7:
      yield a, edited(draw, a)
    else:
      yield a, ''.join(draw.choices(letters, k=max(size - 2, 1)))


@pytest.mark.parametrize('seed', range(4))
def test_alike_is_the_ratio_of_difflib(seed):
  for a, b in pairs(seed, 100):
    if a == b:
      continue
    ratio = difflib.SequenceMatcher(None, a, b).ratio()
    thresholds = {ratio, ratio + 1e-9, ratio - 1e-9, 0.3, 0.6, 0.9, 1.0}
    for threshold in thresholds:
      if 0 < threshold <= 1:
        clusters = likeness.Blocks(threshold)
        assert clusters.find(a) == 0
        assert (clusters.find(b) == 0) == (ratio >= threshold), (a, b)


def page(draw):
  """A shop's answer of 400 characters: a template with other goods in it."""
  text = f'[Search] Page {draw.randint(1, 9)} of {draw.randint(10, 99)} '
  while len(text) < 400:
    goods = ' '.join(draw.choices(WORDS, k=6))
    text += f'[SEP] B{draw.randrange(10**7):07d} {goods} ${draw.random():.2f} '
  return text[:400]


WORDS = [
  ''.join(
    random.Random(i).choices('eeettaaoinshrdlcumwfgypbvkqxz', k=3 + i % 7)
  )
  for i in range(600)
]


def visited(seed, num=400):
  """Turns of a group: 30 % new pages, 30 % seen ones, 40 % seen but edited."""
  draw, keys = random.Random(seed), []
  for _ in range(num):
    kind = draw.random()
    if not keys or kind < 0.3:
      keys.append(page(draw))
    elif kind < 0.6:
      keys.append(draw.choice(keys))
    else:
      keys.append(edited(draw, draw.choice(keys)))
  return keys


@pytest.mark.parametrize('threshold', [0.8, 0.95])
def test_clusters_are_those_of_asking_difflib_each_time(threshold):
  clusters, firsts, known = likeness.Blocks(threshold), [], {}
  joined = 0
  for key in visited(0, 60):
    if key not in known:
      matches = (
        i
        for i, first in enumerate(firsts)
        if difflib.SequenceMatcher(None, first, key).ratio() >= threshold
      )
      known[key] = next(matches, len(firsts))
      joined += known[key] < len(firsts)
      if known[key] == len(firsts):
        firsts.append(key)
    assert clusters.find(key) == known[key]
  assert joined > 3 and len(firsts) > 20


def test_the_first_cluster_that_is_alike_takes_a_text():
  # abcx is 3/4 to both; abyx joins the second: to abcd it is only 1/2.
  clusters = likeness.Blocks(0.75)
  found = [clusters.find(t) for t in ('abcd', 'wbyx', 'abcx', 'abyx', 'abcd')]
  assert found == [0, 1, 0, 1, 0]


def longest(a, b):
  """The length of the longest common subsequence, by the table of 1974."""
  row = [0] * (len(b) + 1)
  for x in a:
    before = 0
    for j, y in enumerate(b):
      before, row[j + 1] = (
        row[j + 1],
        before + 1 if x == y else max(row[j + 1], row[j]),
      )
  return row[-1]


@pytest.mark.parametrize('seed', range(2))
def test_a_subsequence_is_as_long_as_the_table_says(seed):
  for a, b in pairs(seed, 40):
    if a == b:
      continue
    ratio = 2 * longest(a, b) / (len(a) + len(b))
    for threshold in {ratio, ratio + 1e-9, ratio - 1e-9, 0.3, 0.9, 1.0}:
      if 0 < threshold <= 1:
        clusters = likeness.Clusters(threshold)
        assert clusters.find(a) == 0
        assert (clusters.find(b) == 0) == (ratio >= threshold), (a, b)


def substituted(seed, num=400, most=60):
  """Distinct texts of 400 letters, each within `most` changes of one."""
  draw = random.Random(seed)
  letters = 'abcdefghijklmnopqrstuvwxyz '
  base = draw.choices(letters, k=400)
  for _ in range(num):
    text = list(base)
    for i in draw.sample(range(400), draw.randint(0, most)):
      text[i] = draw.choice(letters)
    yield ''.join(text)


def test_clusters_by_subsequence_are_those_of_comparing_all():
  clusters, firsts = likeness.Clusters(0.9), []
  for key in substituted(0, 120):
    ratios = [distance.Indel.normalized_similarity(f, key) for f in firsts]
    close = [i for i, ratio in enumerate(ratios) if ratio >= 0.9 - 1e-12]
    expected = close[0] if close else len(firsts)
    if not close:
      firsts.append(key)
    assert clusters.find(key) == expected
  assert 20 < len(firsts) < 100


def test_difflib_is_blind_to_frequent_characters_and_subsequences_are_not():
  # 20 of 400 letters changed: 2 * 380 / 800 = 0.95. difflib knows letters that
  # stand there at most 400 / 100 + 1 = 5 times, and here no other does.
  letters = [*('abcdefgh' * 50)]
  text = ''.join(letters)
  letters[10::20] = '#' * 20
  changed = ''.join(letters)
  assert difflib.SequenceMatcher(None, text, changed).ratio() < 0.1
  for clusters, found in ((likeness.Clusters, 0), (likeness.Blocks, 1)):
    known = clusters(0.95)
    assert known.find(text) == 0
    assert known.find(changed) == found


def test_common_prefix_by_halves():
  for a, b, size in (
    ('', 'a', 0),
    ('abc', 'abc', 3),
    ('abcd', 'abxd', 2),
    ('x', 'y', 0),
    ('aaaaaaab', 'aaaaaaa', 7),
  ):
    assert likeness._common(a, b) == size


@pytest.mark.parametrize('threshold', [0.8, 0.95])
def test_a_group_asks_few_questions(threshold, monkeypatch):
  """Blocks are compared once a text; most pairs are ruled out by counts."""
  asked = {'blocks': 0, 'subsequences': 0}
  alike, subsequences = likeness._alike, likeness._subsequences

  def count_blocks(*args):
    asked['blocks'] += 1
    return alike(*args)

  def count_subsequences(text, others):
    asked['subsequences'] += len(others)
    return subsequences(text, others)

  monkeypatch.setattr(likeness, '_alike', count_blocks)
  monkeypatch.setattr(likeness, '_subsequences', count_subsequences)
  clusters, turns = likeness.Blocks(threshold), visited(0)
  for turn in turns:
    clusters.find(turn)
  distinct, firsts = len(set(turns)), len(clusters._firsts)
  assert firsts < distinct < len(turns)
  assert distinct - firsts <= asked['blocks'] <= distinct
  # On average a text meets half of the firsts; two subsequences are a pair's.
  assert asked['subsequences'] < distinct * firsts / 4
