"""Trains and samples on several meshes; prints one JSON object.

Run by sharding_test.py with 8 forced CPU devices.
"""

import collections
import dataclasses
import functools
import json
import re
import sys
import tempfile

import jax
import jax.monitoring
import numpy as np

from agentrl_jax import checkpoint, losses, sharding
from agentrl_jax.learner import objective, optimizer, step
from agentrl_jax.models import lora
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.rollout import collate
from agentrl_jax.sampler.engine import Engine

TINY = ModelConfig(
  vocab_size=16, embedding_std=0.5, remat='block', **PRESETS['tiny']
)
ADAPTERS = lora.Lora(rank=2, alpha=4.0, targets=('q', 'v', 'o', 'down'))
ADAPTED = dataclasses.replace(TINY, lora=ADAPTERS)
ROWS, LENGTH, SLOTS, CHUNK = 8, 16, 8, 4
MESHES = {
  'one': (1, 1, 1),
  'fsdp8': (1, 8, 1),
  'data2_fsdp2_tensor2': (2, 2, 2),
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


COMPILED = collections.Counter()


def count(event, _, **fields):
  if 'backend_compile' in event:
    COMPILED[fields['fun_name']] += 1


def draw_params(config=TINY):
  draws = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: np.float32(0.2 * draws.normal(size=x.shape)),
    params_lib.abstract(config),
  )


