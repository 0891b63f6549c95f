"""Which small bugs can be put into a function? A table of kinds.

A bug is a piece of the source that is replaced: the rest of the file, comments
and spacing included, stays as its author wrote it, and the same bug comes out
under every version of Python.
"""

import ast
import dataclasses
import random
import re
from collections.abc import Callable, Iterator, Sequence

_COMPARE = {
  ast.Lt: ('<', ('<=', '>')),
  ast.LtE: ('<=', ('<', '>=')),
  ast.Gt: ('>', ('>=', '<')),
  ast.GtE: ('>=', ('>', '<=')),
  ast.Eq: ('==', ('!=',)),
  ast.NotEq: ('!=', ('==',)),
  ast.In: ('in', ('not in',)),
  ast.NotIn: ('not in', ('in',)),
  ast.Is: ('is', ('is not',)),
  ast.IsNot: ('is not', ('is',)),
}
_ARITHMETIC = {
  ast.Add: ('+', ('-',)),
  ast.Sub: ('-', ('+',)),
  ast.Mult: ('*', ('+', '//')),
  ast.Div: ('/', ('*', '//')),
  ast.FloorDiv: ('//', ('%', '/')),
  ast.Mod: ('%', ('//',)),
  ast.Pow: ('**', ('*',)),
  ast.BitAnd: ('&', ('|',)),
  ast.BitOr: ('|', ('&',)),
  ast.BitXor: ('^', ('|',)),
  ast.LShift: ('<<', ('>>',)),
  ast.RShift: ('>>', ('<<',)),
}
_SWAPS = (
  *(('min', 'max'), ('any', 'all'), ('append', 'extend'), ('find', 'rfind')),
  *(('lower', 'upper'), ('startswith', 'endswith'), ('lstrip', 'rstrip')),
  *(('split', 'rsplit'), ('ljust', 'rjust'), ('floor', 'ceil')),
  *(('keys', 'values'), ('get', 'pop'), ('sorted', 'list')),
  *(('partition', 'rpartition'), ('add', 'discard'), ('isalpha', 'isdigit')),
  *(('popleft', 'pop'), ('appendleft', 'append'), ('index', 'rindex')),
  *(('bisect_left', 'bisect_right'), ('union', 'intersection')),
  *(('heappush', 'heappop'), ('sum', 'len'), ('set', 'list'), ('zip', 'map')),
)
_CALLED = {a: b for pair in _SWAPS for a, b in (pair, pair[::-1])}


@dataclasses.dataclass(frozen=True)
class Bug:
  """A piece `start:end` of a source, and what stands there instead."""

  kind: str
  start: int
  end: int
  replacement: str

  def put_into(self, text: str) -> str:
    """Returns the source with the bug."""
    return text[: self.start] + self.replacement + text[self.end :]


def with_bugs(text: str, bugs: Sequence[Bug]) -> str:
  """Puts several bugs in that do not touch each other; places are of `text`."""
  for bug in sorted(bugs, key=lambda bug: -bug.start):
    text = bug.put_into(text)
  return text


class _Source:
  """A source with the places of its nodes, in characters."""

  def __init__(self, text: str):
    self.text = text
    self._lines = [0]
    for line in text.splitlines(keepends=True):
      self._lines.append(self._lines[-1] + len(line))

  def start(self, node: ast.AST) -> int:
    return self._place(node.lineno, node.col_offset)

  def end(self, node: ast.AST) -> int:
    return self._place(node.end_lineno, node.end_col_offset)

  def of(self, node: ast.AST) -> str:
    return self.text[self.start(node) : self.end(node)]

  def _place(self, line: int, column: int) -> int:
    """`ast` counts columns in bytes."""
    begin = self._lines[line - 1]
    row = self.text[begin : self._lines[line]]
    return begin + len(row.encode()[:column].decode())

  def instead(self, kind: str, node: ast.AST, text: str) -> Bug:
    return Bug(kind, self.start(node), self.end(node), text)

  def between(self, kind, left, right, old: str, new: str) -> Iterator[Bug]:
    """Replaces an operator, which has no place of its own."""
    begin, end = self.end(left), self.start(right)
    gap = self.text[begin:end]
    pattern = r'\s+'.join(map(re.escape, old.split()))
    found = re.search(pattern, gap)
    if found and '#' not in gap:
      yield Bug(kind, begin + found.start(), begin + found.end(), new)


