"""Locks what is minimised: alignment of log-probs, ids, KL, metrics."""

import dataclasses
import functools
import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax import losses
from agentrl_jax.learner import objective
from agentrl_jax.models import transformer
from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.rollout import collate

TINY = ModelConfig(vocab_size=11, embedding_std=0.5, **PRESETS['tiny'])
PPO = losses.LOSSES['ppo_clip']


@pytest.fixture(scope='module')
def weights(draw_params):
  return draw_params(TINY)


def rows(seed=0):
  draws = np.random.default_rng(seed)
  batch = collate.empty_rows(3, 10)
  batch.tokens[:] = draws.integers(0, 11, (3, 10))
  batch.segment_ids[:] = [1] * 4 + [2] * 5 + [0]
  batch.positions[:] = [*range(4), *range(5), 0]
  batch.mask[:] = np.array([0, 0, 1, 1, 0, 1, 1, 0, 1, 0], bool)
  batch.advantages[:] = draws.normal(size=(3, 10))
  batch.behavior_logprobs[:] = -2.4 + 0.2 * draws.normal(size=(3, 10))
  batch.weights[:] = batch.mask / batch.mask.sum()
  return batch


@functools.partial(jax.jit, static_argnums=(0,))
def run(policy, weights, batch, *extra):
  return policy(TINY, weights, batch, *extra)


SCORE = jax.jit(objective.logprobs_and_entropy, static_argnums=(0, 3))


@pytest.mark.parametrize('temperature', [1.0, 0.7])
def test_logprobs_stand_at_their_token(weights, temperature):
  batch = rows()
  logprobs, entropy = SCORE(TINY, weights, batch, temperature)
  for start, end in ((0, 4), (4, 9)):
    alone = batch.tokens[:, start:end]
    z = np.float64(transformer.forward(TINY, weights, alone)[0]) / temperature
    table = z - np.log(np.exp(z).sum(-1, keepdims=True))
    for r in range(3):
      for t in range(1, end - start):
        row = table[r, t - 1]
        np.testing.assert_allclose(
          logprobs[r, start + t], row[alone[r, t]], atol=1e-5
        )
        np.testing.assert_allclose(
          entropy[r, start + t], -(np.exp(row) * row).sum(), atol=1e-5
        )
  np.testing.assert_array_equal(logprobs[:, 0], 0.0)


def test_likelihood_by_hand(weights):
  batch = rows()
  batch.weights[:] *= 5
  loss, metrics = objective.likelihood(TINY, weights, batch)
  logprobs, _ = SCORE(TINY, weights, batch, 1.0)
  nll = -np.asarray(logprobs)[batch.mask]
  np.testing.assert_allclose(loss, 5 * nll.mean(), rtol=1e-5)
  np.testing.assert_allclose(metrics.sums['nll'], nll.sum(), rtol=1e-5)
  assert metrics.sums['tokens'] == batch.mask.sum()


def test_metrics_by_hand(weights):
  batch = rows()
  policy = objective.PolicyObjective(loss=PPO, clip=(0.1, 0.3))
  loss, metrics = run(policy, weights, batch)
  logprobs, entropy = (np.asarray(x) for x in SCORE(TINY, weights, batch, 1.0))
  gap = (logprobs - batch.behavior_logprobs)[batch.mask]
  ratio = np.exp(gap)
  expected = {
    'ratio': ratio.sum(),
    'ratio_square': (ratio**2).sum(),
    'gap': np.abs(gap).sum(),
    'own_tokens': batch.mask.sum(),
    'clipped': ((ratio < 0.9) | (ratio > 1.3)).sum(),
    'entropy': entropy[batch.mask].sum(),
    'tokens': batch.mask.sum(),
    'weight': 1.0,
    'kl': 0.0,
    'loss': loss,
    'policy': loss,
  }
  chex.assert_trees_all_close(
    {k: float(v) for k, v in metrics.sums.items()},
    {k: float(v) for k, v in expected.items()},
    rtol=1e-4,
  )
  np.testing.assert_allclose(
    metrics.maxima['gap'], np.abs(gap).max(), rtol=1e-4
  )
  np.testing.assert_allclose(
    metrics.maxima['ratio'], np.abs(ratio - 1).max(), rtol=1e-4
  )


def test_on_policy_the_ratio_is_one(weights):
  batch = rows()
  batch.behavior_logprobs[:] = SCORE(TINY, weights, batch, 0.7)[0]
  policy = objective.PolicyObjective(loss=PPO, temperature=0.7)
  _, metrics = run(policy, weights, batch)
  assert metrics.maxima['ratio'] < 1e-6
  wrong = objective.PolicyObjective(loss=PPO, temperature=1.0)
  assert run(wrong, weights, batch)[1].maxima['ratio'] > 0.05


