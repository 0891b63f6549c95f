"""Files that no package holds, such as fakes, tools and scripts, as modules."""

import importlib.util
import sys


def load(path):
  """Imports a file under its own name, once: all who load it share it."""
  if path.stem not in sys.modules:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
  return sys.modules[path.stem]
