"""Which device holds which part of an array: a mesh and logical rules."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXES = ('data', 'fsdp', 'tensor', 'expert')
# Rows of a batch go over these; experts then see the tokens of all of theirs.
ROW_AXES = ('data', 'fsdp', 'expert')

# logical axis -> mesh axis; what is not named is replicated
RULES = {
  'rows': ROW_AXES,
  'experts': 'expert',
  'embed': 'fsdp',
  'heads': 'tensor',
  'kv_heads': 'tensor',
  'mlp': 'tensor',
  'vocab': 'tensor',
}


# The same for a sampler: decoding reads every weight at every token, so that
# a weight lies whole on each device but for what `tensor` splits.
SAMPLER_RULES = {**RULES, 'embed': None}


def make_mesh(sizes: Mapping[str, int], devices=None) -> Mesh:
  """Makes a mesh over `AXES`; one size may be -1 (the rest of the devices).

  An axis without a size has size 1.

  Over several hosts `data`, then `fsdp`, goes from host to host; the other axes
  stay within one, where devices are near each other.

  Raises:
    ValueError: the sizes do not use all devices, or not so.
  """
  devices = jax.devices() if devices is None else devices
  shape = [sizes.get(axis, 1) for axis in AXES]
  if -1 in shape:
    rest = math.prod(size for size in shape if size != -1)
    shape[shape.index(-1)] = len(devices) // rest
  if math.prod(shape) != len(devices):
    raise ValueError(
      f'mesh {dict(zip(AXES, shape))} does not fit {len(devices)} device(s): '
      'change config.mesh'
    )
  # Auto axes: GSPMD propagates shardings through the model code.
  types = (AxisType.Auto,) * len(AXES)
  hosts = _over_hosts(shape, len({d.process_index for d in devices}))
  if math.prod(hosts) == 1:
    return jax.make_mesh(shape, AXES, axis_types=types, devices=devices)
  grid = mesh_utils.create_hybrid_device_mesh(
    [n // h for n, h in zip(shape, hosts)],
    hosts,
    devices,
    process_is_granule=True,
  )
  return Mesh(grid, AXES, axis_types=types)


def _over_hosts(shape: Sequence[int], num_hosts: int) -> list[int]:
  """Returns how many hosts each axis goes over."""
  hosts, left = [1] * len(shape), num_hosts
  for i in (AXES.index('data'), AXES.index('fsdp')):
    hosts[i] = math.gcd(shape[i], left)
    left //= hosts[i]
  if left > 1:
    raise ValueError(
      f'mesh {dict(zip(AXES, shape))} does not divide over {num_hosts} hosts: '
      'data x fsdp must be a multiple of their number (the other axes stay '
      'within a host); change config.mesh'
    )
  return hosts


def local_mesh(mesh: Mesh) -> Mesh:
  """Returns the part of a mesh that lies on this host."""
  if not mesh.is_multi_process:
    return mesh
  types = (AxisType.Auto,) * len(mesh.axis_names)
  return Mesh(mesh.local_mesh.devices, mesh.axis_names, axis_types=types)


def host_copies(placed: Any, mesh: Mesh) -> Any:
  """Says how every host gets a whole copy.

  Args:
    placed: tree of shardings over `local_mesh(mesh)`.
    mesh: of all hosts.

  Returns:
    Shardings over all devices, in the order of `mesh`: as `placed` within a
    host, replicated over hosts.
  """
  if not mesh.is_multi_process:
    return placed
  sizes, names = [], []
  for axis, size in mesh.shape.items():
    within = local_mesh(mesh).shape[axis]
    sizes += [size // within, within]
    names += [f'hosts_{axis}', axis]
  every = Mesh(
    mesh.devices.reshape(sizes), names, axis_types=(AxisType.Auto,) * len(names)
  )
  return jax.tree.map(lambda s: NamedSharding(every, s.spec), placed)


def on_this_host(tree: Any, placed: Any) -> Any:
  """Views this host's copy of arrays as its own; nothing is copied.

  Args:
    tree: arrays placed as `host_copies(placed, mesh)`.
    placed: tree of shardings over `local_mesh(mesh)`.
  """

  def one(x, sharding):
    if x.is_fully_addressable:
      return x
    parts = [shard.data for shard in x.addressable_shards]
    return jax.make_array_from_single_device_arrays(x.shape, sharding, parts)

  return jax.tree.map(one, tree, placed)


def put_rows(batch: Any, placed: NamedSharding) -> Any:
  """Places rows [R, ...]; every host gives those that its devices hold.

  Args:
    batch: tree of NumPy arrays [R / hosts, ...]; what is on the devices already
      and scalars (equal on all hosts) stay as they are.
    placed: as `rows(mesh)`.
  """

  def one(x):
    if not np.ndim(x):
      return x
    if placed.is_fully_addressable:
      return jax.device_put(x, placed)
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
      return x
    return jax.make_array_from_process_local_data(placed, np.asarray(x))

  return jax.tree.map(one, batch)


def put_same(tree: Any, placed: NamedSharding) -> Any:
  """Places NumPy values that are equal on every host."""
  if placed.is_fully_addressable:
    return jax.device_put(tree, placed)

  def one(x):
    return jax.make_array_from_callback(np.shape(x), placed, lambda i: x[i])

  return jax.tree.map(one, tree)


def own_rows(x: jax.Array) -> jax.Array | np.ndarray:
  """Returns the rows of [R, ...] that this host's devices hold, in order."""
  if x.is_fully_addressable:
    return x
  parts = {
    shard.index[0].start or 0: shard.data for shard in x.addressable_shards
  }
  return np.concatenate([np.asarray(parts[start]) for start in sorted(parts)])


