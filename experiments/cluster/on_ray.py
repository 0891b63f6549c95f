"""Starts a run on the nodes of a Ray cluster, one process a node.

  python experiments/cluster/on_ray.py --nodes=2 --gpus=8 -- \
    --config=configs/gigpo.py --workdir=/shared/runs/gigpo \
    --config.mesh.fsdp=8 --config.mesh.data=-1 \
    --config.train.rows=16 --config.sft.rows=16

Ray finds the nodes and starts launch.py there; what the processes say to each
other is JAX's own. The repository and the workdir lie on a disk of all nodes.
"""

import argparse
import pathlib
import subprocess
import sys
from collections.abc import Sequence

LAUNCH = pathlib.Path(__file__).resolve().parents[1] / 'launch.py'
PORT = 8476


def command(
  arguments: Sequence[str], address: str, number: int, index: int
) -> list[str]:
  """Returns what one node runs.

  Args:
    arguments: of launch.py.
    address: IP of the first node.
    number: of nodes.
    index: of this one.
  """
  return [
    sys.executable,
    str(LAUNCH),
    *arguments,
    f'--config.distributed.coordinator={address}:{PORT}',
    f'--config.distributed.num_processes={number}',
    f'--config.distributed.process_id={index}',
  ]


def main(argv: Sequence[str] | None = None) -> int:
  """Runs to the end; returns the highest exit status of the nodes."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--nodes', type=int, required=True)
  parser.add_argument('--gpus', type=int, default=0, help='of a node')
  parser.add_argument('--cpus', type=int, default=1, help='of a node')
  parser.add_argument('arguments', nargs='*', help='of launch.py, after --')
  flags = parser.parse_args(argv)

  import ray
  from ray.util import placement_group, scheduling_strategies

  ray.init(address='auto')
  bundle = {'CPU': flags.cpus, **({'GPU': flags.gpus} if flags.gpus else {})}
  group = placement_group([bundle] * flags.nodes, strategy='STRICT_SPREAD')
  ray.get(group.ready())

  def on_node(function, index):
    place = scheduling_strategies.PlacementGroupSchedulingStrategy(
      group, placement_group_bundle_index=index
    )
    task = ray.remote(function).options(
      num_cpus=flags.cpus,
      num_gpus=flags.gpus,
      max_retries=0,
      scheduling_strategy=place,
    )
    return task.remote

  address = ray.get(on_node(ray.util.get_node_ip_address, 0)())
  return max(
    ray.get(
      [
        on_node(subprocess.call, i)(
          command(flags.arguments, address, flags.nodes, i)
        )
        for i in range(flags.nodes)
      ]
    )
  )


if __name__ == '__main__':
  sys.exit(main())
