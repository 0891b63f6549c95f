"""How is a module tried? Expressions go in, what they give comes back as text.

What is expected never enters the sandbox, so that no code there can tell a
right answer from a wrong one, or find the right ones.
"""

import ast
import builtins
import json
import random
from collections.abc import Sequence

from agentrl_jax.envs import sandbox
from agentrl_jax.envs.code import items

CASE_S = 0.1  # of CPU, after which an expression counts as endless
PATIENCE = 3  # endless expressions, after which the others count as such
SHOWN = 300  # characters of a result that are compared
LIMITS = sandbox.Limits(
  wall_s=20.0, cpu_s=8, memory_mb=300, output_chars=20_000
)

# Results that say nothing of a function, or not the same each time.
_USELESS = frozenset(
  ('!address', '!endless', '!NameError', '!TypeError', '!MemoryError')
)

# Prints one JSON list a module: what each case gave. Modules are told apart by
# their folder, and cannot see each other's.
_PROGRAM = """
import itertools, json, os, signal, sys
CASES, MODULE, FOLDERS, CASE_S, PATIENCE, SHOWN = json.loads({given!r})

class Endless(BaseException):
  pass

def late(*_):
  raise Endless

def show(value):
  if hasattr(value, '__next__'):
    return '~' + repr(list(itertools.islice(value, 50)))
  return repr(value)

def result(space, before, expression):
  signal.setitimer(signal.ITIMER_VIRTUAL, CASE_S)
  try:
    names = dict(space)
    exec(before, names)
    text = show(eval(expression, names))
  except Endless:
    return '!endless'
  except BaseException as error:
    return '!' + type(error).__name__
  finally:
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
  return '!address' if ' at 0x' in text else text[:SHOWN]

signal.signal(signal.SIGVTALRM, late)
out = os.dup(1)
os.dup2(os.open('/dev/null', os.O_WRONLY), 1)
os.dup2(1, 2)
for folder in FOLDERS:
  results = None
  sys.path.insert(0, os.path.join(os.getcwd(), folder))
  signal.setitimer(signal.ITIMER_VIRTUAL, 5 * CASE_S)
  try:
    module = __import__(MODULE)
    results = []
  except BaseException as error:
    results = ['!' + type(error).__name__] * len(CASES)
  finally:
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
  if not results:
    for case in CASES:
      endless = results.count('!endless') >= PATIENCE
      results.append('!endless' if endless else result(vars(module), *case))
  os.write(out, json.dumps(results).encode() + b'\\n')
  sys.path.pop(0)
  sys.modules.pop(MODULE, None)
os._exit(0)
"""


def run(
  module: str,
  texts: Sequence[str],
  cases: Sequence[tuple[str, str]],
  backend: str = 'auto',
) -> list[list[str] | None]:
  """Evaluates cases with each of several versions of a module.

  Args:
    module: its name.
    texts: the versions, one after the other in one process.
    cases: (statements before it, expression) pairs.
    backend: of the sandbox.

  Returns:
    For each version what the cases gave, as text, '!Name' for an exception;
    '~[...]' for an iterator; None where the process ended before.

  Raises:
    SandboxError: it ended for a reason that is none of the module's.
  """
  folders = [f'v{index}' for index in range(len(texts))]
  files = {f'{f}/{module}.py': text for f, text in zip(folders, texts)}
  given = json.dumps([list(cases), module, folders, CASE_S, PATIENCE, SHOWN])
  answer = sandbox.run_python(
    _PROGRAM.format(given=given), files=files, limits=LIMITS, backend=backend
  )
  lines = answer.output.splitlines()[: len(texts)]
  results: list[list[str] | None] = []
  for line in lines:
    try:
      read = json.loads(line)
    except ValueError:
      read = None
    fine = isinstance(read, list) and len(read) == len(cases)
    results.append([str(each)[:SHOWN] for each in read] if fine else None)
  results += [None] * (len(texts) - len(results))
  if None in results and answer.reason in ('hangup', 'unkillable'):
    raise sandbox.SandboxError(f'a trial ended early: {answer.text()}')
  return results


