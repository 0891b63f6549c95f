"""How is a name in a config turned into the thing it names?"""

import difflib
import importlib
from collections.abc import Mapping
from typing import Any


def resolve(table: Mapping[str, Any], name: str) -> Any:
  """Returns `table[name]`, or imports `'package.module:Name'`.

  Args:
    table: the known names.
    name: one of them, or a dotted module and an attribute joined by ':', so
      that nobody edits this package to add an algorithm or an environment.

  Returns:
    The value of the table, or the imported attribute.

  Raises:
    ValueError: the name is unknown (the message lists the known ones and the
      nearest), or the import fails.
  """
  if name in table:
    return table[name]
  if ':' in name:
    module_name, _, attribute = name.partition(':')
    try:
      return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
      raise ValueError(
        f'cannot import {name!r}: {error}; expected'
        " 'package.module:Name' of something importable"
      ) from error
  nearest = difflib.get_close_matches(name, table, n=1, cutoff=0.0)
  raise ValueError(
    f'unknown name {name!r}; known: {", ".join(sorted(table))}'
    + (f'; nearest: {nearest[0]!r}' if nearest else '')
    + "; or give 'package.module:Name'"
  )
