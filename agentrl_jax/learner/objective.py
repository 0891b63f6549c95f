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

# Ages of tokens that are counted apart; the last holds all older ones.
NUM_AGES = 4

# Logits of a row that exist at once by `head_chunk=-1`: 256 MB in float32.
_CHUNK_LOGITS = 2**26
# Larger chunks skip less of what was not sampled; a small vocabulary stays in
# a processor's cache by smaller ones.
_LARGEST_CHUNK, _SMALL_CHUNK, _SMALL_VOCABULARY = 256, 64, 8192


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


def head_chunk(given: int, vocab_size: int) -> int:
  """Returns how many tokens of a row have logits at once, 0 = all.

  Args:
    given: `config.train.head_chunk`; -1 = by the vocabulary, a power of two.
    vocab_size: V.
  """
  if given >= 0:
    return given
  if vocab_size <= _SMALL_VOCABULARY:
    return _SMALL_CHUNK
  fitting = 1 << max((_CHUNK_LOGITS // vocab_size).bit_length() - 1, 0)
  return min(fitting, _LARGEST_CHUNK)


def logprobs_and_entropy(
  config: ModelConfig,
  params: dict,
  batch: TokenBatch,
  temperature: float,
  head_chunk: int = 0,
) -> tuple[jax.Array, jax.Array]:
  """Scores every token given what stands before it in its segment.

  Returns:
    (logprobs, entropy), [R, T] float32, aligned with the tokens; 0 at the
    first token of a row and, with `head_chunk`, where `batch.mask` is False.
    At the first token of a later segment the value is that of another
    segment's end: no such token is ever sampled.
  """
  hidden = hidden_states(config, params, batch)
  return scores(config, params, hidden, batch, temperature, head_chunk)


def decoded(
  config: ModelConfig, params: dict, batch: TokenBatch
) -> transformer.Output:
  """Runs the decoder over packed rows, by the experts of `batch.routes`."""
  return transformer.hidden(
    config,
    params,
    batch.tokens,
    positions=batch.positions,
    segment_ids=batch.segment_ids,
    routing=batch.routes,
  )


def hidden_states(
  config: ModelConfig, params: dict, batch: TokenBatch
) -> jax.Array:
  """Returns the hidden states [R, T, D] of packed rows."""
  return decoded(config, params, batch).hidden


def expert_terms(
  config: ModelConfig, batch: TokenBatch, aux: Mapping[str, jax.Array]
) -> tuple[jax.Array, Metrics]:
  """Returns the load-balance loss of a microbatch and what its experts did.

  The loss of a microbatch counts as much as its tokens weigh in the update, so
  that it adds up as the others do; balance is within a microbatch.

  Args:
    config: the policy's.
    batch: the rows.
    aux: as of `transformer.Output`; {} = no experts, and nothing to tell.
  """
  if not aux:
    return jnp.zeros(()), Metrics({}, {})
  loss = config.balance_coef * batch.weights.sum() * aux['balance']
  count = (batch.segment_ids > 0).sum().astype(jnp.float32)
  even = config.experts_per_token / config.num_experts
  sums = {
    'expert_tokens': count,
    'expert_balance': count * aux['balance'],
    'expert_kept': count * aux['kept'],
    'expert_idle': count * (aux['load'] == 0).mean(),
  }
  return loss, Metrics(sums, {'expert_load': aux['load'].max() / even})


def scores(
  config: ModelConfig,
  params: dict,
  hidden: jax.Array,
  batch: TokenBatch,
  temperature: float,
  head_chunk: int = 0,
) -> tuple[jax.Array, jax.Array]:
  """The rest of `logprobs_and_entropy`, from hidden states [R, T, D] on."""
  hidden = hidden[:, :-1]
  targets = batch.tokens[:, 1:]
  if head_chunk:
    logprobs, entropy = losses.chunked_logprobs(
      hidden,
      heads.matrix(config, params),
      targets,
      batch.mask[:, 1:],
      temperature=temperature,
      chunk=head_chunk,
    )
  else:
    logits = heads.logits(config, params, hidden)
    logprobs = losses.token_logprobs(logits, targets, temperature=temperature)
    entropy = losses.entropy(logits, temperature=temperature)
  front = [(0, 0), (1, 0)]
  return jnp.pad(logprobs, front), jnp.pad(entropy, front)


def values_before(params: dict, hidden: jax.Array) -> jax.Array:
  """Values [R, T] of the state in which each token is chosen, 0 at a row's
  first: aligned with the tokens as log-probs are."""
  return jnp.pad(heads.values(params, hidden[:, :-1]), [(0, 0), (1, 0)])


def _masked_sum(values, mask):
  return jnp.sum(jnp.where(mask, values, 0.0))


def _masked_max(values, mask):
  return jnp.max(jnp.where(mask, values, 0.0))


def likelihood(
  config: ModelConfig, params: dict, batch: TokenBatch, *, head_chunk: int = 0
) -> tuple[jax.Array, Metrics]:
  """Negative log-likelihood of demonstrations: Σ w · (-log π)."""
  counts = batch.replace(mask=batch.weights != 0)
  output = decoded(config, params, batch)
  logprobs, _ = scores(config, params, output.hidden, counts, 1.0, head_chunk)
  balance, experts = expert_terms(config, batch, output.aux)
  loss = losses.aggregate(-logprobs, batch.weights) + balance
  sums = {
    'loss': loss,
    'nll': _masked_sum(-logprobs, batch.mask),
    'tokens': batch.mask.sum().astype(jnp.float32),
  }
  return loss, Metrics(sums | experts.sums, experts.maxima)


@dataclasses.dataclass(frozen=True)
class PolicyObjective:
  """Policy loss, KL to a reference, entropy bonus, and value loss.

      Σ w · m · c · L(π, π_prox) + β KL - η H + ν Σ v · (V - R)²

  Attributes:
    loss: as in `losses.LOSSES`, its options bound.
    sequence: what a sequence ratio is taken over, 'turn' or 'trajectory' (the
      part of it that lies in one packed segment).
    kl_coef, kl_estimator: of the KL penalty; coefficient 0 = none.
    entropy_coef: of the bonus.
    temperature: at which the tokens were sampled.
    clip: (low, high) for the clip fraction that is reported.
    proximal: policy that the ratio is taken to: 'behavior' (that sampled),
      'interpolated' (see `losses.interpolated_proximal_logprobs`), or any
      other word: as given.
    correction: (name, options) pairs of `losses.correct`, from the behavior to
      the proximal policy.
    value_coef, value_clip: of the value loss; clip 0 = off.
    head_chunk: sampled tokens of a row that have logits at once; 0 = all.
  """

  loss: Callable
  sequence: str = 'turn'
  kl_coef: float = 0.0
  kl_estimator: str = 'k3'
  entropy_coef: float = 0.0
  temperature: float = 1.0
  clip: tuple[float, float] = (0.2, 0.2)
  proximal: str = 'behavior'
  correction: tuple = ()
  value_coef: float = 0.0
  value_clip: float = 0.0
  head_chunk: int = 0

  def __call__(
    self,
    config: ModelConfig,
    params: dict,
    batch: TokenBatch,
    reference_logprobs: jax.Array | None = None,
    proximal_logprobs: jax.Array | None = None,
    version: jax.Array | None = None,
    returns: jax.Array | None = None,
    old_values: jax.Array | None = None,
    value_weights: jax.Array | None = None,
  ) -> tuple[jax.Array, Metrics]:
    """Returns (loss, metrics) of a microbatch.

    Args:
      config, params: of the policy, with a value head where `returns` are.
      batch: rows.
      reference_logprobs: [R, T] float32, for a KL.
      proximal_logprobs: [R, T] float32, where `proximal` is given.
      version: [] int32, of `params`, where it is not 'behavior', or tokens may
        be older.
      returns, old_values, value_weights: [R, T] float32, targets, values at
        collection and weights (0 = not fitted) of the states before tokens.
    """
    mask, weights = batch.mask, batch.weights
    output = decoded(config, params, batch)
    hidden = output.hidden
    logprobs, entropy = scores(
      config, params, hidden, batch, self.temperature, self.head_chunk
    )
    proximal = self._proximal(logprobs, batch, proximal_logprobs, version)
    values = self.loss(
      logprobs,
      proximal,
      batch.advantages,
      sequence_ids(batch, self.sequence),
      mask,
    )
    more = {}
    if self.proximal != 'behavior':
      values, more = self._corrected(values, proximal, batch, version)
    policy = losses.aggregate(values, weights)
    kl = jnp.zeros(())
    if self.kl_coef:
      penalty = losses.kl_penalty(
        logprobs, reference_logprobs, mask, estimator=self.kl_estimator
      )
      kl = losses.aggregate(penalty, weights)
    bonus = losses.aggregate(jnp.where(mask, entropy, 0.0), weights)
    balance, experts = expert_terms(config, batch, output.aux)
    loss = policy + self.kl_coef * kl - self.entropy_coef * bonus + balance
    if returns is not None:
      fit = losses.value_loss(
        values_before(params, hidden),
        old_values,
        returns,
        value_weights > 0,
        clip=self.value_clip or None,
      )
      more['value'] = losses.aggregate(fit, value_weights)
      loss += self.value_coef * more['value']
    own = mask if version is None else mask & (batch.versions == version)
    sums, maxima = self._measures(logprobs, entropy, proximal, batch, own)
    sums = {'loss': loss, 'policy': policy, 'kl': kl} | more | sums
    return loss, Metrics(sums | experts.sums, maxima | experts.maxima)

  def _measures(self, logprobs, entropy, proximal, batch, own):
    """Sums and maxima over sampled tokens, the gap over those in `own`."""
    mask = batch.mask
    gap = jnp.where(mask, logprobs - batch.behavior_logprobs, 0.0)
    ratio = jnp.exp(jnp.clip(gap, -20, 20))
    step = jnp.exp(jnp.clip(jnp.where(mask, logprobs - proximal, 0.0), -20, 20))
    low, high = self.clip
    clipped = (step < 1 - low) | (step > 1 + high)
    sums = {
      'tokens': mask.sum().astype(jnp.float32),
      'entropy': _masked_sum(entropy, mask),
      'ratio': _masked_sum(ratio, mask),
      'ratio_square': _masked_sum(ratio**2, mask),
      'clipped': _masked_sum(clipped.astype(jnp.float32), mask),
      'own_tokens': own.sum().astype(jnp.float32),
      'gap': _masked_sum(jnp.abs(gap), own),
      'weight': batch.weights.sum(),
    }
    maxima = {
      'gap': _masked_max(jnp.abs(gap), own),
      'ratio': _masked_max(jnp.abs(ratio - 1), own),
    }
    return sums, maxima

  def _proximal(self, logprobs, batch, given, version):
    """[R, T] log-probs of the policy that the ratio is taken to."""
    if self.proximal == 'behavior':
      return batch.behavior_logprobs
    if self.proximal == 'interpolated':
      return losses.interpolated_proximal_logprobs(
        logprobs,
        batch.behavior_logprobs,
        batch.versions,
        batch.mask,
        version=version,
      )
    return given

  def _corrected(self, values, proximal, batch, version):
    """Corrects losses of tokens; returns them and sums that tell how much."""
    mask, behavior = batch.mask, batch.behavior_logprobs
    ids = {
      'turn': sequence_ids(batch, 'turn'),
      'sequence': sequence_ids(batch, 'trajectory'),
    }
    factors, kept = losses.correct(
      self.correction, proximal, behavior, ids, mask
    )
    apart = jnp.clip(jnp.where(mask, proximal - behavior, 0.0), -20, 20)
    ratio = jnp.exp(jax.lax.stop_gradient(apart))
    bins = losses.staleness_histogram(
      batch.versions, mask, version=version, num_bins=NUM_AGES
    )
    ages = jnp.where(mask, version - batch.versions, 0)
    sums = {
      'correction_ratio': _masked_sum(ratio, mask),
      'correction_square': _masked_sum(ratio**2, mask),
      'correction_kept': kept.sum().astype(jnp.float32),
      'correction_kl': _masked_sum(jnp.expm1(apart) - apart, mask),
      'age': ages.sum().astype(jnp.float32),
      **{f'age_{i}': bins[i] for i in range(NUM_AGES)},
    }
    return jnp.where(kept, values * factors, 0.0), sums


def sequence_ids(batch: TokenBatch, sequence: str) -> jax.Array:
  """[R, T] int32 ids of turns or of packed segments, -1 = in none."""
  rows, length = batch.tokens.shape
  segments = batch.segment_ids + jnp.arange(rows)[:, None] * (length + 1)
  if sequence == 'trajectory':
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
  loss: Callable,
  config_loss: Mapping[str, Any],
  temperature: float,
  head_chunk: int = 0,
) -> PolicyObjective:
  """Makes the objective of `config.loss`.

  Args:
    loss: the per-token loss with its options bound.
    config_loss: `config.loss`.
    temperature: of the rollouts.
    head_chunk: as of the objective.
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
    proximal=config_loss['proximal'],
    correction=tuple(
      (name, dict(options)) for name, options in config_loss['correction']
    ),
    value_coef=config_loss['value_coef'],
    value_clip=config_loss['value_clip'],
    head_chunk=head_chunk,
  )