def test_kl_and_entropy_are_weighted_parts_of_the_loss(weights):
  batch = rows()
  reference = np.float32(batch.behavior_logprobs + 0.1)
  reference[~batch.mask] = np.nan
  plain = run(objective.PolicyObjective(loss=PPO), weights, batch)[0]
  policy = objective.PolicyObjective(
    loss=PPO, kl_coef=0.5, kl_estimator='k3', entropy_coef=0.2
  )
  loss, metrics = run(policy, weights, batch, reference)
  logprobs, entropy = (np.asarray(x) for x in SCORE(TINY, weights, batch, 1.0))
  log_ratio = (reference - logprobs)[batch.mask]
  kl = np.mean(np.exp(log_ratio) - 1 - log_ratio)
  np.testing.assert_allclose(metrics.sums['kl'], kl, rtol=1e-5)
  expected = plain + 0.5 * kl - 0.2 * entropy[batch.mask].mean()
  np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_kl_to_itself_is_zero_and_pulls_nowhere(weights):
  batch = rows()
  batch.advantages[:] = 0.0
  reference = SCORE(TINY, weights, batch, 1.0)[0]
  policy = objective.PolicyObjective(loss=PPO, kl_coef=1.0)
  loss, gradient = jax.jit(
    jax.value_and_grad(lambda p: policy(TINY, p, batch, reference)[0])
  )(weights)
  np.testing.assert_allclose(loss, 0.0, atol=1e-6)
  for leaf in jax.tree.leaves(gradient):
    np.testing.assert_allclose(leaf, 0.0, atol=1e-5)


WHOLE = objective.PolicyObjective(
  loss=PPO, kl_coef=0.5, entropy_coef=0.2, temperature=0.7
)