def _compare(node, source, names) -> Iterator[Bug]:
  if isinstance(node, ast.Compare):
    operands = [node.left, *node.comparators]
    for left, right, op in zip(operands, operands[1:], node.ops):
      old, others = _COMPARE[type(op)]
      for new in others:
        yield from source.between('compare', left, right, old, new)


def _arithmetic(node, source, names) -> Iterator[Bug]:
  if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
    old, others = _ARITHMETIC[type(node.op)]
    for new in others:
      yield from source.between('arithmetic', node.left, node.right, old, new)
  if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
    old, others = _ARITHMETIC[type(node.op)]
    for new in (others[0] + '=', '='):
      yield from source.between(
        'arithmetic', node.target, node.value, old + '=', new
      )


def _constant(node, source, names) -> Iterator[Bug]:
  if not isinstance(node, ast.Constant):
    return
  value = node.value
  if isinstance(value, bool):
    yield source.instead('constant', node, str(not value))
  elif isinstance(value, int):
    yield source.instead('constant', node, str(value + 1))
    if value:
      yield source.instead('constant', node, str(value - 1))
  elif isinstance(value, str) and re.match(r'[\'"]', source.of(node)):
    other = value[1:] if value else ' '
    yield source.instead('constant', node, repr(other))


def _boolean(node, source, names) -> Iterator[Bug]:
  if isinstance(node, ast.BoolOp):
    old, new = ('and', 'or')[:: 1 if isinstance(node.op, ast.And) else -1]
    for left, right in zip(node.values, node.values[1:]):
      yield from source.between('boolean', left, right, old, new)


def _negation(node, source, names) -> Iterator[Bug]:
  if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
    yield source.instead('negation', node, source.of(node.operand))
  test = getattr(node, 'test', None)
  if isinstance(node, ast.If | ast.While | ast.IfExp) and isinstance(
    test, ast.Name | ast.Call | ast.Attribute | ast.Subscript
  ):
    yield source.instead('negation', test, f'not {source.of(test)}')


def _call(node, source, names) -> Iterator[Bug]:
  if not isinstance(node, ast.Call):
    return
  function = node.func
  name = getattr(function, 'id', None) or getattr(function, 'attr', None)
  if name in _CALLED:
    end = source.end(function)
    yield Bug('call', end - len(name), end, _CALLED[name])
  if name == 'sorted' and not node.keywords:
    end = source.end(node) - 1
    yield Bug('call', end, end, ', reverse=True')
  for keyword in node.keywords:
    first = node.args[-1] if node.args else None
    if first is not None and len(node.keywords) == 1:
      yield Bug('call', source.end(first), source.end(keyword.value), '')


def _arguments(node, source, names) -> Iterator[Bug]:
  if isinstance(node, ast.Call) and len(node.args) >= 2:
    a, b = node.args[:2]
    gap = source.text[source.end(a) : source.start(b)]
    text = source.of(b) + gap + source.of(a)
    yield Bug('arguments', source.start(a), source.end(b), text)
  if isinstance(node, ast.Tuple) and len(node.elts) == 2:
    a, b = node.elts
    gap = source.text[source.end(a) : source.start(b)]
    text = source.of(b) + gap + source.of(a)
    yield Bug('arguments', source.start(a), source.end(b), text)


