"""Locks the weights of a decoder: number, spread, keys, shapes, unstacking."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.models import params
from agentrl_jax.models.config import PRESETS, ModelConfig

TINY = ModelConfig(vocab_size=11, **PRESETS['tiny'])


def change(**fields):
  return dataclasses.replace(TINY, **fields)


@pytest.fixture(scope='module')
def weights():
  return params.init(TINY, jax.random.key(3))


def test_count_by_hand():
  """Per layer q, o 128*4*32, k, v 128*2*32, mlp 3*128*320, norms 2*128+2*32."""
  layer = 2 * 16384 + 2 * 8192 + 122880 + 320
  total = 2 * 512 * 128 + 3 * layer + 128  # embedding, head; final norm
  assert params.count(ModelConfig(vocab_size=512, **PRESETS['0.6m'])) == total
  assert total == 648256


def test_count_is_what_init_makes(weights):
  assert sum(x.size for x in jax.tree.leaves(weights)) == params.count(TINY)


@pytest.mark.parametrize(
  'fields, num_gone', [({'qk_norm': False}, 2), ({'tie_embeddings': True}, 1)]
)
def test_a_weight_more_or_less_changes_no_other(weights, fields, num_gone):
  other = params.init(change(**fields), jax.random.key(3))
  mine, theirs = (
    dict(jax.tree_util.tree_leaves_with_path(tree)) for tree in (weights, other)
  )
  assert len(mine) - len(theirs) == num_gone
  for path, leaf in theirs.items():
    np.testing.assert_array_equal(mine[path], leaf, err_msg=str(path))


def test_key_decides_and_weights_differ(weights):
  again = params.init(TINY, jax.random.key(3))
  chex.assert_trees_all_equal(weights, again)
  other = params.init(TINY, jax.random.key(4))
  layers = weights['layers']
  assert not np.array_equal(layers['q'], other['layers']['q'])
  assert not np.array_equal(layers['k'], layers['v'])
  assert not np.array_equal(layers['gate'], layers['up'])


def test_spread_is_as_described():
  wide = change(d_model=128, d_ff=256, vocab_size=64, embedding_std=0.5)
  drawn = params.init(wide, jax.random.key(0))
  layers = drawn['layers']
  # 2 layers: residual branches are scaled by 1 / sqrt(2 * 2).
  for leaf, std in (
    (drawn['embed']['table'], 0.5),
    (drawn['head'], 128**-0.5),
    (layers['q'], 128**-0.5),
    (layers['o'], 32**-0.5 / 2),
    (layers['down'], 256**-0.5 / 2),
  ):
    np.testing.assert_allclose(np.std(leaf), std, rtol=0.03)
    assert np.abs(leaf).max() <= 2 * std / 0.8796 + 1e-6
  for name in ('attention_norm', 'mlp_norm', 'q_norm', 'k_norm'):
    np.testing.assert_array_equal(layers[name], 1.0)


def test_axes_and_shapes_describe_the_same_tree(weights):
  shapes = params.abstract(TINY, jnp.bfloat16)
  chex.assert_trees_all_equal_shapes(weights, shapes)
  assert {x.dtype for x in jax.tree.leaves(shapes)} == {jnp.dtype('bfloat16')}
  axes = params.logical_axes(TINY)
  jax.tree.map(
    lambda x, names: chex.assert_rank(x, len(names)),
    shapes,
    axes,
  )
  assert axes['layers']['o'] == ('layers', 'heads', None, 'embed')


def test_unstack_keeps_the_order_of_layers(weights):
  split = params.unstack(weights)
  assert len(split['layers']) == 2
  for i, layer in enumerate(split['layers']):
    for name, leaf in layer.items():
      np.testing.assert_array_equal(leaf, weights['layers'][name][i])
  assert split['head'] is weights['head']


def test_a_value_head_is_of_zeros_and_changes_no_other_weight(weights):
  config = change(value_head=True)
  with_head = params.init(config, jax.random.key(3))
  added = params.with_value_head(config, weights)
  chex.assert_trees_all_equal(with_head, added)
  assert added['value']['kernel'].shape == (TINY.d_model,)
  assert not any(x.any() for x in jax.tree.leaves(added['value']))
  chex.assert_trees_all_equal(params.policy(added), weights)
  assert params.with_value_head(TINY, weights) is weights
  shapes = jax.tree.map(lambda x: x.shape, added)
  assert shapes == jax.tree.map(lambda x: x.shape, params.abstract(config))
