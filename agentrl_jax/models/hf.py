"""How do weights get in and out of the Hugging Face layout?

One table of names serves both directions; one tensor at a time is in host
memory besides the stacked weight that it belongs to. A field of `config.json`
that would change the mathematics and is not supported is an error.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors
import safetensors.numpy

from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import ModelConfig


class Name(NamedTuple):
  """Where a weight lies over there.

  Attributes:
    path: tensor name; `{}` is the layer.
    inputs: leading axes of ours that are the input of a matrix, which is
      stored as [outputs, inputs]; 0 = stored as it is.
  """

  path: str
  inputs: int = 0


_BLOCK = 'model.layers.{}.'
NAMES = {
  ('embed', 'table'): Name('model.embed_tokens.weight'),
  ('layers', 'attention_norm'): Name(_BLOCK + 'input_layernorm.weight'),
  ('layers', 'q'): Name(_BLOCK + 'self_attn.q_proj.weight', 1),
  ('layers', 'k'): Name(_BLOCK + 'self_attn.k_proj.weight', 1),
  ('layers', 'v'): Name(_BLOCK + 'self_attn.v_proj.weight', 1),
  ('layers', 'o'): Name(_BLOCK + 'self_attn.o_proj.weight', 2),
  ('layers', 'q_norm'): Name(_BLOCK + 'self_attn.q_norm.weight'),
  ('layers', 'k_norm'): Name(_BLOCK + 'self_attn.k_norm.weight'),
  ('layers', 'mlp_norm'): Name(_BLOCK + 'post_attention_layernorm.weight'),
  ('layers', 'gate'): Name(_BLOCK + 'mlp.gate_proj.weight', 1),
  ('layers', 'up'): Name(_BLOCK + 'mlp.up_proj.weight', 1),
  ('layers', 'down'): Name(_BLOCK + 'mlp.down_proj.weight', 1),
  ('final_norm',): Name('model.norm.weight'),
  ('head',): Name('lm_head.weight', 1),
}

# model_type -> what it says about our decoder.
FAMILIES = {
  'qwen3': {'architecture': 'Qwen3ForCausalLM', 'qk_norm': True},
  'llama': {'architecture': 'LlamaForCausalLM', 'qk_norm': False},
}

# config.json field -> ours; all but the last three must be there.
_FIELDS = {
  'num_hidden_layers': 'num_layers',
  'hidden_size': 'd_model',
  'num_attention_heads': 'num_heads',
  'num_key_value_heads': 'num_kv_heads',
  'intermediate_size': 'd_ff',
  'vocab_size': 'vocab_size',
  'rms_norm_eps': 'norm_epsilon',
  'head_dim': 'head_dim',
  'tie_word_embeddings': 'tie_embeddings',
  'rope_theta': 'rope_theta',
}
_OPTIONAL = ('head_dim', 'tie_word_embeddings', 'rope_theta')
_ONLY = {'hidden_act': ('silu',), 'pretraining_tp': (1,)}
# Fields without a say in the logits. Any other field that is set (neither
# null, false, 0 nor empty) is refused: it may change them.
_HARMLESS = frozenset(
  (
    'architectures',
    'model_type',
    'dtype',
    'torch_dtype',
    'transformers_version',
    '_name_or_path',
    'initializer_range',
    'max_position_embeddings',
    'max_window_layers',  # of a sliding window, which is refused if on
    'bos_token_id',
    'eos_token_id',
    'pad_token_id',
    'use_cache',
    'return_dict',
    'id2label',
    'label2id',
    'is_llama_config',
    'transformers.js_config',
    'rope_parameters',  # checked by _rope
    'rope_scaling',
    'layer_types',  # checked by _from_json
  )
)


def load(
  directory: str | pathlib.Path, *, dtype: Any = None, shardings: Any = None
) -> tuple[ModelConfig, dict]:
  """Reads a model directory.

  Args:
    directory: holds config.json and model.safetensors, or shards and
      model.safetensors.index.json.
    dtype: of weights and activations; None = as stored.
    shardings: tree like the parameters; None = the default device.

  Returns:
    (config, params), layers stacked.

  Raises:
    ValueError: a file, field or tensor is missing, unsupported or misshapen.
  """
  directory = pathlib.Path(directory)
  path = directory / 'config.json'
  if not path.is_file():
    raise ValueError(f'{directory}: no config.json; give a model directory')
  config = read_config(json.loads(path.read_text('utf-8')), where=str(path))
  files = _files(directory)
  _check_names(files, config, directory)
  if dtype is None:
    dtype = _tensor(files, NAMES['embed', 'table'].path)[1].dtype
  dtype = np.dtype(dtype)
  config = dataclasses.replace(config, dtype=dtype.name)
  params: dict = {}
  for keys, weight in _weights(config):
    value = _read(files, keys, weight.shape, dtype)
    params = _put(params, keys, jax.device_put(value, _at(shardings, keys)))
  return config, params


def save(
  directory: str | pathlib.Path,
  config: ModelConfig,
  params: dict,
  *,
  fields: Mapping[str, Any] | None = None,
  shard_bytes: int = 4 << 30,
) -> None:
  """Writes a model directory that `transformers` and `load` read.

  Args:
    directory: made if missing; a model in it is overwritten.
    config: the shape.
    params: layers stacked; fetched from the device one layer at a time.
    fields: further fields of config.json, such as `eos_token_id`.
    shard_bytes: a file holds at most that much, or one tensor.

  Raises:
    ValueError: a weight has another shape than `config` says.
  """
  directory = pathlib.Path(directory)
  directory.mkdir(parents=True, exist_ok=True)
  for old in directory.glob('model*.safetensors*'):
    old.unlink()
  shards = _plan(config, params, shard_bytes)
  single = len(shards) == 1
  weight_map, total = {}, 0
  for i, shard in enumerate(shards, start=1):
    name = f'model-{i:05d}-of-{len(shards):05d}.safetensors'
    name = 'model.safetensors' if single else name
    tensors = dict(_stored(params, keys, layer) for keys, layer in shard)
    total += sum(tensor.nbytes for tensor in tensors.values())
    weight_map.update(dict.fromkeys(tensors, name))
    safetensors.numpy.save_file(
      tensors, directory / name, metadata={'format': 'pt'}
    )
    (directory / name).chmod(0o644)  # it is written as a private file
  if not single:
    index = {'metadata': {'total_size': total}, 'weight_map': weight_map}
    _write_json(directory / 'model.safetensors.index.json', index)
  dtype = np.dtype(_at(params, ('embed', 'table')).dtype).name
  described = {**write_config(config), 'dtype': dtype, **(fields or {})}
  _write_json(directory / 'config.json', described)


def read_config(
  fields: Mapping[str, Any], *, where: str = 'config.json'
) -> ModelConfig:
  """Reads the shape from the fields of a `config.json`.

  Raises:
    ValueError: lists every field that is missing or not supported.
  """
  family = FAMILIES.get(fields.get('model_type'))
  if family is None:
    raise ValueError(
      f'{where}: model_type={fields.get("model_type")!r} is not one of '
      f'{sorted(FAMILIES)}'
    )
  faults = [
    f'{name} is missing'
    for name in _FIELDS
    if fields.get(name) is None and name not in _OPTIONAL
  ]
  faults += _unsupported(fields)
  theta, fault = _rope(fields)
  faults += fault
  if faults:
    raise ValueError(f'{where}: ' + '; '.join(faults))
  ours = {
    name: fields[theirs]
    for theirs, name in _FIELDS.items()
    if fields.get(theirs) is not None
  }
  ours.setdefault('head_dim', _default_head_dim(fields))
  ours['rope_theta'] = float(theta)
  return ModelConfig(
    **{'tie_embeddings': False, **ours}, qk_norm=family['qk_norm']
  )


def write_config(config: ModelConfig) -> dict[str, Any]:
  """Returns the fields of `config.json`; `read_config` gives config back."""
  name, family = next(
    item for item in FAMILIES.items() if item[1]['qk_norm'] == config.qk_norm
  )
  fields = {theirs: getattr(config, ours) for theirs, ours in _FIELDS.items()}
  theta = fields.pop('rope_theta')
  return {
    'architectures': [family['architecture']],
    'model_type': name,
    **fields,
    'rope_theta': theta,  # read by transformers 4
    'rope_parameters': {'rope_theta': theta, 'rope_type': 'default'},
    'hidden_act': 'silu',
    'attention_bias': False,
    'attention_dropout': 0.0,
    'max_position_embeddings': 32768,
    'initializer_range': 0.02,
  }


def _unsupported(fields: Mapping[str, Any]) -> list[str]:
  faults = []
  for name, value in fields.items():
    if name in _ONLY:
      if value not in _ONLY[name]:
        faults.append(f'{name}={value!r}: only {_ONLY[name][0]!r} is supported')
    elif name == 'layer_types':
      if set(value or ()) - {'full_attention'}:
        faults.append("layer_types: only 'full_attention' is supported")
    elif value and name not in _HARMLESS and name not in _FIELDS:
      faults.append(f'{name}={value!r} is not supported')
  return faults


def _rope(fields: Mapping[str, Any]) -> tuple[float, list[str]]:
  """Returns the rotary base and faults; reads both spellings."""
  theta = fields.get('rope_theta')
  faults = []
  for name in ('rope_parameters', 'rope_scaling'):
    rope = dict(fields.get(name) or {})
    kind = rope.pop('rope_type', rope.pop('type', 'default'))
    theta = rope.pop('rope_theta', theta)
    if kind != 'default' or any(rope.values()):
      faults.append(f'{name}={fields[name]!r}: only plain rotary is supported')
  return 10000.0 if theta is None else theta, faults


def _default_head_dim(fields: Mapping[str, Any]) -> int:
  if fields['model_type'] == 'qwen3':
    return 128
  return fields['hidden_size'] // fields['num_attention_heads']


def _weights(
  config: ModelConfig,
) -> Iterator[tuple[tuple[str, ...], params_lib.Weight]]:
  """Walks the table of names in its order, over the weights there are."""
  described = params_lib.describe(config)
  for keys in NAMES:
    weight = _at(described, keys, missing=None)
    if weight is not None:
      yield keys, weight


def _files(directory: pathlib.Path) -> dict[str, pathlib.Path]:
  """Tensor name -> file."""
  index = directory / 'model.safetensors.index.json'
  if index.is_file():
    weight_map = json.loads(index.read_text('utf-8'))['weight_map']
    return {name: directory / file for name, file in weight_map.items()}
  path = directory / 'model.safetensors'
  if not path.is_file():
    raise ValueError(
      f'{directory}: neither model.safetensors nor '
      'model.safetensors.index.json; convert the weights to safetensors'
    )
  with safetensors.safe_open(path, framework='numpy') as file:
    return dict.fromkeys(file.keys(), path)


def _check_names(files, config: ModelConfig, directory: pathlib.Path) -> None:
  expected = {
    NAMES[keys].path.format(layer)
    for keys, _ in _weights(config)
    for layer in range(config.num_layers)
  }
  missing = sorted(expected - set(files))
  # Tied models may store the head twice; rotary tables are derived.
  extra = sorted(
    name
    for name in set(files) - expected
    if name != NAMES['head',].path and not name.endswith('inv_freq')
  )
  if missing or extra:
    raise ValueError(
      f'{directory}: tensors do not fit config.json: missing {missing[:3]} '
      f'({len(missing)}), not supported {extra[:3]} ({len(extra)})'
    )


def _read(files, keys, shape, dtype) -> np.ndarray:
  """Reads one weight, all layers of it, converting layer by layer."""
  name = NAMES[keys]
  if keys[0] != 'layers':
    return _ours(_tensor(files, name.path), name, shape).astype(dtype)
  value = np.empty(shape, dtype)
  for layer in range(shape[0]):
    tensor = _tensor(files, name.path.format(layer))
    value[layer] = _ours(tensor, name, shape[1:])
  return value


def _tensor(files, path: str) -> tuple[str, np.ndarray]:
  with safetensors.safe_open(files[path], framework='numpy') as file:
    return path, file.get_tensor(path)


def _ours(
  tensor: tuple[str, np.ndarray], name: Name, shape: tuple[int, ...]
) -> np.ndarray:
  path, value = tensor
  if value.shape != _their_shape(name, shape):
    raise ValueError(
      f'{path} is {value.shape}, but config.json makes it '
      f'{_their_shape(name, shape)}'
    )
  return (value.T if name.inputs else value).reshape(shape)


def _their_shape(name: Name, shape: tuple[int, ...]) -> tuple[int, ...]:
  if not name.inputs:
    return tuple(shape)
  inputs, outputs = shape[: name.inputs], shape[name.inputs :]
  return math.prod(outputs), math.prod(inputs)


def _stored(params: dict, keys: tuple, layer: int) -> tuple[str, np.ndarray]:
  """Fetches one tensor and gives it its name and layout over there."""
  name, value = NAMES[keys], _at(params, keys)
  value = np.asarray(value if layer < 0 else value[layer])
  shape = _their_shape(name, value.shape)
  if name.inputs:
    value = value.reshape(shape[::-1]).T
  return name.path.format(layer), np.ascontiguousarray(value)


def _plan(
  config: ModelConfig, params: dict, shard_bytes: int
) -> list[list[tuple[tuple[str, ...], int]]]:
  """Cuts the tensors into files: lists of (keys, layer), -1 = no layer."""
  shards, room = [[]], shard_bytes
  for keys, weight in _weights(config):
    value = _at(params, keys, missing=None)
    if value is None or value.shape != weight.shape:
      raise ValueError(
        f'params[{"][".join(map(repr, keys))}] should be {weight.shape}, not '
        f'{getattr(value, "shape", None)}'
      )
    stacked = keys[0] == 'layers'
    size = math.prod(weight.shape) * np.dtype(value.dtype).itemsize
    size //= config.num_layers if stacked else 1
    for layer in range(config.num_layers) if stacked else (-1,):
      if size > room and shards[-1]:
        shards.append([])
        room = shard_bytes
      shards[-1].append((keys, layer))
      room -= size
  return shards


def _at(tree: Any, keys: tuple[str, ...], missing: Any = KeyError) -> Any:
  """Returns the leaf at keys; of None, None."""
  for key in keys:
    if tree is None:
      return None
    if key not in tree and missing is None:
      return None
    tree = tree[key]
  return tree


def _put(tree: dict, keys: tuple[str, ...], value: Any) -> dict:
  key, *rest = keys
  if rest:
    value = _put(tree.get(key, {}), tuple(rest), value)
  return {**tree, key: value}


def _write_json(path: pathlib.Path, value: Any) -> None:
  path.write_text(json.dumps(value, indent=2) + '\n', encoding='utf-8')