@pytest.mark.parametrize('tied', [False, True])
def test_logits_in_chunks_change_no_loss_and_no_gradient(draw_params, tied):
  config = dataclasses.replace(TINY, tie_embeddings=tied)
  weights, batch = draw_params(config), rows()
  batch.mask[1] = False  # a row where nothing was sampled
  batch.weights[:] = batch.mask / batch.mask.sum()
  reference = np.float32(batch.behavior_logprobs + 0.1)

  @functools.partial(jax.jit, static_argnums=0)
  def both(head_chunk, weights):
    policy = dataclasses.replace(WHOLE, head_chunk=head_chunk)

    def loss(weights):
      return policy(config, weights, batch, reference)

    def nll(weights):
      spread = batch.replace(weights=batch.weights + 0.01)  # more than `mask`
      return objective.likelihood(
        config, weights, spread, head_chunk=head_chunk
      )

    return [jax.value_and_grad(f, has_aux=True)(weights) for f in (loss, nll)]

  found = jax.tree.leaves((both(0, weights), both(2, weights)))
  for whole, cut in zip(found[: len(found) // 2], found[len(found) // 2 :]):
    # Sums of large terms that nearly cancel: an error of their size.
    largest = np.abs(whole).max()
    np.testing.assert_allclose(
      cut, whole, rtol=2e-6, atol=2e-6 * largest + 1e-6
    )


def test_chunks_by_the_vocabulary():
  # 2**26 logits at most, 441 or 64 tokens here, as a power of two.
  sizes = {151_936: 256, 2**20: 64, 2**27: 1, 2**15: 256, 2**13: 64, 512: 64}
  assert {v: objective.head_chunk(-1, v) for v in sizes} == sizes
  assert objective.head_chunk(0, 151_936) == 0
  assert objective.head_chunk(100, 512) == 100


def random_turns(seed):
  """Rows of segments of turns; a few sampled tokens are not trained."""
  draws = np.random.default_rng(seed)
  batch = collate.empty_rows(4, 30)
  for r in range(4):
    at, segment, trajectory = 0, 0, 0
    while at < 24:
      segment, trajectory = segment + 1, trajectory + int(draws.integers(2))
      for turn in range(int(draws.integers(1, 4))):
        # Observation (none: turns or segments touch), then the completion.
        gap = int(draws.integers(0, 3))
        size = int(draws.integers(1, 4))
        if at + gap + size > 30:
          break
        for _ in range(gap):
          batch.segment_ids[r, at] = segment
          at += 1
        for _ in range(size):
          batch.segment_ids[r, at] = segment
          batch.row_turn[r, at] = turn
          batch.mask[r, at] = draws.random() < 0.8
          at += 1
  return batch


@pytest.mark.parametrize('sequence', ['turn', 'trajectory'])
@pytest.mark.parametrize('seed', range(6))
def test_sequence_ids_equal_plain_python(sequence, seed):
  batch = random_turns(seed)
  find = jax.jit(objective.sequence_ids, static_argnums=1)
  ids = np.asarray(find(batch, sequence))
  names, expected = {}, {}
  for r, t in np.ndindex(ids.shape):
    if not batch.mask[r, t]:
      assert ids[r, t] == -1
      continue
    name = (r, int(batch.segment_ids[r, t]))
    if sequence == 'turn':
      name += (int(batch.row_turn[r, t]),)
    assert names.setdefault(name, ids[r, t]) == ids[r, t]
    assert expected.setdefault(ids[r, t], name) == name
  assert len(names) > 8 and min(names.values()) >= 0


def test_combine_adds_sums_and_keeps_maxima():
  a = objective.Metrics({'x': jnp.array(1.0)}, {'y': jnp.array(5.0)})
  b = objective.Metrics({'x': jnp.array(2.0)}, {'y': jnp.array(3.0)})
  out = objective.combine(a, b)
  assert out.sums['x'] == 3 and out.maxima['y'] == 5


def test_options_of_the_config_arrive():
  fields = dict(
    options={'clip_high': 0.28},
    sequence='trajectory',
    kl_coef=0.1,
    kl_estimator='k1',
    entropy_coef=0.01,
    proximal='latest',
    correction=[['tis', {'cap': 3.0}]],
    value_coef=0.25,
    value_clip=0.1,
  )
  made = objective.policy_objective(PPO, types.MappingProxyType(fields), 0.7)
  assert made == objective.PolicyObjective(
    loss=PPO,
    sequence='trajectory',
    kl_coef=0.1,
    kl_estimator='k1',
    entropy_coef=0.01,
    temperature=0.7,
    clip=(0.2, 0.28),
    proximal='latest',
    correction=(('tis', {'cap': 3.0}),),
    value_coef=0.25,
    value_clip=0.1,
  )


EVERY = (('tis', {}), ('icepop', {}), ('geometric', {}), ('veto', {}))


@pytest.mark.parametrize('proximal', ['recomputed', 'interpolated'])
def test_on_policy_a_correction_changes_nothing(weights, proximal):
  batch = rows()
  logprobs, _ = SCORE(TINY, weights, batch, 1.0)
  batch = batch.replace(behavior_logprobs=np.asarray(logprobs))
  batch.versions[:] = np.where(batch.mask, 3, -1)
  plain = objective.PolicyObjective(loss=PPO)
  corrected = dataclasses.replace(plain, proximal=proximal, correction=EVERY)
  extra = {'version': np.int32(3)}
  if proximal == 'recomputed':
    extra['proximal_logprobs'] = logprobs

  def gradient(policy, **extra):
    f = jax.jit(jax.grad(functools.partial(policy, TINY), has_aux=True))
    return f(weights, batch, **extra)

  (want, _), (got, metrics) = gradient(plain), gradient(corrected, **extra)
  chex.assert_trees_all_close(want, got, atol=1e-6)
  assert metrics.sums['correction_kept'] == batch.mask.sum()
  assert metrics.sums['age'] == 0 and metrics.sums['age_0'] == batch.mask.sum()


def test_a_stale_token_is_corrected_and_counted(weights):
  batch = rows()
  logprobs = np.asarray(SCORE(TINY, weights, batch, 1.0)[0])
  # The policy that sampled was half as likely to: every weight is 2, or 1.5
  # where that is the cap.
  batch = batch.replace(behavior_logprobs=logprobs - np.float32(np.log(2)))
  batch.versions[:] = np.where(batch.mask, 1, -1)
  policy = objective.PolicyObjective(
    loss=PPO, proximal='latest', correction=(('tis', {'cap': 1.5}),)
  )
  extra = dict(proximal_logprobs=logprobs, version=np.int32(6))
  loss, metrics = jax.jit(functools.partial(policy, TINY))(
    weights, batch, **extra
  )
  # To the proximal policy the ratio is 1: the loss is -Σ w 1.5 A.
  want = -1.5 * (batch.weights * batch.advantages).sum()
  np.testing.assert_allclose(loss, want, rtol=1e-4)
  n = batch.mask.sum()
  sums = metrics.sums
  np.testing.assert_allclose(sums['correction_ratio'], 2 * n, rtol=1e-5)
  np.testing.assert_allclose(
    sums['correction_kl'], n * (1 - np.log(2)), rtol=1e-4
  )
  assert (sums['age'], sums['age_3'], sums['age_0']) == (5 * n, n, 0)
  assert sums['clipped'] == 0  # of the ratio to the proximal policy


def test_value_loss_by_hand(weights):
  batch = rows()
  shape = batch.mask.shape
  head = {'kernel': np.zeros(TINY.d_model), 'bias': np.float32(0.5)}
  policy = objective.PolicyObjective(loss=PPO, value_coef=0.25)
  where = batch.mask & (batch.positions % 2 == 0)
  extra = dict(
    returns=np.full(shape, 2.0, np.float32),
    old_values=np.zeros(shape, np.float32),
    value_weights=np.where(where, 0.1, 0).astype(np.float32),
  )
  both = {**weights, 'value': head}
  plain, _ = run(policy, weights, batch)
  loss, metrics = policy(TINY, both, batch, **extra)
  # (0.5 - 2)² · 0.1 a state.
  want = 0.225 * where.sum()
  np.testing.assert_allclose(metrics.sums['value'], want, rtol=1e-5)
  np.testing.assert_allclose(loss - plain, 0.25 * want, rtol=1e-4)
  # A step of at most 0.1 from 0: (0.1 - 2)² > (0.5 - 2)².
  clipped = dataclasses.replace(policy, value_clip=0.1)
  _, metrics = clipped(TINY, both, batch, **extra)
  np.testing.assert_allclose(
    metrics.sums['value'], 0.361 * where.sum(), rtol=1e-5
  )