def rows(seed):
  draws = np.random.default_rng(seed)
  shape = (ROWS, LENGTH)
  batch = collate.empty_rows(*shape)
  batch.tokens[:] = draws.integers(0, 16, shape)
  batch.segment_ids[:] = np.repeat([[1, 2]], LENGTH // 2, axis=1)
  batch.positions[:] = np.tile(np.arange(LENGTH // 2), 2)
  batch.mask[:] = draws.random(shape) < 0.5
  batch.advantages[:] = draws.normal(size=shape)
  batch.behavior_logprobs[:] = -2.8 + 0.1 * draws.normal(size=shape)
  batch.weights[:] = batch.mask / (2 * batch.mask.sum())
  return batch


def place(tree, mesh, config=TINY):
  placed = sharding.shardings(
    params_lib.logical_axes(config), params_lib.abstract(config), mesh
  )
  return jax.device_put(tree, placed)


def train(mesh, weights, config=TINY, head_chunk=0):
  policy = objective.PolicyObjective(
    losses.LOSSES['ppo_clip'], head_chunk=head_chunk
  )
  learner = step.Learner(config, policy, optimizer.make(OPTIONS, 9), mesh, ROWS)
  state = learner.create(place(weights, mesh, config))
  before = jax.tree.map(lambda x: x.sharding, state)
  measured = {}
  COMPILED.clear()
  for i in range(3):
    state, metrics, info = learner.update(state, [rows(2 * i), rows(2 * i + 1)])
    values = {**metrics.sums, **metrics._asdict()['maxima'], **info}
    measured |= {f'{i}/{k}': float(v) for k, v in values.items()}
  programs = dict(COMPILED)
  same = jax.tree.map(
    lambda x, s: x.sharding.is_equivalent_to(s, x.ndim), state, before
  )
  trained = learner.policy(state)
  gate = trained['layers']['gate']
  out = dict(
    metrics=measured,
    programs=programs,
    same_shardings=all(jax.tree.leaves(same)),
    split=gate.size // gate.addressable_shards[0].data.size,
  )
  return out, trained


def sample(mesh, weights):
  engine = Engine(
    TINY,
    mesh,
    num_slots=SLOTS,
    context_length=32,
    max_turn_tokens=8,
    extend_rows=4,
    extend_chunk=4,
    decode_chunk=4,
    stop_ids=(0,),
  )
  published = engine.publish(weights, 0)
  # What crosses to the host is the two checksums, and they are asked for.
  with (
    jax.transfer_guard_host_to_device('disallow_explicit'),
    jax.transfer_guard_device_to_device('disallow_explicit'),
    jax.transfer_guard_device_to_host('disallow'),
  ):
    published &= engine.publish(weights, 0)
  for i in range(SLOTS):
    engine.request(
      engine.acquire(),
      list(range(1, 3 + i)),
      words=np.array([i, 1], np.uint32),
      temperature=1.0,
      budget=8,
    )
  done = []
  while engine.busy:
    done += engine.pump()
  done.sort(key=lambda c: c.slot)
  return dict(
    published=published,
    tokens=[c.tokens for c in done],
    logprobs=[c.logprobs for c in done],
  )


def summed(mesh, head_chunk=0):
  """Shapes that devices add up among them in a gradient: (all, in loops)."""
  policy = objective.PolicyObjective(
    losses.LOSSES['ppo_clip'], head_chunk=head_chunk
  )
  learner = step.Learner(TINY, policy, optimizer.make(OPTIONS, 9), mesh, ROWS)
  program = learner.lower(rows(0))['accumulate'].compile().as_text()
  loops = re.findall(r'body=%?([\w.\-]+)', program)
  shapes = {False: set(), True: set()}
  for part in re.split(r'\n(?=%|ENTRY)', program):
    name = re.match(r'%?([\w.\-]+) \(', part)
    found = re.findall(r'= \(?(.*?)\)? (?:all-reduce|reduce-scatter)\(', part)
    in_loop = bool(name) and name[1] in loops
    shapes[in_loop] |= set(re.findall(r'\w+\[[\d,]*\]', ' '.join(found)))
  return sorted(shapes[False] | shapes[True]), sorted(shapes[True])


def adapted(mesh, weights):
  """Trains adapters: (numbers, weights merged as for a sampler)."""
  out, trained = train(mesh, weights, ADAPTED)
  merge = jax.jit(functools.partial(lora.merge, ADAPTERS))
  return out['metrics'], jax.device_get(merge(trained))


def moved(weights):
  """Saves on 8 devices, goes on on 2, then on 1: largest differences."""
  whole, gaps = place(weights, mesh_of(1, 8, 1)), []
  with tempfile.TemporaryDirectory() as directory:
    for step_number, shape in enumerate([(1, 2, 1), (1, 1, 1)]):
      saved = checkpoint.Checkpoints(directory, keep=1)
      saved.save(step_number, {'params': whole}, {})
      saved.close()
      again = checkpoint.Checkpoints(directory, keep=1)
      like = place(jax.tree.map(np.zeros_like, weights), mesh_of(*shape))
      whole = again.restore(step_number, {'params': like})[0]['params']
      again.close()
      gate = whole['layers']['gate']
      gaps.append([gap(jax.device_get(whole), weights), len(gate.devices())])
  return gaps


def mesh_of(*shape):
  sizes = dict.fromkeys(sharding.AXES, 1)
  sizes |= zip(('data', 'fsdp', 'tensor'), shape)
  devices = jax.devices()[: int(np.prod(shape))]
  return sharding.make_mesh(sizes, devices)


def main():
  assert jax.device_count() == 8
  # Two programs with collectives at once can wait for each other's threads.
  jax.config.update('jax_cpu_enable_async_dispatch', False)
  jax.monitoring.register_event_duration_secs_listener(count)
  weights, out, first, first_adapted = draw_params(), {}, None, None
  beside = draw_params(ADAPTED)
  for name, shape in MESHES.items():
    devices = jax.devices()[: int(np.prod(shape))]
    mesh = sharding.make_mesh(dict(zip(sharding.AXES, shape)), devices)
    out[name], trained = train(mesh, weights)
    out[name] |= sample(mesh, place(weights, mesh))
    trained = jax.device_get(trained)
    first = first or trained
    out[name]['params_gap'] = gap(trained, first)
    out[name]['moved'] = gap(trained, weights)
    out[name]['chunked'] = train(mesh, weights, head_chunk=CHUNK)[0]['metrics']
    out[name]['adapted'], merged = adapted(mesh, beside)
    first_adapted = first_adapted or merged
    out[name]['adapted_gap'] = gap(merged, first_adapted)
    out[name]['summed'] = summed(mesh)[0]
    out[name]['summed_chunked'] = summed(mesh, CHUNK)
  out['moved'] = moved(weights)
  sys.stdout.write(json.dumps(out) + '\n')


def gap(a, b):
  gaps = jax.tree.map(lambda x, y: float(np.abs(x - y).max()), a, b)
  return max(jax.tree.leaves(gaps))


if __name__ == '__main__':
  main()
