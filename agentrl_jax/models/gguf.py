"""How do weights get in from a GGUF file?

Tensors are dequantised one at a time. Metadata is read as the `config.json`
that it was made from, so that families are those of `hf`; a field that would
change the mathematics and is not supported is an error.
"""

import dataclasses
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from agentrl_jax.models import gguf_tokenizer, hf
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import ModelConfig


class Name(NamedTuple):
  """Where a weight lies in the file.

  Attributes:
    path: tensor name; `{}` is the layer.
    inputs: leading axes of ours that are the input of a matrix, which is
      stored as [outputs, inputs]; 0 = stored as it is.
    paired: rotary pairs lie side by side there where the family says so.
  """

  path: str
  inputs: int = 0
  paired: bool = False


_BLOCK = 'blk.{}.'
NAMES = {
  ('embed', 'table'): Name('token_embd.weight'),
  ('layers', 'attention_norm'): Name(_BLOCK + 'attn_norm.weight'),
  ('layers', 'q'): Name(_BLOCK + 'attn_q.weight', 1, paired=True),
  ('layers', 'k'): Name(_BLOCK + 'attn_k.weight', 1, paired=True),
  ('layers', 'v'): Name(_BLOCK + 'attn_v.weight', 1),
  ('layers', 'o'): Name(_BLOCK + 'attn_output.weight', 2),
  ('layers', 'q_bias'): Name(_BLOCK + 'attn_q.bias'),
  ('layers', 'k_bias'): Name(_BLOCK + 'attn_k.bias'),
  ('layers', 'v_bias'): Name(_BLOCK + 'attn_v.bias'),
  ('layers', 'q_norm'): Name(_BLOCK + 'attn_q_norm.weight'),
  ('layers', 'k_norm'): Name(_BLOCK + 'attn_k_norm.weight'),
  ('layers', 'mlp_norm'): Name(_BLOCK + 'ffn_norm.weight'),
  ('layers', 'gate'): Name(_BLOCK + 'ffn_gate.weight', 1),
  ('layers', 'up'): Name(_BLOCK + 'ffn_up.weight', 1),
  ('layers', 'down'): Name(_BLOCK + 'ffn_down.weight', 1),
  ('final_norm',): Name('output_norm.weight'),
  ('head',): Name('output.weight', 1),
}

# general.architecture -> whether rotary pairs lie side by side, as in the
# first Llama's own code, and not in two halves.
PAIRED = {'llama': True, 'qwen2': False, 'qwen3': False}

# Metadata (after the architecture) -> field of config.json.
_FIELDS = {
  'block_count': 'num_hidden_layers',
  'embedding_length': 'hidden_size',
  'attention.head_count': 'num_attention_heads',
  'attention.head_count_kv': 'num_key_value_heads',
  'feed_forward_length': 'intermediate_size',
  'attention.layer_norm_rms_epsilon': 'rms_norm_eps',
  'attention.key_length': 'head_dim',
  'rope.freq_base': 'rope_theta',
}
_OPTIONAL = ('attention.key_length', 'rope.freq_base')
# Checked against others, or without a say in the logits. Any other field of the
# architecture that is set (neither 0, false nor empty) is refused.
_CHECKED = (
  'context_length',
  'vocab_size',
  'rope.dimension_count',
  'attention.value_length',
)


def load(
  path: str | pathlib.Path, *, dtype: Any = 'float32', shardings: Any = None
) -> tuple[ModelConfig, dict, gguf_tokenizer.TokenizerSpec]:
  """Reads a model file.

  Args:
    path: of the file.
    dtype: of weights and activations; quantised tensors become that.
    shardings: tree like the parameters; None = the default device.

  Returns:
    (config, params, tokenizer_spec), layers stacked;
    `Tokenizer(*tokenizer_spec)` reads text for it.

  Raises:
    ValueError: the package `gguf` is not there; metadata or a tensor is
      missing, unsupported or misshapen.
  """
  reader = _open(path)
  metadata = _metadata(reader)
  tensors = {tensor.name: tensor for tensor in reader.tensors}
  config, spec = _described(metadata, tensors, path)
  config = dataclasses.replace(config, dtype=np.dtype(dtype).name)
  _check_names(tensors, config, path)
  paired = PAIRED[metadata['general.architecture']]
  params: dict = {}
  for keys, weight in _weights(config, path):
    value = _read(tensors, keys, weight.shape, np.dtype(dtype), paired)
    placed = jax.device_put(value, _at(shardings, keys))
    branch = params
    for key in keys[:-1]:
      branch = branch.setdefault(key, {})
    branch[keys[-1]] = placed
  return config, params, spec


