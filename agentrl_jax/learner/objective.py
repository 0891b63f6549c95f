"""What is minimised over a microbatch, and what is measured on the way.

An objective returns (loss, metrics). The loss is Σ w·x with weights over the
whole update, so that microbatches just add. Metrics come in two kinds: sums
over tokens (divided by `tokens` at the end) and maxima.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from agentrl_jax import losses
from agentrl_jax.batch import TokenBatch
from agentrl_jax.models import heads, transformer
from agentrl_jax.models.config import ModelConfig


class Metrics(NamedTuple):
  """sums: added over microbatches; maxima: maximised."""

  sums: dict[str, jax.Array]
  maxima: dict[str, jax.Array]


def combine(a: Metrics, b: Metrics) -> Metrics:
  """Merges the metrics of two microbatches."""
  return Metrics(
    {key: a.sums[key] + b.sums[key] for key in a.sums},
    {key: jnp.maximum(a.maxima[key], b.maxima[key]) for key in a.maxima},
  )


def logprobs_and_entropy(
  config: ModelConfig, params: dict, batch: TokenBatch, temperature: float
) -> tuple[jax.Array, jax.Array]:
  """Scores every token given what stands before it in its segment.

  Returns:
    (logprobs, entropy), [R, T] float32, aligned with the tokens; 0 at the
    first token of a row. At the first token of a later segment the value is
    that of another segment's end: no such token is ever sampled.
  """
  output = transformer.hidden(
    config,
    params,
    batch.tokens,
    positions=batch.positions,
    segment_ids=batch.segment_ids,
  )
  logits = heads.logits(config, params, output.hidden[:, :-1])
  targets = batch.tokens[:, 1:]
  logprobs = losses.token_logprobs(logits, targets, temperature=temperature)
  entropy = losses.entropy(logits, temperature=temperature)
  front = [(0, 0), (1, 0)]
  return jnp.pad(logprobs, front), jnp.pad(entropy, front)


def _masked_sum(values, mask):
  return jnp.sum(jnp.where(mask, values, 0.0))


def _masked_max(values, mask):
  return jnp.max(jnp.where(mask, values, 0.0))


def likelihood(
  config: ModelConfig, params: dict, batch: TokenBatch
) -> tuple[jax.Array, Metrics]:
  """Negative log-likelihood of demonstrations: Σ w · (-log π)."""
  logprobs, _ = logprobs_and_entropy(config, params, batch, 1.0)
  loss = losses.aggregate(-logprobs, batch.weights)
  sums = {
    'loss': loss,
    'nll': _masked_sum(-logprobs, batch.mask),
    'tokens': batch.mask.sum().astype(jnp.float32),
  }
  return loss, Metrics(sums, {})


@dataclasses.dataclass(frozen=True)
class PolicyObjective:
  """Policy loss, KL to a reference and entropy bonus.

  Attributes:
    loss: as in `losses.LOSSES`, its options bound.
    sequence: what a sequence ratio is taken over, 'turn' or 'trajectory' (the
      part of it that lies in one packed segment).
    kl_coef, kl_estimator: of the KL penalty; coefficient 0 = none.
    entropy_coef: of the bonus.
    temperature: at which the tokens were sampled.
    clip: (low, high) for the clip fraction that is reported.
  """

  loss: Callable
  sequence: str = 'turn'
  kl_coef: float = 0.0
  kl_estimator: str = 'k3'
  entropy_coef: float = 0.0
  temperature: float = 1.0
  clip: tuple[float, float] = (0.2, 0.2)

  def __call__(
    self,
    config: ModelConfig,
    params: dict,
    batch: TokenBatch,
    reference_logprobs: jax.Array | None = None,
  ) -> tuple[jax.Array, Metrics]:
    """Returns (loss, metrics) of a microbatch."""
    mask, weights = batch.mask, batch.weights
    logprobs, entropy = logprobs_and_entropy(
      config, params, batch, self.temperature
    )
    values = self.loss(
      logprobs,
      batch.behavior_logprobs,
      batch.advantages,
      self._sequence_ids(batch),
      mask,
    )
    policy = losses.aggregate(values, weights)
    kl = jnp.zeros(())
    if self.kl_coef:
      penalty = losses.kl_penalty(
        logprobs, reference_logprobs, mask, estimator=self.kl_estimator
      )
      kl = losses.aggregate(penalty, weights)
    bonus = losses.aggregate(jnp.where(mask, entropy, 0.0), weights)
    loss = policy + self.kl_coef * kl - self.entropy_coef * bonus
    gap = jnp.where(mask, logprobs - batch.behavior_logprobs, 0.0)
    ratio = jnp.exp(jnp.clip(gap, -20, 20))
    low, high = self.clip
    clipped = (ratio < 1 - low) | (ratio > 1 + high)
    sums = {
      'loss': loss,
      'policy': policy,
      'kl': kl,
      'tokens': mask.sum().astype(jnp.float32),
      'entropy': _masked_sum(entropy, mask),
      'ratio': _masked_sum(ratio, mask),
      'ratio_square': _masked_sum(ratio**2, mask),
      'clipped': _masked_sum(clipped.astype(jnp.float32), mask),
      'gap': _masked_sum(jnp.abs(gap), mask),
      'weight': weights.sum(),
    }
    maxima = {
      'gap': _masked_max(jnp.abs(gap), mask),
      'ratio': _masked_max(jnp.abs(ratio - 1), mask),
    }
    return loss, Metrics(sums, maxima)

  def _sequence_ids(self, batch: TokenBatch) -> jax.Array:
    """[R, T] int32 ids of turns or of packed segments, -1 = in none."""
    rows, length = batch.tokens.shape
    segments = batch.segment_ids + jnp.arange(rows)[:, None] * (length + 1)
    if self.sequence == 'trajectory':
      return jnp.where(batch.mask, segments, -1)
    # A turn's tokens are contiguous in its segment: its id is where it starts.
    place = jnp.broadcast_to(jnp.arange(length), (rows, length))
    same = jnp.ones((rows, length), bool)
    for ids in (batch.row_turn, segments):
      before = jnp.pad(ids, [(0, 0), (1, 0)], constant_values=-1)[:, :-1]
      same &= ids == before
    starts = jax.lax.cummax(jnp.where(same, -1, place), axis=1)
    ids = starts + jnp.arange(rows)[:, None] * length
    return jnp.where(batch.mask, ids, -1)


def policy_objective(
  loss: Callable, config_loss: Mapping[str, Any], temperature: float
) -> PolicyObjective:
  """Makes the objective of `config.loss`.

  Args:
    loss: the per-token loss with its options bound.
    config_loss: `config.loss`.
    temperature: of the rollouts.
  """
  options = config_loss['options']
  return PolicyObjective(
    loss=loss,
    sequence=config_loss['sequence'],
    kl_coef=config_loss['kl_coef'],
    kl_estimator=config_loss['kl_estimator'],
    entropy_coef=config_loss['entropy_coef'],
    temperature=temperature,
    clip=(options.get('clip_low', 0.2), options.get('clip_high', 0.2)),
  )
