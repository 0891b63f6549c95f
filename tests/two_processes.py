"""One process of two: trains, samples and agrees with the other; prints JSON.

  python tests/two_processes.py COORDINATOR INDEX MESH

Run by distributed_test.py, each process with 4 forced CPU devices.
"""

import json
import sys

import eight_devices
import jax
import numpy as np

from agentrl_jax import distributed, losses, sharding
from agentrl_jax.learner import estimate, objective, optimizer, step
from agentrl_jax.rollout import collate, hosts

MESHES = {'data2_fsdp4': (2, 4, 1), 'fsdp8': (1, 8, 1)}
T = eight_devices.LENGTH


class Stopped(Exception):
  """What a host raises that was asked to end."""


def mesh_of(shape):
  sizes = dict.fromkeys(sharding.AXES, 1) | dict(
    zip(('data', 'fsdp', 'tensor'), shape)
  )
  return sharding.make_mesh(sizes)


def place(tree, mesh):
  """Weights that every process drew alike, on the mesh of all."""
  placed = sharding.shardings(
    eight_devices.params_lib.logical_axes(eight_devices.TINY),
    eight_devices.params_lib.abstract(eight_devices.TINY),
    mesh,
  )
  return jax.tree.map(sharding.put_same, tree, placed)


def own(batch):
  return jax.tree.map(lambda x: x[distributed.own(eight_devices.ROWS)], batch)


def train(mesh, weights):
  """Three updates of two microbatches, half of the rows in each process."""
  policy = objective.PolicyObjective(loss=losses.LOSSES['ppo_clip'])
  learner = step.Learner(
    eight_devices.TINY,
    policy,
    optimizer.make(eight_devices.OPTIONS, 9),
    mesh,
    eight_devices.ROWS,
  )
  state = learner.create(place(weights, mesh))
  measured = {}
  for i in range(3):
    rows = [own(eight_devices.rows(2 * i + j)) for j in range(2)]
    state, metrics, info = learner.update(state, rows)
    values = {**metrics.sums, **metrics.maxima, **info}
    measured |= {f'{i}/{k}': float(v) for k, v in values.items()}
  return measured


def scored(mesh, weights):
  """Log-probs of this process's rows; process 1 asks about one batch more."""
  scorer = estimate.Estimator(eight_devices.TINY, mesh, 1.0)
  batches = [own(eight_devices.rows(i)) for i in range(1 + distributed.index())]
  return np.asarray(scorer.logprobs(place(weights, mesh), batches)[0]).tolist()


def leveled():
  """Updates of unlike size: process 0 has one, process 1 two and more rows."""
  me = distributed.index()

  def made(rows, tokens):
    batch = collate.empty_rows(rows, T)
    batch.mask[0, :tokens] = True
    batch.segment_ids[0, :tokens] = batch.row_trajectory[0, :tokens] = 1
    batch.weights[:] = batch.mask / max(tokens, 1)
    return batch

  mine = [made(2, 3)] if me == 0 else [made(4, 9), made(2, 5)]
  out = hosts.level(mine, 'token', collate.empty_rows(2, T))
  return [[len(b.mask), float(b.weights.sum())] for b in out]


def outcome(work):
  try:
    return distributed.together(work, Stopped)
  except (Stopped, ValueError, distributed.PeerFailed) as e:
    return f'{type(e).__name__}: {e}'


def agreed():
  """What both processes get when neither, one or both cannot go on."""
  me = distributed.index()

  def fail():
    raise ValueError('no world')

  def stop():
    raise Stopped

  return [
    outcome(lambda: 'fine'),
    outcome(fail if me else lambda: 'fine'),
    outcome(stop if me else lambda: 'fine'),
    outcome(fail if me else stop),
  ]


def combined():
  me = distributed.index()
  row = {
    'rollout/trajectories': 1.0 + 2 * me,
    'rollout/success': 1.0 - me,
    'rollout/return': float('nan') if me else 2.0,
    'time/collect_s': 3.0 + me,
    'loss/policy': 0.5,
  }
  if me:
    row['watch/only'] = 7.0
  return hosts.combine(row)


def main():
  distributed.initialize(
    coordinator=sys.argv[1], num_processes=2, process_id=int(sys.argv[2])
  )
  assert jax.device_count() == 8 and jax.local_device_count() == 4
  weights, mesh = eight_devices.draw_params(), mesh_of(MESHES[sys.argv[3]])
  out = eight_devices.sample(mesh, place(weights, mesh))
  out['metrics'] = train(mesh, weights)
  out['local'] = dict(sharding.local_mesh(mesh).shape)
  out['scored'] = scored(mesh, weights)
  out['leveled'] = leveled()
  out['agreed'] = agreed()
  out['combined'] = combined()
  try:
    distributed.require_equal({'config': str(distributed.index()), 'b': 'x'})
  except ValueError as e:
    out['unlike'] = str(e)
  distributed.shutdown()
  sys.stdout.write(json.dumps(out) + '\n')


if __name__ == '__main__':
  main()