def describe(
  path: str | pathlib.Path,
) -> tuple[ModelConfig, gguf_tokenizer.TokenizerSpec]:
  """Reads shape and tokenizer of a model file, and no weight.

  Raises:
    ValueError: as `load`.
  """
  reader = _open(path)
  names = {tensor.name for tensor in reader.tensors}
  return _described(_metadata(reader), names, path)


def _described(metadata, tensors, path):
  config = read_config(metadata, tied='output.weight' not in tensors, at=path)
  return config, gguf_tokenizer.read(metadata, at=path)


def read_config(
  metadata: Mapping[str, Any], *, tied: bool, at: Any = 'GGUF'
) -> ModelConfig:
  """Reads the shape from metadata.

  Args:
    metadata: name -> value, as in the file.
    tied: whether the file has no output matrix of its own.
    at: named in errors.

  Raises:
    ValueError: lists every field that is missing or not supported.
  """
  family = metadata.get('general.architecture')
  if family not in PAIRED:
    raise ValueError(
      f'{at}: general.architecture={family!r} is not one of {sorted(PAIRED)}'
    )
  own = {
    key.removeprefix(f'{family}.'): value
    for key, value in metadata.items()
    if key.startswith(f'{family}.')
  }
  own.setdefault('attention.head_count_kv', own.get('attention.head_count'))
  faults = _faults(metadata, own)
  if faults:
    raise ValueError(f'{at}: ' + '; '.join(faults))
  fields = {
    theirs: own[name] for name, theirs in _FIELDS.items() if name in own
  }
  size = own['embedding_length'] // own['attention.head_count']
  fields.setdefault('head_dim', size)
  for name in ('rope.dimension_count', 'attention.value_length'):
    if own.get(name, fields['head_dim']) != fields['head_dim']:
      faults.append(
        f'{name}={own[name]}: only the size of a head, {fields["head_dim"]}, '
        'is supported'
      )
  if faults:
    raise ValueError(f'{at}: ' + '; '.join(faults))
  # Stored as float32: 1e-5 comes back as 9.9999997e-06.
  fields['rms_norm_eps'] = float(f'{fields["rms_norm_eps"]:.6g}')
  fields['vocab_size'] = len(metadata['tokenizer.ggml.tokens'])
  fields |= {'model_type': family, 'tie_word_embeddings': tied}
  return hf.read_config(fields, where=str(at))


def _faults(metadata: Mapping, own: Mapping) -> list[str]:
  """What is missing, of more than one part, or would change the logits."""
  faults = [
    f'{name} is missing'
    for name in _FIELDS
    if name not in _OPTIONAL and own.get(name) is None
  ]
  faults += [
    f'{name}={value!r} is not supported'
    for name, value in own.items()
    if name not in (*_FIELDS, *_CHECKED) and _is_set(name, value)
  ]
  faults += [
    f'{name} differs from layer to layer: not supported'
    for name in _FIELDS
    if isinstance(own.get(name), list)
  ]
  if not metadata.get('tokenizer.ggml.tokens'):
    faults.append('tokenizer.ggml.tokens is missing')
  if metadata.get('general.type', 'model') != 'model':
    faults.append(f'general.type={metadata["general.type"]!r} is no model')
  if metadata.get('split.count', 1) > 1:
    faults.append('one part of several: join them with gguf-split --merge')
  return faults


