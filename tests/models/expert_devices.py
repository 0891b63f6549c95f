"""Trains a decoder of experts on one device and on the meshes that are named.

Prints one JSON object. Run by experts_mesh_test.py with 8 forced CPU devices.
"""

import json
import sys

import jax
import numpy as np

from agentrl_jax import losses, sharding
from agentrl_jax.learner import objective, optimizer, step
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.rollout import collate

TINY = ModelConfig(
  **{**PRESETS['tiny'], 'num_layers': 1},
  vocab_size=16,
  embedding_std=0.5,
  num_experts=4,
  experts_per_token=2,
  d_expert=16,
  balance_coef=0.1,
)
ROWS, LENGTH = 8, 8
MESHES = {
  'one': dict(),
  'expert4_data2': dict(expert=4, data=2),
  'expert2_fsdp2_tensor2': dict(expert=2, fsdp=2, tensor=2),
}
# SGD: Adam's first step is the sign of a gradient, whatever its size.
OPTIONS = dict(
  name='sgd',
  learning_rate=0.1,
  warmup=0,
  schedule='constant',
  b1=0.9,
  b2=0.99,
  epsilon=1e-8,
  weight_decay=0.0,
  clip_norm=1.0,
)


def draw_params():
  draws = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: np.float32(0.2 * draws.normal(size=x.shape)),
    params_lib.abstract(TINY),
  )


def rows(seed):
  """Half the tokens are sampled, half the experts replayed."""
  draws = np.random.default_rng(seed)
  shape = (ROWS, LENGTH)
  some = np.zeros((1, 1, 1, 2), np.int8)
  batch = collate.empty_rows(*shape, routes=some)
  batch.tokens[:] = draws.integers(0, 16, shape)
  batch.segment_ids[:] = 1
  batch.positions[:] = np.arange(LENGTH)
  batch.mask[:] = draws.random(shape) < 0.5
  batch.advantages[:] = draws.normal(size=shape)
  batch.behavior_logprobs[:] = -2.8 + 0.1 * draws.normal(size=shape)
  batch.weights[:] = batch.mask / (2 * batch.mask.sum())
  order = np.argsort(draws.random((*shape, 1, 4)), axis=-1)
  batch.routes[:, ::2] = order[:, ::2, :, :2]
  return batch


def place(tree, mesh):
  placed = sharding.shardings(
    params_lib.logical_axes(TINY), params_lib.abstract(TINY), mesh
  )
  return jax.device_put(tree, placed)


def train(mesh, weights):
  policy = objective.PolicyObjective(loss=losses.LOSSES['ppo_clip'])
  learner = step.Learner(TINY, policy, optimizer.make(OPTIONS, 9), mesh, ROWS)
  state = learner.create(place(weights, mesh))
  state, metrics, info = learner.update(state, [rows(0), rows(1)])
  values = {**metrics.sums, **metrics._asdict()['maxima'], **info}
  part = state.params['layers']['expert_down'].addressable_shards[0].data
  out = {
    'metrics': {k: float(v) for k, v in values.items()},
    'part': part.shape,
  }
  return out, state.params


def main():
  assert jax.device_count() == 8
  # Two programs with collectives at once can wait for each other's threads.
  jax.config.update('jax_cpu_enable_async_dispatch', False)
  weights, out, first = draw_params(), {}, None
  for name in ('one', *sys.argv[1:]):
    sizes = MESHES[name]
    devices = jax.devices()[: int(np.prod([1, *sizes.values()]))]
    out[name], trained = train(sharding.make_mesh(sizes, devices), weights)
    trained = jax.device_get(trained)
    first = first or trained
    out[name]['params_gap'] = gap(trained, first)
    out[name]['moved'] = gap(trained, weights)
  sys.stdout.write(json.dumps(out) + '\n')


def gap(a, b):
  gaps = jax.tree.map(lambda x, y: float(np.abs(x - y).max()), a, b)
  return max(jax.tree.leaves(gaps))


if __name__ == '__main__':
  main()
