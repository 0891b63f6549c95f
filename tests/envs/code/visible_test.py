"""Tests say what is wrong, and hold for the module as it should be."""

import pytest

from agentrl_jax.envs import sandbox
from agentrl_jax.envs.code import visible

TEXT = 'def f(x):\n  return x * 2\n'


def data(*cases):
  return {
    'module': 'm',
    'text': TEXT,
    'cases': [list(case) for case in cases],
    'shown': len(cases),
  }


def test_the_file_of_tests():
  made = data(
    ('', 'f(2)', '4'),
    ('x = 3\n', 'f(x) > 5', 'True'),  # not `f(x) > 5 == True`, which is false
    ('', 'f(None)', '!TypeError'),
    ('', 'iter(f([1]))', '~[1, 1]'),
    ('', 'f', '<odd>'),
  )
  assert visible.text(made) == (
    'import itertools\nfrom m import *\n\n'
    'def test_1():\n  assert f(2) == 4\n\n'
    'def test_2():\n  x = 3\n  assert (f(x) > 5) == True\n\n'
    'def test_3():\n  try:\n    f(None)\n  except TypeError:\n    return\n'
    '  assert False, "no TypeError"\n\n'
    'def test_4():\n'
    '  assert list(itertools.islice(iter(f([1])), 50)) == [1, 1]\n\n'
    "def test_5():\n  assert repr(f) == '<odd>'\n"
  )
  # The last does not hold: f is not odd.
  assert visible.holding(data(*made['cases'])) == [0, 1, 2, 3]


@pytest.mark.parametrize(
  'output, verdict',
  [
    ('passed 3 of 4\ntest_1: fails', (3, 4)),
    ('noise\npassed 2 of 2\n', (2, 2)),
    ('passed 9 of 9 \nx passed 1 of 1', (0, 0)),
    ('', (0, 0)),
  ],
)
def test_the_verdict_is_a_line_of_its_own(output, verdict):
  assert visible.verdict(output) == verdict


def test_failures_are_told_and_counted():
  files = {
    'm.py': TEXT.replace('*', '+'),
    'test_m.py': visible.text(
      data(*(('', f'f({x})', str(2 * x)) for x in (2, 3, 4, 5, 6)))
    ),
  }
  result = visible.run(files, 'm', sandbox.Limits())
  # 2 + 2 is 4; of the four that fail three are told.
  assert result.output == (
    'passed 1 of 5\ntest_2: f(3) is 5, not 6\ntest_3: f(4) is 6, not 8\n'
    'test_4: f(5) is 7, not 10\n'
  )
