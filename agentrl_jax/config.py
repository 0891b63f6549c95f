"""How a config file is read, overridden and checked, field by field.

A file in `configs/` has `get_config()`, which starts from `default()` and
overrides fields. `load` applies command-line overrides on top; `validate`
lists every fault at once, by field, before any device is touched.
"""

import ast
import difflib
import importlib.util
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import ml_collections

from agentrl_jax import defaults, validation


class ConfigError(ValueError):
  """All faults of a configuration, one line each."""

  def __init__(self, faults: Iterable[str]):
    self.faults = tuple(faults)
    lines = '\n'.join(f'  - {fault}' for fault in self.faults)
    super().__init__(f'{len(self.faults)} fault(s) in the config:\n{lines}')


def default() -> ml_collections.ConfigDict:
  """Returns every typed field with its default: the 0.6 M flight policy."""
  fields = (
    defaults.world_fields()
    | defaults.policy_fields()
    | defaults.learning_fields()
  )
  return ml_collections.ConfigDict(fields).lock()


def load(
  path: str, overrides: Mapping[str, str] | None = None
) -> ml_collections.ConfigDict:
  """Reads a config file and applies overrides such as {'seed': '3'}.

  Raises:
    ConfigError: no such file, no `get_config`, unknown fields or bad values;
      every fault of the overrides is listed.
  """
  file = pathlib.Path(path)
  if not file.is_file():
    near = difflib.get_close_matches(
      file.name, [p.name for p in file.parent.glob('*.py')], n=1
    )
    hint = f'; did you mean {file.parent / near[0]}?' if near else ''
    raise ConfigError([f'--config={path}: no such file{hint}'])
  config = _execute(file)
  faults = []
  for field, text in (overrides or {}).items():
    fault = _set(config, field, text)
    if fault:
      faults.append(fault)
  if faults:
    raise ConfigError(faults)
  return config


def load_module(path: str):
  """Imports a config file as a module (for `sweep`)."""
  spec = importlib.util.spec_from_file_location('agentrl_config', path)
  if spec is None or spec.loader is None:
    raise ConfigError([f'--config={path}: not a Python file'])
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def load_sibling(file: str, name: str) -> ml_collections.ConfigDict:
  """Returns the config of another file in the same folder.

  Args:
    file: `__file__` of the config that builds on it.
    name: of the other file.
  """
  return load(str(pathlib.Path(file).parent / name))


def _execute(file: pathlib.Path) -> ml_collections.ConfigDict:
  try:
    module = load_module(str(file))
    config = module.get_config()
  except ConfigError:
    raise
  except (AttributeError, KeyError, TypeError, ValueError) as e:
    message = str(e).strip('"\'')
    raise ConfigError([f'{file}: {type(e).__name__}: {message}']) from e
  except Exception as e:
    raise ConfigError([f'{file}: cannot be read: {e!r}']) from e
  return config.lock()


def flatten(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns {'train.rows': 16, ...} with free-form options as leaves."""
  out = {}

  def walk(prefix, node):
    for key in node:
      name = f'{prefix}{key}'
      if isinstance(node[key], ml_collections.ConfigDict) and key != 'options':
        walk(name + '.', node[key])
      elif isinstance(node[key], ml_collections.ConfigDict):
        out[name] = node[key].to_dict()
      else:
        out[name] = node[key]

  walk('', config)
  return out


def _set(config: ml_collections.ConfigDict, field: str, text: str) -> str:
  """Sets one field from text; returns the fault, or ''."""
  parts = field.split('.')
  node = config
  for depth, part in enumerate(parts[:-1]):
    if part not in node or not isinstance(
      node[part], ml_collections.ConfigDict
    ):
      return validation.unknown(field, flatten(config))
    node = node[part]
    if part == 'options' and depth < len(parts) - 1:
      node.unlock()
  free = len(parts) > 1 and parts[-2] == 'options'
  if parts[-1] not in node and not free:
    return validation.unknown(field, flatten(config))
  old = node.get(parts[-1])
  try:
    value = _parse(text, old)
    if parts[-1] in node:
      node[parts[-1]] = value
    else:
      with node.unlocked():
        node[parts[-1]] = value
  except (TypeError, ValueError) as e:
    return f'config.{field}={text}: {e}'
  return ''


def _parse(text: str, old: Any) -> Any:
  if isinstance(old, bool):
    if text.lower() not in ('true', 'false', '1', '0'):
      raise ValueError('expected true or false')
    return text.lower() in ('true', '1')
  if isinstance(old, str):
    return text
  try:
    value = ast.literal_eval(text)
  except (ValueError, SyntaxError):
    value = text
  if isinstance(value, bool) and old is not None:
    raise ValueError(f'expected {type(old).__name__}, got bool')
  if isinstance(old, float) and isinstance(value, int):
    return float(value)
  if isinstance(old, ml_collections.ConfigDict):
    if not isinstance(value, dict):
      raise ValueError("expected a dict literal such as {'legs': 1}")
    return ml_collections.ConfigDict(value)
  if isinstance(old, tuple) and isinstance(value, list):
    return tuple(value)
  if old is not None and not isinstance(value, type(old)):
    raise ValueError(
      f'expected {type(old).__name__}, got {type(value).__name__}'
    )
  return value


def of_run(directory: str | os.PathLike[str]) -> ml_collections.ConfigDict:
  """Reads the config that a run keeps in its directory.

  Raises:
    ConfigError: no run there, or one with fields that are unknown here.
  """
  path = pathlib.Path(directory, 'config.json')
  if not path.is_file():
    raise ConfigError([f'{directory}: no config.json; give a run directory'])
  config = default()
  try:
    with config.unlocked():
      config.update(json.loads(path.read_text(encoding='utf-8')))
  except (TypeError, ValueError) as e:
    raise ConfigError([f'{path}: {e}']) from e
  known = flatten(default())
  strange = [key for key in flatten(config) if key not in known]
  if strange:
    raise ConfigError(
      f'{path}: {validation.unknown(k, known)}' for k in strange
    )
  return config


def diff(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns the flattened fields that differ from `default()`."""
  base = flatten(default())
  return {
    key: value
    for key, value in flatten(config).items()
    if key not in base or base[key] != value
  }


def to_json(config: ml_collections.ConfigDict) -> str:
  """Returns the config as readable, key-sorted JSON."""
  return json.dumps(config.to_dict(), indent=2, sort_keys=True, default=list)


def validate(
  config: ml_collections.ConfigDict,
  *,
  tables: Mapping[str, Iterable[str]] | None = None,
  num_devices: int | None = None,
  num_hosts: int = 1,
  more: Iterable[str] = (),
) -> None:
  """Raises ConfigError with every fault of `config`.

  Args:
    config: the whole configuration.
    tables: known names by field, e.g. {'env.name': ENVS}; a value with a colon
      ('package.module:Name') is accepted for any of them.
    num_devices: of this process group, to check `mesh`; None = not checked.
    num_hosts: processes of the group, which share tasks and rows evenly.
    more: faults that were found elsewhere, listed with the rest.
  """
  flat = flatten(config)
  known = flatten(default())
  faults = [validation.unknown(k, known) for k in flat if k not in known]
  faults += [f'config.{k}: missing' for k in known if k not in flat]
  if not faults:
    faults = validation.faults(
      config,
      flat,
      tables=tables,
      num_devices=num_devices,
      num_hosts=num_hosts,
    )
  faults += more
  if faults:
    raise ConfigError(faults)
