"""Which files decide what an environment generates?

Its class and its bases, what of this folder they import, however deep and even
inside a function, and the data beside those: an edit of one environment leaves
the panels of the others as they are.
"""

import ast
import hashlib
import inspect
import pathlib
from collections.abc import Iterable, Iterator

_FOLDER = pathlib.Path(__file__).parent
_PACKAGE = 'agentrl_jax.envs'
# Makes the datasets of all environments.
_MAKERS = (_FOLDER / 'panels.py', _FOLDER / 'builders' / 'records.py')


def version(env_class: type) -> str:
  """Returns a digest of these files' contents."""
  digest = hashlib.blake2b(digest_size=8)
  for path in files(env_class):
    digest.update(path.read_bytes())
  return digest.hexdigest()


def files(env_class: type) -> list[pathlib.Path]:
  """Returns the files that an environment's tasks and episodes depend on.

  Args:
    env_class: of this folder or from anywhere else; what a class from elsewhere
      imports from elsewhere is not followed.

  Returns:
    Sorted paths.
  """
  bases = [c for c in env_class.__mro__ if c.__module__ != 'builtins']
  own = (pathlib.Path(inspect.getsourcefile(c)) for c in bases)
  stdlib = pathlib.Path(inspect.getsourcefile(ast)).parent
  left = [p for p in own if p.parent != stdlib]
  found = set(_MAKERS)
  while left:
    path = left.pop()
    if path not in found:
      found.add(path)
      left += _imported(path)
  return sorted(found | set(_data(found)))


def _imported(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Files of this folder that a file imports, anywhere in it."""
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, ast.Import):
      names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
      # `from package import module` names a module, or the package's own name.
      below = [f'{node.module}.{alias.name}' for alias in node.names]
      names = [name if _file(name) else node.module for name in below]
    else:
      continue
    yield from filter(None, map(_file, names))


def _file(module: str) -> pathlib.Path | None:
  """The file of a module of this folder, None if it is none."""
  if module == _PACKAGE:
    return _FOLDER / '__init__.py'
  if not module.startswith(_PACKAGE + '.'):
    return None
  path = _FOLDER.joinpath(*module.removeprefix(_PACKAGE + '.').split('.'))
  for candidate in (path.with_suffix('.py'), path / '__init__.py'):
    if candidate.is_file():
      return candidate
  return None


def _data(paths: Iterable[pathlib.Path]) -> Iterator[pathlib.Path]:
  """JSON beside files in folders of this folder."""
  for folder in {path.parent for path in paths}:
    if _FOLDER in folder.parents:
      yield from folder.glob('*.json')
