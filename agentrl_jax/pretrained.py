"""Weights that somebody else trained: where they lie, their shape, tokenizer.

`config.model.weights` names a directory in Hugging Face layout, a GGUF file, or
one of these inside an installed package, as 'PACKAGE:NAME'.
"""

import functools
import importlib.util
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from agentrl_jax.models import gguf, hf
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.text import tokenizer as tokenizer_lib

# Fields of `config.model` that say how a run computes; all others are shape,
# which the weights bring with them.
HOW = (
  'weights',
  'attention',
  'remat',
  'scan_unroll',
  'dtype',
  'expert_compute',
  'balance_coef',
)


def find(name: str) -> pathlib.Path:
  """Returns the directory or file that a name means.

  Raises:
    ValueError: no such package, directory or file.
  """
  package, colon, inner = name.partition(':')
  path = pathlib.Path(name)
  if colon and not path.exists():
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or spec.origin is None:
      raise ValueError(f'{name}: no package {package!r}; install it first')
    path = pathlib.Path(spec.origin).parent / inner
  if not path.exists():
    raise ValueError(
      f'{path}: not there; give a model directory, a GGUF file or PACKAGE:NAME'
    )
  return path


def shape(name: str) -> ModelConfig:
  """Reads what shape the weights have, and no weight.

  Raises:
    ValueError: not there, or of a family or with a field that is unsupported.
  """
  return _read(str(find(name)))[0]


def tokenizer(name: str) -> tokenizer_lib.Tokenizer | None:
  """Reads the tokenizer that comes with the weights, None if none does."""
  path = find(name)
  if path.is_file():
    return tokenizer_lib.Tokenizer(*_read(str(path))[1])
  if (path / 'tokenizer.json').is_file():
    return tokenizer_lib.load(path)
  return None


@functools.lru_cache(maxsize=4)
def _read(path: str) -> tuple[ModelConfig, Any]:
  """(shape, what a GGUF file says of its tokenizer)."""
  place = pathlib.Path(path)
  if place.is_file():
    return gguf.describe(place)
  fields = place / 'config.json'
  if not fields.is_file():
    raise ValueError(f'{path}: no config.json; give a model directory')
  text = fields.read_text('utf-8')
  return hf.read_config(json.loads(text), where=str(fields)), None


def load(name: str, *, dtype: Any, shardings: Any = None) -> dict:
  """Reads the weights.

  Args:
    name: see the module.
    dtype: of the weights.
    shardings: tree like the parameters; None = the default device.

  Raises:
    ValueError: see `hf.load` and `gguf.load`.
  """
  path = find(name)
  read = gguf.load if path.is_file() else hf.load
  return read(path, dtype=dtype, shardings=shardings)[1]


def faults(model: Mapping[str, Any], default: Mapping[str, Any]) -> list[str]:
  """Returns what is wrong with `config.model` where it names weights.

  Args:
    model: `config.model`.
    default: the same of the default config: a field that was not touched is
      not compared with what the weights say.
  """
  if not model['weights']:
    return []
  try:
    theirs = shape(model['weights'])
  except (OSError, ValueError) as e:
    return [f'config.model.weights={model["weights"]}: {e}']
  return [
    f'config.model.{key}={value!r}: the weights say {getattr(theirs, key)!r}; '
    'leave the field alone'
    for key, value in model.items()
    if key not in HOW
    and value != default[key]
    and value != getattr(theirs, key)
  ]
