"""Puts bugs into working functions and keeps those that tests notice.

  tools/run tools/make_repairs.py                    # from our own seeds
  tools/run tools/make_repairs.py --installed --out=FILE
  tools/run tools/make_repairs.py --package=toolz --package=statistics --out=F

The first writes the catalogue that `config.env.name='repair'` uses. The others
read modules that are installed on this machine, for their examples; train on
them with `--config.env.options.catalogue=FILE`. Their texts stay under their
licences: no such file belongs to this project. Prints the yield as JSON.
"""

import argparse
import importlib.util
import json
import pathlib
import sys
from collections.abc import Iterator

from agentrl_jax.envs.code import catalogue, items

# Pure Python, with examples that say what a function is for.
INSTALLED = (
  *('toolz', 'sortedcontainers', 'networkx', 'humanize', 'packaging'),
  *('mpmath', 'sympy', 'statistics', 'textwrap', 'difflib', 'fractions'),
  *('heapq', 'ipaddress', 'rapidfuzz', 'setuptools', 'more_itertools'),
)


def main(arguments: list[str] | None = None) -> int:
  """Builds a catalogue; returns the exit status."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--installed', action='store_true', help='these as well')
  parser.add_argument('--package', action='append', default=[])
  parser.add_argument('--out', default=catalogue.OWN, type=pathlib.Path)
  parser.add_argument('--most', type=int, default=10**9, help='functions')
  parser.add_argument('--backend', default='auto')
  options = parser.parse_args(arguments)
  names = [*options.package, *(INSTALLED if options.installed else ())]
  if names and options.out == catalogue.OWN:
    print('give --out=FILE: what is installed is not ours', file=sys.stderr)
    return 2
  sources = items.seeds()
  for name in names:
    sources += installed(name)
  made, numbers = catalogue.build(
    sources[: options.most],
    lambda line: print(line, file=sys.stderr),
    options.backend,
  )
  options.out.write_text(catalogue.dump(made), encoding='utf-8')
  name = 'installed' if names else 'own'
  print(json.dumps({'name': name, **numbers}))
  return 0


def installed(name: str) -> list[items.Item]:
  """Functions of a package that can stand alone; [] if it is not installed."""
  spec = importlib.util.find_spec(name)
  if spec is None or spec.origin is None:
    print(f'{name} is not installed', file=sys.stderr)
    return []
  return list(_functions(name, pathlib.Path(spec.origin)))


def _functions(name: str, origin: pathlib.Path) -> Iterator[items.Item]:
  """Walks a package, or takes its only file; what cannot be read is left."""
  whole = origin.name == '__init__.py'
  paths = sorted(origin.parent.rglob('*.py')) if whole else [origin]
  for path in paths:
    if 'tests' in path.parts or not path.stem.isidentifier():
      continue
    try:
      yield from items.of_module(path, prefix=name)
    except (SyntaxError, UnicodeDecodeError, ValueError):
      continue


if __name__ == '__main__':
  sys.exit(main())
