"""Locks: adapters beside a frozen base, merged, parted and joined."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax import losses, sharding
from agentrl_jax.learner import objective, optimizer, step
from agentrl_jax.models import lora, params, transformer
from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.rollout import collate

LORA = lora.Lora(rank=2, alpha=6.0, targets=tuple(lora.INPUTS))
BASE = ModelConfig(vocab_size=11, embedding_std=0.5, **PRESETS['tiny'])
CONFIG = dataclasses.replace(BASE, lora=LORA)
MESH = sharding.make_mesh(dict(data=1, fsdp=1, tensor=1))
TOKENS = np.random.default_rng(0).integers(0, 11, (2, 7)).astype(np.int32)
OPTIONS = dict(
  name='adam',
  learning_rate=1e-2,
  warmup=0,
  schedule='constant',
  b1=0.9,
  b2=0.99,
  epsilon=1e-8,
  weight_decay=0.0,
  clip_norm=1.0,
)


@functools.cache
def _forward(config):
  return jax.jit(lambda p, t: transformer.forward(config, p, t)[0])


def logits(config, weights, tokens=TOKENS):
  with jax.numpy_rank_promotion('allow'):
    return np.asarray(_forward(config)(weights, tokens))


@pytest.fixture(scope='module')
def weights(draw_params):
  """Both sides of every adapter are random: B of zeros would hide them."""
  drawn = draw_params(CONFIG)
  draws = np.random.default_rng(1)

  def fill(path, x):
    if "'b'" not in jax.tree_util.keystr(path):
      return x
    return jnp.asarray(0.3 * draws.normal(size=x.shape), jnp.float32)

  return jax.tree_util.tree_map_with_path(fill, drawn)


def test_one_matrix_by_hand():
  # x = (1, 2), W = [[1, 0], [0, 1]], A = (1, 1)ᵀ, B = (10, 20), s = 6 / 2 = 3:
  # x W = (1, 2), x A = 3, s (x A) B = (90, 180).
  layer = {
    'up': jnp.eye(2),
    'lora': {'up': {'a': jnp.ones((2, 1)), 'b': jnp.array([[10.0, 20.0]])}},
  }
  x = jnp.array([1.0, 2.0])
  np.testing.assert_array_equal(
    lora.linear(LORA, layer, 'up', x), [91.0, 182.0]
  )
  stacked = {'layers': jax.tree.map(lambda w: w[None], layer)}
  merged = lora.merge(LORA, stacked)['layers']
  assert 'lora' not in merged
  # W + s A B = [[31, 60], [30, 61]]; (1, 2) of it is (91, 182).
  np.testing.assert_array_equal(merged['up'][0], [[31.0, 60.0], [30.0, 61.0]])


def test_merged_is_the_same_policy_and_the_base_another(weights):
  beside = logits(CONFIG, weights)
  merged = lora.merge(LORA, weights)
  assert jax.tree.structure(merged) == jax.tree.structure(params.abstract(BASE))
  np.testing.assert_allclose(logits(BASE, merged), beside, atol=1e-5)
  base = logits(BASE, lora.base(weights))
  assert np.abs(base - beside).max() > 0.1
  np.testing.assert_array_equal(logits(CONFIG, lora.base(weights)), base)


@pytest.mark.parametrize('name', lora.INPUTS)
def test_every_target_counts_alone(name, weights):
  alone = {**weights, 'layers': {**weights['layers']}}
  alone['layers']['lora'] = {name: weights['layers']['lora'][name]}
  beside = logits(CONFIG, alone)
  assert np.abs(beside - logits(CONFIG, lora.base(weights))).max() > 1e-3
  np.testing.assert_allclose(
    logits(BASE, lora.merge(LORA, alone)), beside, atol=1e-5
  )


def test_a_fresh_adapter_changes_nothing():
  key = jax.random.key(3)
  plain = params.init(BASE, key)
  fresh = params.init(CONFIG, key)
  for a, b in zip(
    jax.tree.leaves(plain), jax.tree.leaves(lora.base(fresh)), strict=True
  ):
    np.testing.assert_array_equal(a, b)
  drawn = params.adapters(CONFIG, key)['layers']['lora']
  for name, pair in lora.adapters(fresh).items():
    np.testing.assert_array_equal(pair['a'], drawn[name]['a'])
    assert not pair['b'].any()
    fan_in = pair['a'][0].size // LORA.rank
    assert np.std(pair['a']) == pytest.approx((3 * fan_in) ** -0.5, rel=0.3)
  # Zeros are added, by another program: it may round in another order.
  np.testing.assert_allclose(
    logits(CONFIG, fresh), logits(BASE, plain), atol=2e-6
  )


def test_split_and_join_undo_each_other(weights):
  valued = {**weights, 'value': {'kernel': jnp.ones(3), 'bias': jnp.ones(())}}
  trained, frozen = lora.split(valued)
  assert set(trained) == {'layers', 'value'}
  assert set(trained['layers']) == {'lora'}
  assert 'value' not in frozen and 'lora' not in frozen['layers']
  joined = lora.join(trained, frozen)
  assert jax.tree.structure(joined) == jax.tree.structure(valued)
  for a, b in zip(jax.tree.leaves(joined), jax.tree.leaves(valued)):
    assert a is b
  everything, nothing = lora.split(lora.base(weights))
  assert nothing == {} and everything is not None
  assert lora.join(everything, nothing) is everything
  with pytest.raises(ValueError, match='the same weight'):
    lora.join(trained, trained)


def test_targets_that_are_not_there_are_named():
  assert lora.faults(['q', 'v']) == []
  (fault,) = lora.faults(['gates'])
  assert "'gates': not one of q, k, v" in fault and "mean 'gate'" in fault
  assert 'no target' in lora.faults([])[0]
  assert 'twice' in lora.faults(['q', 'q'])[0]
  wrong = dataclasses.replace(LORA, targets=('q', 'qq'))
  with pytest.raises(ValueError, match=r"lora.targets: 'qq'"):
    params.describe(dataclasses.replace(BASE, lora=wrong))


def batch(count=4, length=12):
  draws = np.random.default_rng(0)
  made = collate.empty_rows(count, length)
  made.tokens[:] = draws.integers(0, 11, made.tokens.shape)
  made.segment_ids[:] = 1
  made.positions[:] = np.arange(length)
  made.mask[:] = draws.random(made.mask.shape) < 0.6
  made.mask[:, 0] = False
  made.advantages[:] = draws.normal(size=made.mask.shape)
  made.behavior_logprobs[:] = -2.4
  made.weights[:] = made.mask / made.mask.sum()
  return made


POLICY = objective.PolicyObjective(loss=losses.LOSSES['ppo_clip'])


def learner(config):
  return step.Learner(config, POLICY, optimizer.make(OPTIONS, 9), MESH, 4)


def test_only_adapters_are_trained_and_the_base_keeps_its_bits(weights):
  built = learner(CONFIG)
  frozen = jax.tree.map(lambda x: x.astype(jnp.bfloat16), lora.base(weights))
  begun = lora.join(frozen, lora.split(weights)[0])
  before = jax.device_get(begun)
  state = built.create(begun)
  count = sum(x.size for x in jax.tree.leaves(state.params))
  # [L=2] x r=2 x (in + out): q 32+32, k and v 32+16, o 32+32, gate and up
  # 32+64, down 64+32.
  assert count == 2 * 2 * (64 + 48 + 48 + 64 + 96 + 96 + 96)
  moments = [x.size for x in jax.tree.leaves(state.opt_state) if x.ndim]
  assert sum(moments) == 2 * count
  for _ in range(2):
    state, _, info = built.update(state, [batch()])
  assert float(info['grad_norm']) > 1e-3
  after = jax.device_get(built.policy(state))
  for a, b in zip(
    jax.tree.leaves(lora.base(before)),
    jax.tree.leaves(lora.base(after)),
    strict=True,
  ):
    np.testing.assert_array_equal(a, b)
    assert b.dtype == jnp.bfloat16
  for old, new in zip(
    jax.tree.leaves(lora.adapters(before)),
    jax.tree.leaves(lora.adapters(after)),
    strict=True,
  ):
    assert (old != new).any() and new.dtype == np.float32


def test_its_gradient_is_the_chain_rule_of_the_merged_weights(weights):
  """dL/dA = s·dL/dW·Bᵀ and dL/dB = s·Aᵀ·dL/dW."""

  def loss(config, p):
    return POLICY(config, p, batch())[0]

  trained, frozen = lora.split(weights)
  ours = jax.jit(jax.grad(lambda t: loss(CONFIG, lora.join(t, frozen))))(
    trained
  )
  of_weights = jax.jit(jax.grad(functools.partial(loss, BASE)))(
    lora.merge(LORA, weights)
  )['layers']
  for name, pair in lora.adapters(weights).items():
    rank = LORA.rank
    a = np.asarray(pair['a']).reshape(2, -1, rank)
    b = np.asarray(pair['b']).reshape(2, rank, -1)
    d = np.asarray(of_weights[name]).reshape(2, a.shape[1], b.shape[2])
    mine = ours['layers']['lora'][name]
    np.testing.assert_allclose(
      mine['a'].reshape(a.shape), 3 * d @ b.transpose(0, 2, 1), atol=1e-5
    )
    np.testing.assert_allclose(
      mine['b'].reshape(b.shape), 3 * a.transpose(0, 2, 1) @ d, atol=1e-5
    )


def test_no_gradient_of_a_frozen_weight_is_computed():
  """Nothing of a weight's stacked shape is made in the backward pass."""
  config = dataclasses.replace(
    CONFIG, num_layers=3, d_model=24, d_ff=40, remat='block'
  )
  shapes = params.abstract(config)
  trained, frozen = lora.split(shapes)
  weight = frozen['layers']['gate'].shape
  rows = jax.tree.map(jnp.asarray, batch())

  def loss(trained, frozen):
    return POLICY(config, lora.join(trained, frozen), rows)[0]

  def made(function, *arguments):
    text = str(jax.make_jaxpr(function)(*arguments))
    return text.count(f':f32[{",".join(map(str, weight))}]')

  plain = made(
    jax.grad(lambda p: POLICY(BASE, p, rows)[0]),
    params.abstract(dataclasses.replace(config, lora=None)),
  )
  # The argument itself; with all trained, its gradient besides.
  given = made(loss, trained, frozen)
  assert made(jax.grad(loss), trained, frozen) == given < plain