def _is_set(name: str, value: Any) -> bool:
  if name == 'attention.causal':
    return not value
  if name == 'rope.scaling.type':
    return value != 'none'
  if name == 'rope.scaling.factor':
    return value not in (0, 1)
  return bool(value)


def _open(path: str | pathlib.Path):
  if not pathlib.Path(path).is_file():
    raise ValueError(f'{path}: no such file; give a GGUF file')
  try:
    import gguf
  except ImportError as e:
    raise ValueError(
      f"{path}: reading it takes the package gguf: pip install 'gguf>=0.17'"
    ) from e
  try:
    return gguf.GGUFReader(path)
  except (ValueError, IndexError, KeyError) as e:
    raise ValueError(f'{path}: no GGUF file: {e}') from e


def _metadata(reader) -> dict[str, Any]:
  return {
    name: field.contents()
    for name, field in reader.fields.items()
    if not name.startswith('GGUF.')
  }


def _weights(
  config: ModelConfig, path: Any
) -> Iterator[tuple[tuple[str, ...], params_lib.Weight]]:
  """Walks the weights of the model, all of which must be in the table."""
  described = jax.tree_util.tree_leaves_with_path(
    params_lib.describe(config),
    is_leaf=lambda x: isinstance(x, params_lib.Weight),
  )
  for keypath, weight in described:
    keys = tuple(key.key for key in keypath)
    if keys not in NAMES:
      raise ValueError(
        f'{path}: the weight {"/".join(keys)} has no name in GGUF files here'
      )
    yield keys, weight


def _check_names(tensors: Mapping, config: ModelConfig, path: Any) -> None:
  expected = {
    NAMES[keys].path.format(layer)
    for keys, _ in _weights(config, path)
    for layer in range(config.num_layers)
  }
  missing = sorted(expected - set(tensors))
  extra = sorted(set(tensors) - expected)
  if missing or extra:
    raise ValueError(
      f'{path}: tensors do not fit the metadata: missing {missing[:3]} '
      f'({len(missing)}), not supported {extra[:3]} ({len(extra)})'
    )


def _read(tensors, keys, shape, dtype, paired: bool) -> np.ndarray:
  """Reads one weight, all layers of it, converting layer by layer."""
  name = NAMES[keys]
  paired = paired and name.paired
  if keys[0] != 'layers':
    return _ours(tensors[name.path], name, shape, paired).astype(dtype)
  value = np.empty(shape, dtype)
  for layer in range(shape[0]):
    tensor = tensors[name.path.format(layer)]
    value[layer] = _ours(tensor, name, shape[1:], paired)
  return value


def _ours(tensor, name: Name, shape: tuple, paired: bool) -> np.ndarray:
  """Dequantises a tensor and lays it out as we do."""
  import gguf

  there = tuple(shape)
  if name.inputs:
    inputs, outputs = shape[: name.inputs], shape[name.inputs :]
    there = math.prod(outputs), math.prod(inputs)
  elif name.path.endswith('bias'):
    there = (math.prod(shape),)
  stored = tuple(int(n) for n in tensor.shape[::-1])
  if stored != there:
    raise ValueError(
      f'{tensor.name} is {stored}, but the metadata makes it {there}'
    )
  try:
    value = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
  except NotImplementedError as e:
    raise ValueError(f'{tensor.name}: {e}') from e
  value = value.reshape(there)
  if paired:
    value = _halves(value, shape[1])
  return (value.T if name.inputs else value).reshape(shape)


def _halves(value: np.ndarray, num_heads: int) -> np.ndarray:
  """Rows of a head from (pair 0, pair 0, pair 1, ...) to two halves."""
  pairs = value.reshape(num_heads, -1, 2, value.shape[1])
  return pairs.swapaxes(1, 2).reshape(value.shape)


def _at(tree: Any, keys: tuple[str, ...]) -> Any:
  """Returns the leaf at keys; of None, None."""
  for key in keys:
    tree = None if tree is None else tree[key]
  return tree