def _bounds(node, source, names) -> Iterator[Bug]:
  """Off by one where loops and pieces begin and end."""
  if isinstance(node, ast.Call) and getattr(node.func, 'id', '') == 'range':
    last = node.args[min(len(node.args), 2) - 1] if node.args else None
    if last is not None and not isinstance(last, ast.Constant):
      yield source.instead('bounds', last, f'{source.of(last)} - 1')
      yield source.instead('bounds', last, f'{source.of(last)} + 1')
    if len(node.args) == 1:
      yield Bug('bounds', source.start(last), source.start(last), '1, ')
  if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
    for edge in (node.slice.lower, node.slice.upper):
      if edge is not None and not isinstance(edge, ast.Constant):
        yield source.instead('bounds', edge, f'{source.of(edge)} + 1')
  if isinstance(node, ast.Subscript) and isinstance(
    node.slice, ast.Name | ast.BinOp
  ):
    yield source.instead('bounds', node.slice, f'{source.of(node.slice)} - 1')


def _statement(node, source, names) -> Iterator[Bug]:
  """A step that is left out, or leaves too early or too late."""
  if isinstance(node, ast.AugAssign) or (
    isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
  ):
    yield source.instead('statement', node, 'pass')
  elif isinstance(node, ast.Break):
    yield source.instead('statement', node, 'continue')
  elif isinstance(node, ast.Continue):
    yield source.instead('statement', node, 'break')
  elif isinstance(node, ast.If) and not node.orelse:
    yield source.instead('statement', node.test, 'False')
    yield source.instead('statement', node.test, 'True')
  elif isinstance(node, ast.IfExp):
    yield source.instead('statement', node, source.of(node.body))
    yield source.instead('statement', node, source.of(node.orelse))


def _name(node, source, names) -> Iterator[Bug]:
  """Another variable of the same function."""
  if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
    others = [name for name in names if name != node.id]
    if node.id in names and others:
      draw = random.Random(f'{source.start(node)} {node.id}')
      for other in draw.sample(others, 1):
        yield source.instead('name', node, other)


Kind = Callable[[ast.AST, _Source, list[str]], Iterator[Bug]]
KINDS: dict[str, Kind] = {
  'compare': _compare,
  'arithmetic': _arithmetic,
  'constant': _constant,
  'boolean': _boolean,
  'negation': _negation,
  'call': _call,
  'arguments': _arguments,
  'bounds': _bounds,
  'statement': _statement,
  'name': _name,
}


def bugs(text: str, function: str) -> list[Bug]:
  """Lists all bugs that the table puts into a function, each source once.

  Args:
    text: of the module.
    function: name of one of its functions, at the top level.

  Returns:
    Bugs in order of their place, each of which leaves a module that parses and
    is another program.

  Raises:
    ValueError: there is no such function.
  """
  tree = ast.parse(text)
  found = [
    node
    for node in tree.body
    if isinstance(node, ast.FunctionDef) and node.name == function
  ]
  if not found:
    raise ValueError(f'no function {function!r} at the top level')
  body, source = found[0].body, _Source(text)
  names = sorted(
    {n.arg for n in ast.walk(found[0]) if isinstance(n, ast.arg)}
    | {
      n.id
      for n in ast.walk(found[0])
      if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
  )
  docstring = ast.get_docstring(found[0]) is not None
  out, seen = [], {ast.dump(tree)}
  for statement in body[1:] if docstring else body:
    for node in ast.walk(statement):
      for kind in KINDS.values():
        for bug in kind(node, source, names):
          program = _program(bug.put_into(text))
          if program and program not in seen:
            seen.add(program)
            out.append(bug)
  return sorted(out, key=lambda bug: (bug.start, bug.end, bug.replacement))


def is_program(text: str) -> bool:
  """Whether Python can read a source."""
  return bool(_program(text))


def _program(text: str) -> str:
  """What a source means to Python, '' if nothing."""
  try:
    return ast.dump(ast.parse(text))
  except SyntaxError:
    return ''
