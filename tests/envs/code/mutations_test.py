"""Every kind of bug, on a function where a reader sees what it does."""

import ast
import collections

import pytest

from agentrl_jax.envs.code import items, mutations

HEAD = 'def f(a, b):\n  '


def put(body, kind):
  """What a kind makes of a body."""
  text = HEAD + body + '\n'
  return {
    bug.put_into(text)[len(HEAD) : -1]
    for bug in mutations.bugs(text, 'f')
    if bug.kind == kind
  }


@pytest.mark.parametrize(
  'kind, body, expected',
  [
    ('compare', 'return a < b', {'return a <= b', 'return a > b'}),
    ('compare', 'return a not  in b', {'return a in b'}),
    ('compare', 'return a is None', {'return a is not None'}),
    ('compare', 'return 1 < a == 2', {
      'return 1 <= a == 2', 'return 1 > a == 2', 'return 1 < a != 2',
    }),
    ('arithmetic', 'return (a) + (b)', {'return (a) - (b)'}),
    ('arithmetic', 'return a // b', {'return a % b', 'return a / b'}),
    ('arithmetic', 'a += b', {'a -= b', 'a = b'}),
    ('constant', 'return 5', {'return 6', 'return 4'}),
    ('constant', 'return 0', {'return 1'}),
    ('constant', 'return True', {'return False'}),
    ('constant', "return 'xyz'", {"return 'yz'"}),
    ('boolean', 'return a and b', {'return a or b'}),
    ('negation', 'return not a', {'return a'}),
    ('negation', 'return -a', {'return a'}),
    ('negation', 'return 1 if a else 2', {'return 1 if not a else 2'}),
    ('call', 'return min(a, b)', {'return max(a, b)'}),
    ('call', 'return a.lower()', {'return a.upper()'}),
    ('call', 'return sorted(a)', {
      'return list(a)', 'return sorted(a, reverse=True)',
    }),
    ('call', 'return int(a, base=b)', {'return int(a)'}),
    ('arguments', 'return f(a,  b)', {'return f(b,  a)'}),
    ('arguments', 'return a, b', {'return b, a'}),
    ('bounds', 'return range(a)', {
      'return range(a - 1)', 'return range(a + 1)', 'return range(1, a)',
    }),
    ('bounds', 'return a[b]', {'return a[b - 1]'}),
    ('bounds', 'return a[b:]', {'return a[b + 1:]'}),
    ('statement', 'a.append(b)', {'pass'}),
    ('statement', 'if a: b = 1', {'if False: b = 1', 'if True: b = 1'}),
    ('statement', 'while a:\n    break', {'while a:\n    continue'}),
    ('name', 'return a', {'return b'}),
  ],
)  # fmt: skip
def test_each_kind(kind, body, expected):
  assert put(body, kind) == expected


def test_the_table_is_covered_by_the_seeds():
  found = collections.Counter(
    bug.kind
    for item in items.seeds()[:100:5]
    for bug in mutations.bugs(item.text, item.function)
  )
  assert set(found) == set(mutations.KINDS)


def test_bugs_parse_differ_and_come_once():
  for item in items.seeds()[:100:9]:
    bugs = mutations.bugs(item.text, item.function)
    programs = [ast.dump(ast.parse(bug.put_into(item.text))) for bug in bugs]
    assert len(set(programs)) == len(bugs) > 0
    assert ast.dump(ast.parse(item.text)) not in programs
    assert bugs == mutations.bugs(item.text, item.function)


def test_only_the_function_is_touched():
  text = (
    'X = 1\n\n\ndef g():\n  return 2\n\n\ndef f():\n  """Is 3."""\n  return 4\n'
  )
  for bug in mutations.bugs(text, 'f'):
    assert bug.put_into(text).startswith(text[: text.index('  return 4')])
  with pytest.raises(ValueError, match="'h'"):
    mutations.bugs(text, 'h')


def test_places_are_characters_not_bytes():
  text = "def f(a):\n  return 'é' + a < 'z'\n"
  found = {bug.put_into(text) for bug in mutations.bugs(text, 'f')}
  assert "def f(a):\n  return 'é' + a <= 'z'\n" in found
