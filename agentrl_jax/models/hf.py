"""How do weights get in and out of the Hugging Face layout?

Import streams: beside the weights on the devices, host memory holds the part
of one layer's tensor that these devices need. Export holds one file at a time.
"""

import dataclasses
import functools
import json
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from agentrl_jax.models import families, lora
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.models.families import Name
from agentrl_jax.models.hf_config import read_config, write_config

_DTYPES = {'F32': 'float32', 'BF16': 'bfloat16', 'F16': 'float16'}


def load(
  directory: str | pathlib.Path, *, dtype: Any = None, shardings: Any = None
) -> tuple[ModelConfig, dict]:
  """Reads a model directory.

  Args:
    directory: holds config.json and model.safetensors, or shards and
      model.safetensors.index.json.
    dtype: of weights and activations; None = as stored.
    shardings: tree like the parameters, no layer axis split; None = the
      default device. A process reads what its own devices hold.

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
    dtype = _dtype(files, families.NAMES['embed', 'table'].path)
  dtype = jnp.dtype(dtype)
  config = dataclasses.replace(config, dtype=dtype.name)
  params: dict = {}
  for keys, weight, name in families.weights(config):
    read = functools.partial(_part, files, name, dtype=dtype)
    value = assemble(
      read,
      weight.shape,
      dtype,
      stacked=name.stacks > 0,
      sharding=_at(shardings, keys),
    )
    params = _put(params, keys, value)
  return config, params


def assemble(
  read: Callable[..., np.ndarray],
  shape: tuple[int, ...],
  dtype: Any,
  *,
  stacked: bool,
  sharding: jax.sharding.Sharding | None,
) -> jax.Array:
  """Makes a weight on its devices, layer by layer if it is stacked.

  Args:
    read: f(stack, shape, index) -> the values at `index`, a slice an axis, of
      an array of `shape`: the whole weight (stack ()), or one layer of it
      (stack (layer,)).
    shape: of the weight, [L, ...] if stacked.
    dtype: of the weight.
    stacked: read it by layers.
    sharding: of the weight; None = the default device.

  Raises:
    ValueError: the sharding splits the layers.
  """
  if not stacked:
    return _placed(functools.partial(read, (), shape), shape, sharding)
  inner = _of_layer(sharding)
  start, write = _stack_programs(sharding)
  stack = start(shape, dtype)
  for layer in range(shape[0]):
    part = functools.partial(read, (layer,), shape[1:])
    stack = write(stack, _placed(part, shape[1:], inner), layer)
  return stack


def save(
  directory: str | pathlib.Path,
  config: ModelConfig,
  params: dict,
  *,
  dtype: Any = None,
  fields: Mapping[str, Any] | None = None,
  shard_bytes: int = 1 << 30,
) -> None:
  """Writes a model directory that `transformers` and `load` read.

  Args:
    directory: made if missing; a model in it is overwritten.
    config: the shape.
    params: layers stacked, no adapters; fetched from the device one layer at a
      time.
    dtype: to write; None = that of the weights.
    fields: further fields of config.json, such as `eos_token_id`.
    shard_bytes: a file holds at most that much, or one tensor.

  Raises:
    ValueError: a weight has another shape than `config` says, there are
      adapters, or no published family is such a decoder.
  """
  described = write_config(config)
  if lora.adapters(params):
    raise ValueError(
      'params have adapters: give lora.merge(config.lora, params)'
    )
  table = _at(params, ('embed', 'table'))
  dtype = jnp.dtype(table.dtype if dtype is None else dtype)
  plan = _plan(config, params, dtype, shard_bytes)
  directory = pathlib.Path(directory)
  directory.mkdir(parents=True, exist_ok=True)
  for old in directory.glob('model*.safetensors*'):
    old.unlink()
  tensors = _tensors(config, params, dtype)
  weight_map, total = {}, 0
  for i, count in enumerate(plan, start=1):
    name = f'model-{i:05d}-of-{len(plan):05d}.safetensors'
    name = 'model.safetensors' if len(plan) == 1 else name
    held = dict(next(tensors) for _ in range(count))
    total += sum(tensor.nbytes for tensor in held.values())
    weight_map.update(dict.fromkeys(held, name))
    safetensors.numpy.save_file(
      held, directory / name, metadata={'format': 'pt'}
    )
    (directory / name).chmod(0o644)  # it is written as a private file
  if len(plan) > 1:
    index = {'metadata': {'total_size': total}, 'weight_map': weight_map}
    _write_json(directory / 'model.safetensors.index.json', index)
  described |= {'dtype': dtype.name, **(fields or {})}
  _write_json(directory / 'config.json', described)


class _Files(NamedTuple):
  """Where tensors are: name -> file."""

  paths: dict[str, pathlib.Path]

  def open(self, name: str):
    """Opened for one tensor only: pages of a mapped file count as memory."""
    return safetensors.safe_open(self.paths[name], framework='numpy')


def _files(directory: pathlib.Path) -> _Files:
  index = directory / 'model.safetensors.index.json'
  if index.is_file():
    weight_map = json.loads(index.read_text('utf-8'))['weight_map']
    return _Files({name: directory / file for name, file in weight_map.items()})
  path = directory / 'model.safetensors'
  if not path.is_file():
    raise ValueError(
      f'{directory}: neither model.safetensors nor '
      'model.safetensors.index.json; convert the weights to safetensors'
    )
  with safetensors.safe_open(path, framework='numpy') as file:
    return _Files(dict.fromkeys(file.keys(), path))


def _check_names(files, config: ModelConfig, directory: pathlib.Path) -> None:
  expected = {
    name.path.format(*stack)
    for _, weight, name in families.weights(config)
    for stack in np.ndindex(*weight.shape[: name.stacks])
  }
  missing = sorted(expected - set(files.paths))
  # Tied models may store the head twice; rotary tables are derived.
  extra = sorted(
    name
    for name in set(files.paths) - expected
    if name != families.NAMES['head',].path and not name.endswith('inv_freq')
  )
  if missing or extra:
    raise ValueError(
      f'{directory}: tensors do not fit config.json: missing {missing[:3]} '
      f'({len(missing)}), not supported {extra[:3]} ({len(extra)})'
    )


def _dtype(files: _Files, path: str) -> str:
  with files.open(path) as file:
    stored = file.get_slice(path).get_dtype()
  if stored not in _DTYPES:
    raise ValueError(
      f'{path} is {stored}: only {sorted(_DTYPES)} are supported'
    )
  return _DTYPES[stored]


def _part(
  files: _Files,
  name: Name,
  stack: tuple[int, ...],
  shape: tuple[int, ...],
  index: tuple[slice, ...],
  *,
  dtype: Any,
) -> np.ndarray:
  """Reads `index` of the array that the tensors numbered `stack` make."""
  if len(stack) < name.stacks:  # experts: an axis of ours, tensors over there
    return np.stack(
      [
        _part(files, name, (*stack, i), shape[1:], index[1:], dtype=dtype)
        for i in range(*index[0].indices(shape[0]))
      ]
    )
  path = name.path.format(*stack)
  with files.open(path) as file:
    stored = file.get_slice(path)
    if tuple(stored.get_shape()) != _their_shape(name, shape):
      raise ValueError(
        f'{path} is {tuple(stored.get_shape())}, but config.json makes it '
        f'{_their_shape(name, shape)}'
      )
    if stored.get_dtype() not in _DTYPES:
      raise ValueError(f'{path} is {stored.get_dtype()}: not supported')
    if name.inputs is None:
      return stored[index].astype(dtype, copy=False)
    # Only the first axis of inputs and of outputs is cut while reading.
    groups = [_span(shape[name.inputs :], index[name.inputs :])]
    if name.inputs:
      groups.append(_span(shape[: name.inputs], index[: name.inputs]))
    value = stored[tuple(cut for cut, _ in groups)].astype(dtype, copy=False)
  value = value.T.reshape([n for _, sizes in groups[::-1] for n in sizes])
  firsts = {0, name.inputs}
  rest = [slice(None) if i in firsts else s for i, s in enumerate(index)]
  return value[tuple(rest)]


def _span(
  shape: tuple[int, ...], index: tuple[slice, ...]
) -> tuple[slice, list[int]]:
  """The stored range that holds the cut of the first axis, and its shape."""
  start, stop, _ = index[0].indices(shape[0])
  inner = math.prod(shape[1:])
  return slice(start * inner, stop * inner), [stop - start, *shape[1:]]


def _placed(read, shape, sharding) -> jax.Array:
  """Puts an array on its devices; each part is read once."""
  if sharding is None:
    return jax.device_put(read((slice(None),) * len(shape)))
  parts: dict = {}

  def part(index):
    key = tuple(cut.indices(size) for cut, size in zip(index, shape))
    if key not in parts:
      parts[key] = read(index)
    return parts[key]

  return jax.make_array_from_callback(shape, sharding, part)


def _of_layer(sharding):
  """The sharding of one layer of a stacked weight."""
  if not isinstance(sharding, jax.sharding.NamedSharding):
    return sharding
  first, *rest = tuple(sharding.spec) or (None,)
  if first is not None:
    raise ValueError(f'{sharding.spec}: the layer axis may not be split')
  spec = jax.sharding.PartitionSpec(*rest)
  return jax.sharding.NamedSharding(sharding.mesh, spec)


@functools.lru_cache
def _stack_programs(sharding):
  """Two programs: an empty stack, and one more layer in it (in place)."""

  def write(stack, part, layer):
    return jax.lax.dynamic_update_index_in_dim(stack, part, layer, 0)

  return (
    jax.jit(jnp.zeros, static_argnums=(0, 1), out_shardings=sharding),
    jax.jit(write, donate_argnums=0, out_shardings=sharding),
  )


def _their_shape(name: Name, shape: tuple[int, ...]) -> tuple[int, ...]:
  if name.inputs is None:
    return tuple(shape)
  inputs, outputs = shape[: name.inputs], shape[name.inputs :]
  return (math.prod(outputs), math.prod(inputs))[: 2 if inputs else 1]


def _tensors(
  config: ModelConfig, params: dict, dtype: Any
) -> Iterator[tuple[str, np.ndarray]]:
  """Fetches weights layer by layer; gives tensors their name and layout."""
  for keys, weight, name in families.weights(config):
    value = _at(params, keys)
    for layer in range(weight.shape[0]) if name.stacks else (None,):
      part = np.asarray(value if layer is None else value[layer])
      outer = () if layer is None else (layer,)
      for inner in np.ndindex(*part.shape[: max(name.stacks - 1, 0)]):
        tensor = part[inner].astype(dtype, copy=False)
        shape = _their_shape(name, tensor.shape)
        if name.inputs is not None:
          tensor = tensor.reshape(shape[::-1]).T
        path = name.path.format(*outer, *inner)
        yield path, np.ascontiguousarray(tensor)


def _plan(
  config: ModelConfig, params: dict, dtype: Any, shard_bytes: int
) -> list[int]:
  """Cuts the tensors into files: how many each holds, in their order."""
  counts, room = [0], shard_bytes
  for keys, weight, name in families.weights(config):
    value = _at(params, keys, missing=None)
    if value is None or value.shape != weight.shape:
      raise ValueError(
        f'params[{"][".join(map(repr, keys))}] should be {weight.shape}, not '
        f'{getattr(value, "shape", None)}'
      )
    size = math.prod(weight.shape[name.stacks :]) * jnp.dtype(dtype).itemsize
    for _ in range(math.prod(weight.shape[: name.stacks])):
      if size > room and counts[-1]:
        counts.append(0)
        room = shard_bytes
      counts[-1] += 1
      room -= size
  return counts


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
