"""Expressions go in, text comes out; nobody inside knows what is right."""

import pytest

from agentrl_jax.envs import sandbox
from agentrl_jax.envs.code import items, trials

GOOD = 'def f(x):\n  return x * 2\n'


def item(text=GOOD, cases=(('', 'f(2)'), ('', "f('ab')"))):
  return items.Item('m', 'f', text, tuple(cases))


def test_results_as_text():
  text = (
    'def f(x):\n  if x == 0: raise KeyError(x)\n  if x == 1: return iter([1])\n'
    '  if x == 2:\n    while True: pass\n  return object() if x == 3 else [x]\n'
  )
  cases = [('', f'f({x})') for x in (0, 1, 2, 3, 4)] + [('y = 7', 'f(y)')]
  (found,) = trials.run('m', [text], cases)
  assert found == ['!KeyError', '~[1]', '!endless', '!address', '[4]', '[7]']


def test_versions_do_not_meet_and_one_that_ends_all_is_found():
  bad = 'import os\nos._exit(0)\n'
  found = trials.run('m', [GOOD, 'f = str\n', bad, GOOD], [('', 'f(4)')])
  assert found == [['8'], ["'4'"], None, None]


def test_after_some_endless_cases_the_rest_are_not_waited_for():
  text = 'def f(x):\n  while True: pass\n'
  (found,) = trials.run('m', [text], [('', f'f({x})') for x in range(150)])
  assert found == ['!endless'] * 150  # 150 x 0.1 s would end the process


def test_a_module_that_does_not_load_fails_all():
  assert trials.run('m', ['def'], [('', 'f(1)')]) == [['!SyntaxError']]


# Each tries to pass without doing what is asked: f(2) is 4, f('ab') is 'abab'.
CHEATS = {
  'prints what a passing run could print': 'print(\'["4", "\\\'abab\\\'"]\')',
  'writes to all descriptors': (
    'import os\nfor n in range(3, 20):\n  try:\n'
    '    os.write(n, b\'["?", "?"]\\n\')\n  except OSError: pass'
  ),
  'ends with status 0': 'import os\nos._exit(0)',
  'ends the interpreter': 'raise SystemExit(0)',
  'is equal to everything': (
    'class Any(str):\n  def __eq__(self, other): return True\n'
    '  def __repr__(self): return self\n'
    'def f(x): return Any("?")'
  ),
  'changes how results are compared': (
    'import json\njson.dumps = lambda value: "[true, true]"\ndef f(x): return 0'
  ),
  'looks for the answers': (
    'import gc, sys\n'
    'def f(x):\n'
    '  frame = sys._getframe(1)\n'
    '  while frame.f_back: frame = frame.f_back\n'
    '  return frame.f_globals.get("EXPECTED", "none")'
  ),
  'returns True for all': 'def f(x): return True',
}


@pytest.mark.parametrize('cheat', CHEATS)
def test_cheats_earn_nothing(cheat):
  cases, expected = [('', 'f(2)'), ('', "f('ab')")], ['4', "'abab'"]
  assert trials.grade('m', GOOD, cases, expected) == 1.0
  text = CHEATS[cheat]
  if 'def f' not in text:
    text = f'def f(x): return None\n{text}\n'
  assert trials.grade('m', text, cases, expected) == 0.0


def test_the_share_of_right_cases():
  cases = [('', 'f(1)'), ('', 'f(2)'), ('', 'f(3)'), ('', 'f(4)')]
  # 2, 4, 6, 8 are right; the last is asked for in vain.
  assert trials.grade('m', GOOD, cases, ['2', '4', '6', '9']) == 0.75


def _answers(monkeypatch, *answers):
  left = list(answers)

  def run_python(*_, **__):
    reason, output = left.pop(0)
    return sandbox.Result(0, reason, output, {}, (), trials.LIMITS)

  monkeypatch.setattr(sandbox, 'run_python', run_python)
  return left


def test_lost_results_are_asked_for_once_more(monkeypatch):
  left = _answers(monkeypatch, ('', ''), ('', '["4"]\n'))
  assert trials.grade('m', GOOD, [('', 'f(2)')], ['4']) == 1.0
  assert not left


@pytest.mark.parametrize('reason', ['hangup', 'unkillable'])
def test_what_the_sandbox_ended_is_no_grade(monkeypatch, reason):
  _answers(monkeypatch, (reason, ''))
  with pytest.raises(sandbox.SandboxError, match='ended early'):
    trials.grade('m', GOOD, [('', 'f(2)')], ['4'])


def test_cases_are_varied_and_expected_of_the_working_function():
  wide = trials.widen(item())
  assert wide[:2] == [('', 'f(2)'), ('', "f('ab')")]
  assert 4 < len(wide) <= 24
  assert len({text for _, text in wide}) == len(wide)
  kept = trials.expect(item(), wide)
  for _, expression, result in kept:
    assert repr(eval(expression, {'f': lambda x: x * 2})) == result


def test_cases_that_do_not_repeat_or_say_nothing_are_left_out():
  text = (
    'import random\ndef f(x):\n  if x == 1: return random.random()\n'
    '  if x == 2: return object()\n  return x\n'
  )
  cases = [('', 'f(1)'), ('', 'f(2)'), ('', 'f(3)'), ('', 'g(4)')]
  assert trials.expect(item(text), cases) == [('', 'f(3)', '3')]


@pytest.mark.parametrize(
  'first, second, equal',
  [
    ('1', '1', True),
    ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", True),
    ('{1, 2}', '{2, 1}', True),
    ('[1, 2]', '[2, 1]', False),
    ('1', '1.0', True),  # as Python has it
    ('~[1]', '[1]', False),
    ('~[{1, 2}]', '~[{2, 1}]', True),
    ('!KeyError', '!ValueError', False),
    ('<odd>', '<odd>', True),
    ('<odd>', '<even>', False),
    ('(' * 299, '1', False),
    ('', '1', False),
  ],
)
def test_results_are_compared_as_python_would(first, second, equal):
  assert trials.is_equal(first, second) == equal
