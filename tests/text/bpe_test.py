"""Which strings earn a slot: against brute force, and by hand."""

import random
import re
from collections import Counter

import hypothesis
import pytest
from hypothesis import strategies as st

from agentrl_jax.text import bpe


def test_bytes_have_the_characters_of_byte_level_bpe():
  pre_tokenizers = pytest.importorskip('tokenizers').pre_tokenizers
  table = bpe.byte_characters()
  assert sorted(table) == sorted(pre_tokenizers.ByteLevel.alphabet())
  assert table[ord('A')] == 'A' and table[ord(' ')] == 'Ġ'
  assert len(set(table)) == 256


@hypothesis.given(
  st.one_of(st.text(), st.text('ABcg0123456789: \n<|>_', max_size=40))
)
@hypothesis.settings(deadline=None, max_examples=300)
def test_pre_tokens_partition_any_text(text):
  assert ''.join(re.findall(bpe.PATTERN, text)) == text


@pytest.mark.parametrize(
  'text, pieces',
  [
    ('CA1501 06:30 760', ['CA1501', ' 06:30', ' 760']),
    ('2 flights\nMU5101', ['2', ' flights\n', 'MU5101']),
    ('{"from":"Beijing"}', ['{"from":"', 'Beijing', '"}']),
    ('to Xian, 7 USD', ['to ', 'Xian', ', ', '7', ' ', 'USD']),
  ],
)
def test_values_stand_alone_and_templates_lie_between(text, pieces):
  assert re.findall(bpe.PATTERN, text) == pieces


def test_a_tight_budget_goes_to_what_saves_most():
  # 'ab' saves 5 tokens as a pair; 'xyz' saves 4 * 2 = 8 whole.
  tokens, merges = bpe.learn({'ab': 5, 'xyz': 4}, budget=1)
  assert (tokens, merges) == (['xyz'], [])
  tokens, merges = bpe.learn({'ab': 5, 'xyz': 4, 'abq': 2}, budget=2)
  # The pair (a, b) saves 5 + 2 = 7, more than the chunk 'ab' alone.
  assert (tokens, merges) == (['xyz', 'ab'], [('a', 'b')])


def test_merges_left_without_use_are_given_back():
  # (a, b) saves 12 first; once both words are atoms nothing consists of 'ab'.
  chunks = {'ab1': 4, 'ab2': 4, 'ab3': 4}
  tokens, merges = bpe.learn(chunks, budget=4)
  assert sorted(tokens) == ['ab1', 'ab2', 'ab3']
  assert merges == []


@pytest.mark.parametrize(
  'options', [{'budget': 0}, {'min_count': 9}, {'min_share': 2.0}]
)
def test_what_saves_too_little_stays_bytes(options):
  chunks = {'ab': 5, 'xyz': 4}
  assert bpe.learn(chunks, **{'budget': 9, **options}) == ([], [])


def plain_learn(chunks, budget, min_count):
  """The same greedy choice, with every count taken anew at each step."""
  symbols = {chunk: list(chunk) for chunk in chunks}
  tokens, merges = {}, []
  while True:
    while len(tokens) < budget:
      pairs = Counter()
      for chunk, parts in symbols.items():
        for pair in zip(parts, parts[1:]):
          pairs[pair] += chunks[chunk]
      choices = [(-n, 1, p) for p, n in pairs.items() if n >= min_count]
      choices += [
        (-n * (len(symbols[c]) - 1), 0, c)
        for c, n in chunks.items()
        if n >= min_count
      ]
      gain, is_pair, what = min(choices, key=lambda x: x[:2], default=(0, 0, 0))
      ties = [x[2] for x in choices if x[:2] == (gain, is_pair)]
      if -gain < 1:
        break
      what = min(ties)
      tokens[''.join(what)] = None
      if not is_pair:
        symbols[what] = [what]
        continue
      merges.append(what)
      for chunk, parts in symbols.items():
        merged = []
        while parts:
          size = 2 if tuple(parts[:2]) == what else 1
          merged.append(''.join(parts[:size]))
          parts = parts[size:]
        symbols[chunk] = merged
    used = {symbol for parts in symbols.values() for symbol in parts}
    kept = []
    for pair in reversed(merges):
      if ''.join(pair) in used:
        kept.insert(0, pair)
        used |= set(pair)
    merges = kept
    if set(tokens) <= used:
      return list(tokens), merges
    tokens = {token: None for token in tokens if token in used}


@pytest.mark.parametrize('seed', range(40))
def test_choices_are_those_of_brute_force(seed):
  draw = random.Random(seed)
  chunks = {
    ''.join(draw.choices('abc', k=draw.randint(1, 6))): draw.randint(1, 9)
    for _ in range(draw.randint(1, 12))
  }
  budget = draw.randint(1, 10)
  got = bpe.learn(chunks, budget=budget, min_count=2, min_share=0.0)
  assert got == plain_learn(chunks, budget, 2)