def spec(
  axes: tuple[str | None, ...],
  shape: tuple[int, ...],
  mesh: Mesh,
  rules: Mapping[str, Any] = RULES,
) -> PartitionSpec:
  """Returns the partition of one array by its logical axes.

  An axis whose length the mesh axis does not divide is replicated (two kv
  heads on a tensor axis of eight).
  """
  parts = []
  for name, length in zip(axes, shape, strict=True):
    rule = rules.get(name) if name else None
    names = (rule,) if isinstance(rule, str) else rule or ()
    size = math.prod(mesh.shape[axis] for axis in names)
    parts.append(rule if size > 1 and length % size == 0 else None)
  return PartitionSpec(*parts)


def shardings(
  logical_axes, abstract, mesh: Mesh, rules: Mapping[str, Any] = RULES
):
  """Maps trees of logical axes and of shapes to a tree of NamedShardings."""
  return jax.tree.map(
    lambda axes, x: NamedSharding(mesh, spec(axes, x.shape, mesh, rules)),
    logical_axes,
    abstract,
    is_leaf=lambda x: isinstance(x, tuple),
  )


def replicated(mesh: Mesh) -> NamedSharding:
  """Returns the sharding that puts a whole copy on every device."""
  return NamedSharding(mesh, PartitionSpec())


def rows(mesh: Mesh) -> NamedSharding:
  """Returns the sharding of [R, ...] batches: rows over `ROW_AXES`."""
  return NamedSharding(mesh, PartitionSpec(ROW_AXES))


def traced_on(mesh: Mesh, function: Callable) -> Callable:
  """Returns a function that knows its mesh while it is traced: see `by_rows`.

  Args:
    mesh: devices.
    function: to be jitted by the caller.
  """
  if mesh.size == 1:
    return function

  def placed(*args, **kwargs):
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
      return function(*args, **kwargs)

  placed.__name__ = getattr(function, 'func', function).__name__
  return placed


def by_rows(x: jax.Array) -> jax.Array:
  """Keeps activations [R, ...] split by rows, where `traced_on` is in force.

  XLA would split them as it finds the weights, along D over `fsdp`: then every
  device computes all rows, and sums of whole activations go over the links
  instead of a block's weights.
  """
  return placed_by(x, ('rows', *(None,) * (x.ndim - 1)))


def placed_by(x: jax.Array, axes: tuple[str | None, ...]) -> jax.Array:
  """Splits an array by its logical axes, where `traced_on` is in force."""
  mesh = jax.sharding.get_abstract_mesh()
  if mesh.empty or mesh.size == 1:
    return x
  return jax.lax.with_sharding_constraint(x, spec(axes, x.shape, mesh))


def row_parts(num_rows: int) -> int:
  """Returns over how many parts rows go, where `traced_on` is in force."""
  parts = num_row_parts(dict(jax.sharding.get_abstract_mesh().shape))
  return 1 if num_rows % parts else parts


def num_row_parts(sizes: Mapping[str, int]) -> int:
  """Returns over how many parts rows go, by the sizes of a mesh's axes."""
  return math.prod(sizes.get(axis, 1) for axis in ROW_AXES)
