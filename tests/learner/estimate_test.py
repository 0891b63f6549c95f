"""Locks scoring under given weights: the objective's numbers, one program."""

import dataclasses

import jax
import numpy as np

from agentrl_jax import sharding
from agentrl_jax.learner import estimate, objective
from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.rollout import collate

TINY = ModelConfig(vocab_size=11, embedding_std=0.5, **PRESETS['tiny'])


def rows(seed):
  batch = collate.empty_rows(2, 8)
  batch.tokens[:] = np.random.default_rng(seed).integers(0, 11, (2, 8))
  batch.segment_ids[:] = 1
  batch.positions[:] = np.arange(8)
  return batch


def test_scores_are_the_objectives_batch_by_batch(draw_params):
  weights = draw_params(TINY)
  mesh = sharding.make_mesh(dict(data=1, fsdp=1, tensor=1))
  scorer = estimate.Estimator(TINY, mesh, 0.7)
  batches = [rows(0), rows(1)]
  for batch, scored in zip(batches, scorer.logprobs(weights, batches)):
    expected, _ = objective.logprobs_and_entropy(TINY, weights, batch, 0.7)
    np.testing.assert_allclose(scored, expected, atol=1e-5)
    assert isinstance(scored, jax.Array) and scored.shape == (2, 8)
  assert scorer._score._cache_size() == 1
  assert scorer.logprobs(weights, []) == []


def test_only_sampled_tokens_are_scored_in_chunks(draw_params):
  weights, batch = draw_params(TINY), rows(0)
  batch.mask[:, 3:5] = True
  mesh = sharding.make_mesh(dict(data=1, fsdp=1, tensor=1))
  whole, chunked = (
    estimate.Estimator(TINY, mesh, 0.7, n).logprobs(weights, [batch])[0]
    for n in (0, 2)
  )
  np.testing.assert_allclose(chunked, whole * batch.mask, atol=1e-6)
  assert np.count_nonzero(chunked) == batch.mask.sum()


def test_scores_are_of_rounded_weights(draw_params):
  weights, batch = draw_params(TINY), rows(0)
  mesh = sharding.make_mesh(dict(data=1, fsdp=1, tensor=1))
  scorer = estimate.Estimator(TINY, mesh, 0.7, 0, 'bfloat16')
  (scored,) = scorer.logprobs(weights, [batch])
  exact = estimate.Estimator(TINY, mesh, 0.7)
  cut = jax.tree.map(lambda x: x.astype('bfloat16').astype('float32'), weights)
  np.testing.assert_allclose(scored, exact.logprobs(cut, [batch])[0], atol=1e-5)
  assert np.abs(scored - exact.logprobs(weights, [batch])[0]).max() > 1e-4


def test_values_are_of_the_states_after_tokens(draw_params):
  config = dataclasses.replace(TINY, value_head=True)
  weights = draw_params(config)
  mesh = sharding.make_mesh(dict(data=1, fsdp=1, tensor=1))
  scorer = estimate.Estimator(config, mesh, 0.7)
  batch = rows(0)
  (after,) = scorer.values(weights, [batch])
  hidden = objective.hidden_states(config, weights, batch)
  before = objective.values_before(weights, hidden)
  np.testing.assert_allclose(after[:, :-1], before[:, 1:], atol=1e-5)
  assert np.ptp(after) > 0 and not before[:, 0].any()