def grade(
  module: str,
  text: str,
  cases: Sequence[tuple[str, str]],
  expected: Sequence[str],
  backend: str = 'auto',
) -> float:
  """Share of cases that give what is expected, in a fresh folder.

  What gives no results is tried twice; then it is the module that ends the
  process, and earns 0, or it could dodge the grade.

  Raises:
    SandboxError: as of `run`.
  """
  for _ in range(2):
    (results,) = run(module, [text], cases, backend)
    if results is not None:
      return sum(map(is_equal, results, expected)) / len(expected)
  return 0.0


def is_equal(first: str, second: str) -> bool:
  """Whether two results are one, as `assert a == b` would find.

  The same text, or literals of the same value: the order of sets and
  dictionaries says nothing.
  """
  if first == second:
    return True
  if first[:1] != second[:1] and '~' in (first[:1], second[:1]):
    return False
  try:
    values = [ast.literal_eval(text.lstrip('~')) for text in (first, second)]
  except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
    return False
  return values[0] == values[1]


def widen(item: items.Item, most: int = 24) -> list[tuple[str, str]]:
  """Adds cases of which the agent sees nothing: the same with other literals.

  Args:
    item: a function with the cases of its docstring.
    most: cases in all.

  Returns:
    The cases of the docstring first, then others, each expression once.
  """
  draw = random.Random(item.name)
  cases = list(dict.fromkeys(item.cases))
  known = {expression for _, expression in cases}
  for _ in range(6):
    for before, expression in item.cases:
      changed = _vary(expression, draw)
      if changed not in known and len(cases) < most:
        known.add(changed)
        cases.append((before, changed))
  return cases


class _Vary(ast.NodeTransformer):
  """Changes literals of an expression here and there."""

  def __init__(self, draw: random.Random):
    self._draw = draw

  def visit_Constant(self, node: ast.Constant) -> ast.AST:  # noqa: N802
    value, draw = node.value, self._draw
    if draw.random() < 0.4 or value is None or isinstance(value, bool):
      return node
    if isinstance(value, int):
      value = draw.choice((value + 1, value - 1, value * 2, 0, value + 7))
    elif isinstance(value, float):
      value = draw.choice((value + 1, value / 2, -value))
    elif isinstance(value, str) and value:
      at = draw.randrange(len(value))
      other = draw.choice(value)
      value = draw.choice(
        (
          *(value[::-1], value[1:], value[:-1], value + value[:2]),
          *(value[:at] + other + value[at + 1 :], value[at:] + value[:at]),
        )
      )
    return ast.copy_location(ast.Constant(value), node)

  def visit_List(self, node: ast.List) -> ast.AST:  # noqa: N802
    self.generic_visit(node)
    if len(node.elts) > 1 and self._draw.random() < 0.5:
      elements = list(node.elts)
      self._draw.shuffle(elements)
      node.elts = elements[: self._draw.randint(1, len(elements))]
    return node


def _vary(expression: str, draw: random.Random) -> str:
  tree = ast.parse(expression, mode='eval')
  return ast.unparse(_Vary(draw).visit(tree))


def expect(
  item: items.Item, cases: Sequence[tuple[str, str]], backend: str = 'auto'
) -> list[tuple[str, str, str]]:
  """What the working function gives; cases that do not repeat are left out.

  Returns:
    (statements before, expression, result) triples.
  """
  results = run(item.module, [item.text] * 2, cases, backend)
  if None in results:
    return []
  kept = []
  for (before, expression), first, second in zip(cases, *results):
    if first[0] == '!' and not hasattr(builtins, first[1:]):
      continue
    if first == second and first not in _USELESS and len(first) < SHOWN:
      kept.append((before, expression, first))
  return kept
