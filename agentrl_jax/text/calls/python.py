"""Python calls: `[search(city='Xian'), check_seat(flight='CA1')]`.

Read by `ast` and never evaluated: values are literals, `true`, `false` and
`null` among them. A name that is no Python identifier goes by `**{'from': 1}`.
"""

import ast
import keyword
import math
import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.text import chat
from agentrl_jax.text.calls import common

_JSON = {'true': True, 'false': False, 'null': None}
_LONGEST = 20_000  # characters: bounds what the compiler is asked to read

find = common.finder(r'^[ \t]*\[\s*[^\W\d][\w.]*\s*\(')


def read(
  text: str,
  start: int,
  style: chat.Style,
  schemas: Sequence[Mapping[str, Any]],
) -> list[types.ToolCall]:
  """Reads all calls from `start` on.

  Raises:
    common.MalformedCall: says what is wrong with the first bad one.
  """
  del style, schemas
  text = text[start:].strip()
  if len(text) > _LONGEST:
    raise common.MalformedCall(f'more than {_LONGEST} characters')
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')  # of escapes that Python does not know
      tree = ast.parse(text, mode='eval').body
    if not isinstance(tree, ast.List):
      raise common.MalformedCall('not a list of calls')
    return [_call(node) for node in tree.elts]
  except SyntaxError as e:
    message = str(e.msg).splitlines()[0][:60]
    where = f' in line {e.lineno}, character {e.offset}' if e.lineno else ''
    raise common.MalformedCall(f'not Python: {message}{where}') from e
  except (RecursionError, MemoryError) as e:
    raise common.MalformedCall('not Python: nested too deeply') from e
  except ValueError as e:
    raise common.MalformedCall(f'not Python: {str(e)[:60]}') from e


def render(
  calls: Sequence[types.ToolCall], style: chat.Style, prose: str = ''
) -> str:
  """Writes calls as one list, on a line of its own after the prose.

  Raises:
    ValueError: arguments are not JSON, or a tool's name is no dotted name.
  """
  body = f'[{", ".join(_render(call) for call in calls)}]'
  body = common.escaped(body, style.specials, '\\x3c')
  return common.joined(prose, body, '\n', style)


def usage(style: chat.Style) -> str:
  """Says how a call looks."""
  del style
  return 'Write [TOOL(NAME=VALUE)] and nothing after it.'


def faulty(style: chat.Style) -> tuple[str, ...]:
  """Returns texts with the usual faults."""
  del style
  return (
    '[f(f="f")',
    '[f(f="f"',
    '[f(f="f)]',
    '[f(f="f")] f',
    '[f(f=)]',
    '[f("f")]',
    '[f(f=f)]',
    '[f(f=1), f]',
    '[f(f=1, f=1)]',
  )


def _call(node: ast.expr) -> types.ToolCall:
  if not isinstance(node, ast.Call):
    raise common.MalformedCall('a list of calls holds something else')
  name = _name(node.func)
  if node.args:
    raise common.MalformedCall(f'an argument of {name} has no name')
  arguments: dict[str, Any] = {}
  for part in node.keywords:
    value = _value(part.value)
    given = value if part.arg is None else {part.arg: value}
    if not isinstance(given, dict):
      raise common.MalformedCall(f'** in {name} takes a dict')
    for key in given:
      if key in arguments:
        raise common.MalformedCall(f'{common.quoted(key)} is given twice')
    arguments.update(given)
  return types.ToolCall(name, arguments)


def _name(node: ast.expr) -> str:
  parts = []
  while isinstance(node, ast.Attribute):
    parts.append(node.attr)
    node = node.value
  if not isinstance(node, ast.Name):
    raise common.MalformedCall('a tool is called by its name')
  return '.'.join([node.id, *reversed(parts)])


def _value(node: ast.expr) -> Any:
  """Returns the JSON value of a literal; the tree is all that is looked at."""
  match node:
    case ast.Constant(value=str() | int() | None):  # a bool is an int
      return node.value
    case ast.Constant(value=float()) if math.isfinite(node.value):
      return node.value
    case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=v)) if (
      isinstance(v, int | float) and not isinstance(v, bool)
    ):
      return -_value(node.operand)
    case ast.Name(id=name) if name in _JSON:
      return _JSON[name]
    case ast.List() | ast.Tuple():
      return [_value(part) for part in node.elts]
    case ast.Dict():
      keys = [None if key is None else _value(key) for key in node.keys]
      if not all(isinstance(key, str) for key in keys):
        raise common.MalformedCall('keys of a dict must be strings')
      return dict(zip(keys, map(_value, node.values)))
  raise common.MalformedCall('a value is no literal')


def _render(call: types.ToolCall) -> str:
  parts = call.name.split('.')
  if not all(part.isidentifier() for part in parts) or (
    any(map(keyword.iskeyword, parts))
    or unicodedata.normalize('NFKC', call.name) != call.name
  ):
    raise ValueError(f'{call.name!r} is no name of a Python function')
  # Plain values: what JSON takes for a string may have a `repr` of its own.
  arguments = common.loads(common.dumps(common.checked(call)))
  parts, others = [], {}
  for key, value in arguments.items():
    plain = key.isascii() and key.isidentifier()
    if plain and not keyword.iskeyword(key):
      parts.append(f'{key}={value!r}')
    else:
      others[key] = value
  if others:
    parts.append(f'**{others!r}')
  return f'{call.name}({", ".join(parts)})'
