"""Which device holds which part of an array: a mesh and logical rules."""

import math
from collections.abc import Mapping

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXES = ('data', 'fsdp', 'tensor')

# logical axis -> mesh axis; what is not named is replicated
RULES = {
  'rows': ('data', 'fsdp'),
  'embed': 'fsdp',
  'heads': 'tensor',
  'kv_heads': 'tensor',
  'mlp': 'tensor',
  'vocab': 'tensor',
}


def make_mesh(sizes: Mapping[str, int], devices=None) -> Mesh:
  """Makes a mesh over `AXES`; one size may be -1 (the rest of the devices).

  Raises:
    ValueError: the sizes do not use all devices.
  """
  devices = jax.devices() if devices is None else devices
  shape = [sizes[axis] for axis in AXES]
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
  return jax.make_mesh(shape, AXES, axis_types=types, devices=devices)


def spec(
  axes: tuple[str | None, ...], shape: tuple[int, ...], mesh: Mesh
) -> PartitionSpec:
  """Returns the partition of one array by its logical axes.

  An axis whose length the mesh axis does not divide is replicated (two kv
  heads on a tensor axis of eight).
  """
  parts = []
  for name, length in zip(axes, shape, strict=True):
    rule = RULES.get(name) if name else None
    names = (rule,) if isinstance(rule, str) else rule or ()
    size = math.prod(mesh.shape[axis] for axis in names)
    parts.append(rule if size > 1 and length % size == 0 else None)
  return PartitionSpec(*parts)


def shardings(logical_axes, abstract, mesh: Mesh):
  """Maps trees of logical axes and of shapes to a tree of NamedShardings."""
  return jax.tree.map(
    lambda axes, x: NamedSharding(mesh, spec(axes, x.shape, mesh)),
    logical_axes,
    abstract,
    is_leaf=lambda x: isinstance(x, tuple),
  )


def replicated(mesh: Mesh) -> NamedSharding:
  """Returns the sharding that puts a whole copy on every device."""
  return NamedSharding(mesh, PartitionSpec())


def rows(mesh: Mesh) -> NamedSharding:
  """Returns the sharding of [R, ...] batches: rows over data and fsdp."""
  return NamedSharding(mesh, PartitionSpec(('data', 'fsdp')))
