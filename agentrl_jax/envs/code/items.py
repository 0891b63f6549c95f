"""Where do working functions come from? From modules with examples in them.

An item is one function with whatever of its module it needs, as a module of its
own, and the examples of its docstring as cases. Our own seeds are package data;
modules that are installed on this machine are read where they lie.
"""

import ast
import dataclasses
import doctest
import pathlib
import sys
from collections.abc import Iterator

SEEDS = pathlib.Path(__file__).parent / 'seeds'
MAX_LINES = 120  # of an item


@dataclasses.dataclass(frozen=True)
class Item:
  """A module of one function and what it needs.

  `module` is its name without '.py'; `cases` are (statements before it,
  expression) pairs, in the order of the docstring.
  """

  module: str
  function: str
  text: str
  cases: tuple[tuple[str, str], ...]

  @property
  def name(self) -> str:
    return f'{self.module}.{self.function}'


def seeds() -> list[Item]:
  """The items of our own modules, by name."""
  paths = sorted(SEEDS.glob('[a-z]*.py'))
  return [item for path in paths for item in of_module(path)]


def of_module(path: pathlib.Path, prefix: str = '') -> Iterator[Item]:
  """Takes a module apart.

  Functions without examples are left out, and those that need what is neither
  in the module nor in the standard library.

  Args:
    path: of the module.
    prefix: put before its name, so that it hides no module of that name.
  """
  stem = f'{prefix}_{path.stem}' if prefix else path.stem
  text = path.read_text(encoding='utf-8')
  tree = ast.parse(text)
  parts = _parts(tree)
  for node in tree.body:
    if not isinstance(node, ast.FunctionDef) or node.name.startswith('_'):
      continue
    examples = doctest.DocTestParser().get_examples(
      ast.get_docstring(node) or ''
    )
    needed = _needed(node, parts)
    if examples and needed is not None:
      made = _module(text, needed)
      if made.count('\n') <= MAX_LINES:
        cases = tuple(_cases(examples))
        yield Item(stem, node.name, made, cases)


def _parts(tree: ast.Module) -> dict[str, ast.stmt]:
  """Statements of a module by the names that they define."""
  parts = {}
  for node in tree.body:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
      parts[node.name] = node
    elif isinstance(node, ast.Import | ast.ImportFrom):
      for alias in node.names:
        parts[(alias.asname or alias.name).partition('.')[0]] = node
    elif isinstance(node, ast.Assign | ast.AnnAssign):
      targets = getattr(node, 'targets', None) or [node.target]
      for name in (n for t in targets for n in ast.walk(t)):
        if isinstance(name, ast.Name):
          parts[name.id] = node
  return parts


def _needed(
  function: ast.FunctionDef, parts: dict[str, ast.stmt]
) -> list[ast.stmt] | None:
  """The function and what it needs, None if that is out of reach."""
  needed, waiting = [], [function]
  while waiting:
    node = waiting.pop()
    if node in needed:
      continue
    needed.append(node)
    if isinstance(node, ast.Import | ast.ImportFrom):
      modules = [node.module] if isinstance(node, ast.ImportFrom) else []
      modules = modules or [alias.name for alias in node.names]
      if getattr(node, 'level', 0) or any(
        (m or '').partition('.')[0] not in sys.stdlib_module_names
        for m in modules
      ):
        return None
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    waiting += [parts[name] for name in sorted(names) if name in parts]
  return needed


def _module(text: str, needed: list[ast.stmt]) -> str:
  """Writes the statements as a module, without the examples."""
  lines = text.splitlines()
  pieces = []
  for node in sorted(needed, key=lambda node: node.lineno):
    decorators = getattr(node, 'decorator_list', [])
    first = min([node.lineno, *(d.lineno for d in decorators)])
    piece = lines[first - 1 : node.end_lineno]
    if isinstance(node, ast.FunctionDef):
      piece = _without_examples(piece, node, first)
    pieces.append('\n'.join(piece))
  return '\n\n'.join(pieces) + '\n'


def _without_examples(
  lines: list[str], node: ast.FunctionDef, first: int
) -> list[str]:
  """Shortens a docstring to its first line."""
  if ast.get_docstring(node) is None or len(node.body) < 2:
    return lines
  there = node.body[0]
  begin, end = there.lineno - first, there.end_lineno - first
  summary = ast.get_docstring(node).strip().splitlines()[0].strip()
  indent = ' ' * there.col_offset
  summary = summary.replace('\\', ' ').replace('"', "'").rstrip("'")
  return [*lines[:begin], f'{indent}"""{summary}"""', *lines[end + 1 :]]


def _cases(examples: list[doctest.Example]) -> Iterator[tuple[str, str]]:
  """Expressions, each after the statements of the examples before it."""
  before = ''
  for example in examples:
    source = example.source.strip()
    try:
      ast.parse(source, mode='eval')
    except SyntaxError:
      before += source + '\n'
      continue
    if example.want or example.exc_msg:
      yield before, source
    else:  # called for what it does
      before += source + '\n'
