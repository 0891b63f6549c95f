"""Locks where the learner's state lies: moments as their weights."""

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from agentrl_jax.learner import optimizer, state
from agentrl_jax.models import params
from agentrl_jax.models.config import PRESETS, ModelConfig

TINY = ModelConfig(vocab_size=12, **PRESETS['tiny'])
MESH = AbstractMesh((1, 2, 2), ('data', 'fsdp', 'tensor'))
OPTIONS = dict(
  learning_rate=1e-2,
  warmup=0,
  schedule='constant',
  b1=0.9,
  b2=0.99,
  epsilon=1e-8,
  weight_decay=0.0,
  clip_norm=1.0,
)


@pytest.mark.parametrize(
  'name, moments', [('adam', 2), ('adamw', 2), ('muon', 1), ('sgd', 0)]
)
def test_moments_are_split_as_their_weights(name, moments):
  tx = optimizer.make({**OPTIONS, 'name': name}, 3)
  shapes = jax.eval_shape(lambda p: state.create(p, tx), params.abstract(TINY))
  placed = state.shardings(TINY, shapes, MESH)
  assert jax.tree.structure(placed) == jax.tree.structure(shapes)
  specs = {
    jax.tree_util.keystr(path): x.spec
    for path, x in jax.tree_util.tree_leaves_with_path(placed)
  }
  q = PartitionSpec(None, 'fsdp', 'tensor', None)
  found = [spec for path, spec in specs.items() if path.endswith("['q']")]
  assert found == [q] * (1 + moments)
  assert specs[".params['head']"] == PartitionSpec('fsdp', 'tensor')
  assert specs[".params['layers']['o']"] == PartitionSpec(
    None, 'tensor', None, 'fsdp'
  )
  for path, spec in specs.items():
    if 'params' not in path and 'q' not in path and 'count' in path:
      assert spec == PartitionSpec()
  assert specs['.updates'] == PartitionSpec()


def test_a_value_head_is_not_rounded():
  weights = {'head': np.float32([1 / 3]), 'value': {'bias': np.float32(1 / 3)}}
  out = state.rounded(weights, 'bfloat16')
  # 1/3 with 8 bits: 171 / 512.
  assert out['head'].dtype == 'bfloat16' and out['head'][0] == 171 / 512
  assert out['value']['bias'] == np.float32(1 / 3)


def test_create_counts_from_zero():
  tx = optimizer.make({**OPTIONS, 'name': 'sgd'}, 3)
  made = state.create({'a': np.ones(2, np.float32)}, tx)
  for count in (made.updates, made.skipped, made.skipped_in_row):
    assert count.shape == () and count.dtype == np.int32 and count == 0
