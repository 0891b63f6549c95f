"""How do adapters get in and out of the layout that the package `peft` reads?

A directory with `adapter_config.json` and `adapter_model.safetensors`; the
names of matrices are those of `hf`.
"""

import json
import math
import pathlib
from typing import Any

import numpy as np
import safetensors.numpy

from agentrl_jax.models import families
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.models.lora import INPUTS, Lora, adapters

_CONFIG, _WEIGHTS = 'adapter_config.json', 'adapter_model.safetensors'
_PREFIX = 'base_model.model.'
# Fields of adapter_config.json -> what they may be.
_ONLY = {
  'peft_type': ('LORA',),
  'bias': ('none',),
  'init_lora_weights': (True, False, 'gaussian'),  # others change the base
}
# Without a say in the logits. Any other field that is set (neither null, false
# nor empty) is refused: it may change them.
_HARMLESS = frozenset(
  (
    'r',
    'lora_alpha',
    'target_modules',
    'task_type',
    'auto_mapping',
    'peft_version',
    'base_model_name_or_path',
    'revision',
    'inference_mode',
    'lora_dropout',  # adapters are not trained on with it here
    'megatron_core',
    'qalora_group_size',
  )
)


def _module(name: str) -> str:
  """Name of a target over there, such as 'q_proj'."""
  return families.NAMES['layers', name].path.split('.')[-2]


def save(
  directory: str | pathlib.Path,
  config: ModelConfig,
  params: dict,
  *,
  base: str = '',
) -> None:
  """Writes the adapters of params.

  Args:
    directory: made if missing; an adapter in it is overwritten.
    config: the policy's shape, with its adapters.
    params: with adapters; the rest may be missing.
    base: name or directory of the base, for whoever loads it.

  Raises:
    ValueError: there are no adapters.
  """
  lora, trained = config.lora, adapters(params)
  if lora is None or not trained:
    raise ValueError('no adapters in these params: config.lora.rank is 0')
  directory = pathlib.Path(directory)
  directory.mkdir(parents=True, exist_ok=True)
  tensors = {}
  for name, pair in trained.items():
    a, b = (np.asarray(pair[key], np.float32) for key in 'ab')
    for layer in range(a.shape[0]):
      module = _path(name, layer)
      # Stored as [outputs, inputs], as torch's linear layers are.
      tensors[f'{module}.lora_A.weight'] = _matrix(a[layer], INPUTS[name])
      tensors[f'{module}.lora_B.weight'] = _matrix(b[layer], 1)
  safetensors.numpy.save_file(
    tensors, directory / _WEIGHTS, metadata={'format': 'pt'}
  )
  (directory / _WEIGHTS).chmod(0o644)
  fields = {
    'peft_type': 'LORA',
    'task_type': 'CAUSAL_LM',
    'base_model_name_or_path': base,
    'r': lora.rank,
    'lora_alpha': lora.alpha,
    'lora_dropout': 0.0,
    'target_modules': sorted(map(_module, lora.targets)),
    'bias': 'none',
    'fan_in_fan_out': False,
    'use_rslora': False,
    'inference_mode': True,
    'init_lora_weights': True,
  }
  text = json.dumps(fields, indent=2) + '\n'
  (directory / _CONFIG).write_text(text, encoding='utf-8')


def _path(name: str, layer: int) -> str:
  path = families.NAMES['layers', name].path.format(layer)
  return _PREFIX + path.removesuffix('.weight')


def _matrix(value: np.ndarray, num_inputs: int) -> np.ndarray:
  inputs = math.prod(value.shape[:num_inputs])
  return np.ascontiguousarray(value.reshape(inputs, -1).T)


def read_config(directory: str | pathlib.Path) -> Lora:
  """Reads rank, alpha and targets of an adapter.

  Raises:
    ValueError: no adapter there, or one with a field that is unsupported.
  """
  path = pathlib.Path(directory, _CONFIG)
  if not path.is_file():
    raise ValueError(f'{directory}: no {_CONFIG}; give a PEFT directory')
  fields = json.loads(path.read_text('utf-8'))
  faults = [
    f'{name}={value!r} is not supported'
    for name, value in fields.items()
    if (value not in _ONLY[name] if name in _ONLY else value)
    and name not in _HARMLESS
  ]
  faults += [
    f'{name} is missing'
    for name in ('r', 'lora_alpha', 'target_modules')
    if fields.get(name) is None
  ]
  targets, known = fields.get('target_modules'), {_module(n): n for n in INPUTS}
  if targets == 'all-linear':
    targets = list(known)
  if isinstance(targets, str):
    faults.append(f'target_modules={targets!r}: a pattern; name the modules')
    targets = []
  strange = [name for name in targets or () if name not in known]
  if strange:
    faults.append(f'target_modules: {strange}: only {sorted(known)}')
  if faults:
    raise ValueError(f'{path}: ' + '; '.join(faults))
  chosen = {known[name] for name in targets}
  return Lora(
    rank=fields['r'],
    alpha=float(fields['lora_alpha']),
    targets=tuple(name for name in INPUTS if name in chosen),
  )


def check(directory: str | pathlib.Path, lora: Lora) -> None:
  """Raises ValueError unless an adapter has this rank, alpha and targets."""
  theirs = read_config(directory)
  ours = (lora.rank, lora.alpha, set(lora.targets))
  if (theirs.rank, theirs.alpha, set(theirs.targets)) != ours:
    raise ValueError(
      f'it has rank={theirs.rank}, alpha={theirs.alpha:g}, '
      f'targets={theirs.targets}; set config.lora so'
    )


def load(directory: str | pathlib.Path, config: ModelConfig) -> dict[str, Any]:
  """Reads adapters: a partial tree of params, float32, on the host.

  Args:
    directory: as `save` or the package `peft` writes it.
    config: the policy's shape, with its adapters.

  Raises:
    ValueError: other adapters than `config` has, or a tensor is missing, of
      another shape or not ours.
  """
  check(directory, config.lora)
  tensors = safetensors.numpy.load_file(pathlib.Path(directory, _WEIGHTS))
  described = adapters(params_lib.describe(config))
  out: dict[str, Any] = {}
  for name, pair in described.items():
    out[name] = {
      key: np.stack(
        [
          _ours(tensors, name, layer, key, weight)
          for layer in range(weight.shape[0])
        ]
      )
      for key, weight in pair.items()
    }
  if tensors:
    raise ValueError(f'{directory}: not supported: {sorted(tensors)[:3]}')
  return {'layers': {'lora': out}}


def _ours(
  tensors: dict, name: str, layer: int, key: str, weight: params_lib.Weight
) -> np.ndarray:
  shape = weight.shape[1:]
  num_inputs = INPUTS[name] if key == 'a' else 1
  stored = (math.prod(shape[num_inputs:]), math.prod(shape[:num_inputs]))
  path = f'{_path(name, layer)}.lora_{key.upper()}.weight'
  value = tensors.pop(path, None)
  if value is None or value.shape != stored:
    raise ValueError(
      f'{path}: {"missing" if value is None else value.shape}; the policy '
      f'makes it {stored}'
    )
  return np.asarray(value, np.float32).T.reshape(shape)
