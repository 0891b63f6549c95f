"""Which tests does the agent see, and what does it hear of them?

They are a file of its folder: it may change them as it likes, which changes
what it hears and nothing else.
"""

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

from agentrl_jax.envs import sandbox
from agentrl_jax.envs.code import trials

FAILURES = 3  # that are told

# Runs test_* functions, and says of `assert a == b` what a was.
_PROGRAM = """
import ast, json, os, signal, sys
FILE, SHOWN = json.loads({given!r})

class Endless(BaseException):
  pass

def late(*_):
  raise Endless

def why(node, names, error):
  if isinstance(error, Endless):
    return 'takes too long'
  if not isinstance(error, AssertionError):
    return f'{{type(error).__name__}}: {{error}}'[:120]
  names = {{**names, **error.__traceback__.tb_next.tb_frame.f_locals}}
  for each in node.body:
    if isinstance(each, ast.Assert) and isinstance(each.test, ast.Compare):
      left = each.test.left
      value = eval(compile(ast.Expression(left), FILE, 'eval'), names)
      wanted = ast.unparse(each.test.comparators[0])
      return f'{{ast.unparse(left)}} is {{value!r}}, not {{wanted}}'[:200]
  return str(error)[:120] or 'fails'

signal.signal(signal.SIGVTALRM, late)
sys.path.insert(0, os.getcwd())
names, failures, passed = {{'__name__': 'tests'}}, [], 0
try:
  source = open(FILE, encoding='utf-8').read()
  tree = ast.parse(source)
  signal.setitimer(signal.ITIMER_VIRTUAL, 0.5)
  exec(compile(source, FILE, 'exec'), names)
except BaseException as error:
  kind = type(error).__name__
  print(f'the tests cannot be loaded: {{kind}}: {{error}}'[:300])
  sys.exit(1)
tests = [
  node for node in tree.body
  if isinstance(node, ast.FunctionDef) and node.name.startswith('test')
]
for node in tests:
  signal.setitimer(signal.ITIMER_VIRTUAL, 0.2)
  try:
    names[node.name]()
    passed += 1
  except BaseException as error:
    try:
      failures.append(f'{{node.name}}: {{why(node, names, error)}}')
    except BaseException:
      failures.append(node.name)
signal.setitimer(signal.ITIMER_VIRTUAL, 0)
print(f'passed {{passed}} of {{len(tests)}}')
print('\\n'.join(failures[:SHOWN]))
"""


def text(data: Mapping[str, Any]) -> str:
  """The file of tests: the first `shown` of `cases`, of `module`."""
  cases = data['cases'][: data['shown']]
  lines = ['import itertools'] * any(case[2][0] == '~' for case in cases)
  lines.append(f'from {data["module"]} import *')
  for number, (before, expression, result) in enumerate(cases, 1):
    lines += ['', f'def test_{number}():']
    lines += [f'  {line}' for line in before.splitlines()]
    if result[0] == '!':
      lines += ['  try:', f'    {expression}', f'  except {result[1:]}:']
      lines += ['    return', f'  assert False, "no {result[1:]}"']
    elif result[0] == '~':
      seen = f'list(itertools.islice({expression}, 50))'
      lines.append(f'  assert {seen} == {result[1:]}')
    else:
      lines.append(f'  assert {_comparison(expression, result)}')
  return '\n'.join(lines) + '\n'


def _comparison(expression: str, result: str) -> str:
  """A comparison that holds; of texts, where a value cannot be written."""
  try:
    ast.literal_eval(result)
  except (SyntaxError, ValueError):
    return f'repr({expression}) == {result!r}'
  asked = ast.parse(expression, mode='eval').body
  if not isinstance(asked, ast.Call | ast.Name | ast.Subscript | ast.Constant):
    expression = f'({expression})'
  return f'{expression} == {result}'


def run(
  files: Mapping[str, str],
  module: str,
  limits: sandbox.Limits,
  backend: str = 'auto',
  told: int = FAILURES,
) -> sandbox.Result:
  """Runs the tests of a module as they lie in a folder."""
  given = json.dumps([f'test_{module}.py', told])
  program = _PROGRAM.format(given=given)
  return sandbox.run_python(
    program, files=files, limits=limits, backend=backend
  )


def verdict(output: str) -> tuple[int, int]:
  """How many tests passed, and of how many; (0, 0) if none could be run."""
  found = re.findall(r'^passed (\d+) of (\d+)$', output, re.MULTILINE)
  return (int(found[-1][0]), int(found[-1][1])) if found else (0, 0)


def holding(data: Mapping[str, Any], backend: str = 'auto') -> list[int]:
  """Which visible cases hold, as tests, for the module as it should be.

  Some hold only after those before them, or print what looks like a verdict.
  """
  module, shown = data['module'], data['shown']
  files = {f'{module}.py': data['text'], f'test_{module}.py': text(data)}
  output = run(files, module, trials.LIMITS, backend, shown).output
  if verdict(output)[1] != shown:
    return []
  failed = set(map(int, re.findall(r'^test_(\d+)\b', output, re.MULTILINE)))
  return [index for index in range(shown) if index + 1 not in failed]
