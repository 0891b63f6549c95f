"""How long does reading weights take, and how much memory beside them?

  tools/run tools/import_cost.py WEIGHTS [--dtype=float32] [--mesh=fsdp=8]
  tools/run tools/import_cost.py DIR --make=qwen3-0.6b   # random ones first

WEIGHTS is what `config.model.weights` may be. A fresh process reads them onto
its devices (on a CPU as many forced ones as --mesh has) and one JSON line says,
in GB, what they take there, and by how much the process grew at most while it
read. On CPU devices the weights are part of that: 1.0 times them is the least.
`tools/record.py` keeps the line by --name.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
  sys.path.insert(0, str(ROOT))

from agentrl_jax import footprint, sharding  # noqa: E402
from tools import estimate  # noqa: E402

_SHARDS = 4  # files that --make writes


def main(arguments: list[str] | None = None) -> int:
  """Prints the line; returns the exit status."""
  options = parse(arguments)
  try:
    mesh = estimate.read_mesh(options.mesh)
    if options.child:
      print(json.dumps(measure(options, mesh)), flush=True)
      return 0
    if options.make:
      make(options.weights, options.make)
    return _in_child(sys.argv[1:] if arguments is None else arguments, mesh)
  except ValueError as error:
    print(error, file=sys.stderr)
    return 1


def parse(arguments: list[str] | None) -> argparse.Namespace:
  """Reads the command line."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('weights', help='as config.model.weights')
  parser.add_argument('--make', default='', help='preset to write there first')
  parser.add_argument(
    '--dtype',
    default='float32',
    choices=('float32', 'bfloat16'),
    help='of the weights on their devices',
  )
  parser.add_argument('--mesh', default='fsdp=1', help='such as fsdp=8')
  parser.add_argument('--name', default='', help='of the line')
  parser.add_argument('--child', action='store_true', help=argparse.SUPPRESS)
  return parser.parse_args(arguments)


def make(directory: str, name: str) -> None:
  """Writes a preset's shape with noise in bfloat16: four files, an index."""
  import jax
  import jax.numpy as jnp
  import numpy as np

  from agentrl_jax.models import hf
  from agentrl_jax.models import params as params_lib

  model = estimate.make_plan(estimate.parse([f'--model={name}'])).model
  noise = 0.02 * np.random.default_rng(0).normal(size=2**20)
  noise = noise.astype(jnp.bfloat16)
  params = jax.tree.map(
    lambda x: np.resize(noise, x.shape), params_lib.abstract(model)
  )
  size = noise.itemsize * params_lib.count(model)
  hf.save(directory, model, params, shard_bytes=size // _SHARDS)


def measure(
  options: argparse.Namespace, mesh: dict[str, int]
) -> dict[str, float | str]:
  """Reads the weights onto this process's devices.

  Returns:
    'name'; 'seconds' and 'cpu_seconds', which a busy machine does not change;
    'weights' and 'growth' in GB, and 'share' = growth / weights.
  """
  import jax

  from agentrl_jax import pretrained
  from agentrl_jax.models import params as params_lib

  model = pretrained.shape(options.weights)
  placed = sharding.shardings(
    params_lib.logical_axes(model),
    params_lib.abstract(model),
    sharding.make_mesh(mesh),
  )
  before = _memory('VmRSS')
  start, worked = time.perf_counter(), time.process_time()
  params = pretrained.load(
    options.weights, dtype=options.dtype, shardings=placed
  )
  jax.block_until_ready(params)
  seconds = time.perf_counter() - start
  worked = time.process_time() - worked
  # A weight that several devices hold counts for each.
  weights = sum(
    shard.data.nbytes
    for x in jax.tree.leaves(params)
    for shard in x.addressable_shards
  )
  growth = _memory('VmHWM') - before
  return {
    'name': options.name or pathlib.Path(options.weights).name,
    'seconds': round(seconds, 2),
    'cpu_seconds': round(worked, 2),
    'weights': weights / footprint.GIGA,
    'growth': growth / footprint.GIGA,
    'share': growth / weights,
  }


def _memory(field: str) -> int:
  """Bytes of this process, now (VmRSS) or at most so far (VmHWM)."""
  text = pathlib.Path('/proc/self/status').read_text()
  line = next(x for x in text.splitlines() if x.startswith(f'{field}:'))
  return 1024 * int(line.split()[1])


def _in_child(arguments: list[str], mesh: dict[str, int]) -> int:
  devices = math.prod(mesh.values())
  flags = f'--xla_force_host_platform_device_count={devices}'
  if 'XLA_FLAGS' in os.environ:
    flags = f'{os.environ["XLA_FLAGS"]} {flags}'
  return subprocess.call(
    [sys.executable, __file__, *arguments, '--child'],
    env={**os.environ, 'XLA_FLAGS': flags},
  )


if __name__ == '__main__':
  sys.exit(main())
