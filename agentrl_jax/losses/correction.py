"""What if the tokens came from another policy than the one being updated?

Corrections are weights or masks, both stop-gradient, multiplied in from
outside and kept apart from the PPO ratio. Two policies meet here: `behavior`
sampled the tokens, `proximal` is the one the PPO ratio is taken to (the
learner's parameters before the update). Decoupled PPO is

    w · ppo_clip_loss(logprobs, proximal_logprobs, advantages, mask),
    w = truncated_importance_weights(proximal_logprobs, behavior_logprobs, mask)

(AReaL: Fu et al. 2025, arXiv:2505.24298). If both are the same, every weight
is 1 and every mask is the one given.
"""

import chex
import jax
import jax.numpy as jnp

from agentrl_jax import reductions
from agentrl_jax.losses.aggregate import sequence_lengths, sequence_sums
from agentrl_jax.losses.clamp import MAX_LOG_RATIO, clamped_difference

LEVELS = ('token', 'turn', 'sequence')


def truncated_importance_weights(
  proximal_logprobs: chex.Array,
  behavior_logprobs: chex.Array,
  mask: chex.Array,
  *,
  cap: float = 2.0,
  level: str = 'token',
  sequence_ids: chex.Array | None = None,
  num_sequences: int | None = None,
) -> chex.Array:
  """Reweights tokens to the proximal policy, at most by a cap.

      w = min(π_prox / μ, C),   of the token, or the product over its turn or
      sequence

  Args:
    proximal_logprobs: [R, T] float32.
    behavior_logprobs: [R, T] float32, at sampling.
    mask: [R, T] bool.
    cap: C.
    level: 'token', or 'turn' or 'sequence' with the ids of either.
    sequence_ids: [R, T] int32, turns or sequences, -1 = in none (then 0).
    num_sequences: static bound; None takes any ids.

  Returns:
    [R, T] float32, stop-gradient, 0 where masked.

  Raises:
    ValueError: unknown level, or ids missing.

  Reference: Yao et al. 2025, "Your efficient RL framework secretly brings you
  off-policy RL training".
  """
  if level not in LEVELS:
    raise ValueError(f'{level=}; allowed: {", ".join(LEVELS)}')
  log_ratio = clamped_difference(proximal_logprobs, behavior_logprobs, mask)
  if level != 'token':
    if sequence_ids is None:
      raise ValueError(f'{level=} needs sequence_ids')
    mask = mask & (sequence_ids >= 0)
    log_ratio = sequence_sums(
      log_ratio, sequence_ids, mask, num_sequences=num_sequences
    )
    log_ratio = jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO)
  weights = jnp.minimum(jnp.exp(log_ratio), cap)
  return jax.lax.stop_gradient(jnp.where(mask, weights, 0.0))


def icepop_mask(
  proximal_logprobs: chex.Array,
  behavior_logprobs: chex.Array,
  mask: chex.Array,
  *,
  low: float = 0.5,
  high: float = 5.0,
) -> chex.Array:
  """Drops tokens on which the two policies disagree, in either direction.

      keep iff low <= π_prox / μ <= high

  Args:
    proximal_logprobs: [R, T] float32.
    behavior_logprobs: [R, T] float32, at sampling.
    mask: [R, T] bool.
    low: smallest ratio kept.
    high: largest ratio kept.

  Returns:
    [R, T] bool, a part of mask.

  Reference: IcePop, Ling team 2025, arXiv:2510.18855.
  """
  log_ratio = clamped_difference(proximal_logprobs, behavior_logprobs, mask)
  ratio = jnp.exp(jax.lax.stop_gradient(log_ratio))
  return mask & (ratio >= low) & (ratio <= high)


def geometric_rejection_mask(
  proximal_logprobs: chex.Array,
  behavior_logprobs: chex.Array,
  sequence_ids: chex.Array,
  mask: chex.Array,
  *,
  num_sequences: int | None = None,
  low: float = 0.999,
  high: float = 1.001,
) -> chex.Array:
  """Drops sequences whose mean ratio says that they are another policy's.

      keep iff low <= exp(mean_t log(π_prox / μ)) <= high

  Args:
    proximal_logprobs: [R, T] float32.
    behavior_logprobs: [R, T] float32, at sampling.
    sequence_ids: [R, T] int32, turns or sequences, -1 = in none (dropped).
    mask: [R, T] bool.
    num_sequences: static bound; None takes any ids.
    low: smallest geometric mean kept.
    high: largest geometric mean kept.

  Returns:
    [R, T] bool, a part of mask, alike for all tokens of a sequence.
  """
  mask = mask & (sequence_ids >= 0)
  log_ratio = clamped_difference(proximal_logprobs, behavior_logprobs, mask)
  log_ratio = jax.lax.stop_gradient(log_ratio)
  where = dict(num_sequences=num_sequences)
  sums = sequence_sums(log_ratio, sequence_ids, mask, **where)
  lengths = sequence_lengths(sequence_ids, mask, **where)
  mean = jnp.exp(sums / jnp.maximum(lengths, 1))
  return mask & (mean >= low) & (mean <= high)


def veto_mask(
  proximal_logprobs: chex.Array,
  behavior_logprobs: chex.Array,
  sequence_ids: chex.Array,
  mask: chex.Array,
  *,
  num_sequences: int | None = None,
  threshold: float = 1e-4,
) -> chex.Array:
  """Drops sequences with a token that the proximal policy would not sample.

      keep iff π_prox / μ >= threshold for every token of the sequence

  Args:
    proximal_logprobs: [R, T] float32.
    behavior_logprobs: [R, T] float32, at sampling.
    sequence_ids: [R, T] int32, turns or sequences, -1 = in none (dropped).
    mask: [R, T] bool.
    num_sequences: static bound; None takes any ids.
    threshold: smallest ratio that is no catastrophe.

  Returns:
    [R, T] bool, a part of mask, alike for all tokens of a sequence.
  """
  mask = mask & (sequence_ids >= 0)
  log_ratio = clamped_difference(proximal_logprobs, behavior_logprobs, mask)
  is_bad = jnp.exp(jax.lax.stop_gradient(log_ratio)) < threshold
  num_bad = sequence_sums(
    is_bad.astype(jnp.float32), sequence_ids, mask, num_sequences=num_sequences
  )
  return mask & (num_bad == 0)


def interpolated_proximal_logprobs(
  logprobs: chex.Array,
  behavior_logprobs: chex.Array,
  versions: chex.Array,
  mask: chex.Array,
  *,
  version: int | chex.Array,
) -> chex.Array:
  """Guesses the proximal policy's log-probs without another forward pass.

      log π_prox = log μ + α (log π - log μ),   α = (d - 1) / d,
      d = version - versions

  the policy one update ago, on the line between the one that sampled and the
  current one. A token of the current or previous version: log μ itself.

  Args:
    logprobs: [R, T] float32, current policy (taken as constants).
    behavior_logprobs: [R, T] float32, at sampling.
    versions: [R, T] int32, policy version at sampling.
    mask: [R, T] bool.
    version: of the policy being updated.

  Returns:
    [R, T] float32, stop-gradient, 0 where masked.

  Reference: A-3PO, Li et al. 2025, arXiv:2512.06547.
  """
  chex.assert_equal_shape([logprobs, behavior_logprobs, versions, mask])
  chex.assert_type(mask, bool)
  age = jnp.where(mask, jnp.maximum(version - versions, 1), 1)
  alpha = (age - 1) / age
  behavior = jnp.where(mask, behavior_logprobs, 0).astype(jnp.float32)
  current = jnp.where(mask, logprobs, 0).astype(jnp.float32)
  # Not behavior + alpha * difference: exact at both ends.
  mixed = (1 - alpha) * behavior + alpha * current
  return jax.lax.stop_gradient(jnp.where(mask, mixed, 0.0))


def effective_sample_share(
  log_ratio: chex.Array, mask: chex.Array
) -> chex.Array:
  """Says what share of the tokens the importance weights leave effective.

      ESS = (Σ w)² / (N Σ w²),   w = exp(log-ratio), in (0, 1]

  Args:
    log_ratio: [R, T] float32.
    mask: [R, T] bool.

  Returns:
    Scalar float32; 1 if all weights are equal, 0 for an empty mask.
  """
  safe = jnp.where(mask, log_ratio, -jnp.inf)
  largest = jnp.max(jnp.where(mask, log_ratio, -MAX_LOG_RATIO))
  weights = jnp.exp(safe - largest)
  num = jnp.maximum(jnp.sum(mask), 1)
  squares = jnp.maximum(jnp.sum(jnp.square(weights)), 1e-30)
  return jnp.square(jnp.sum(weights)) / (num * squares)


def diagnostics(
  logprobs: chex.Array,
  old_logprobs: chex.Array,
  mask: chex.Array,
  *,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
) -> dict[str, chex.Array]:
  """Measures how far two policies are apart on sampled tokens.

  Args:
    logprobs: [R, T] float32, the later policy (current, or proximal).
    old_logprobs: [R, T] float32, the earlier one (old, or behavior).
    mask: [R, T] bool.
    clip_low: lower clip of the ratio.
    clip_high: upper clip of the ratio.

  Returns:
    Scalars, float32, means over the mask (0 if it is empty):
      ratio_mean: r = exp(logprobs - old_logprobs); 1 on-policy.
      ratio_max: the largest r.
      clip_fraction: share of tokens with r outside [1 - lo, 1 + hi].
      approx_kl: k3 of KL(old || current), r - 1 - log r.
      mismatch: |logprobs - old_logprobs|, the sampler-learner gap if they are
        the same policy.
      ess: see `effective_sample_share`.
  """
  log_ratio = clamped_difference(logprobs, old_logprobs, mask)
  log_ratio = jax.lax.stop_gradient(log_ratio)
  ratio = jnp.exp(log_ratio)
  outside = (ratio < 1 - clip_low) | (ratio > 1 + clip_high)
  return {
    'ratio_mean': reductions.masked_mean(ratio, mask),
    'ratio_max': jnp.max(jnp.where(mask, ratio, 0.0)),
    'clip_fraction': reductions.masked_mean(outside, mask),
    'approx_kl': reductions.masked_mean(jnp.expm1(log_ratio) - log_ratio, mask),
    'mismatch': reductions.masked_mean(jnp.abs(log_ratio), mask),
    'ess': effective_sample_share(log_ratio, mask),
  }


def staleness_histogram(
  versions: chex.Array,
  mask: chex.Array,
  *,
  version: int | chex.Array,
  num_bins: int,
) -> chex.Array:
  """Counts tokens by age in policy versions; the last bin holds all older.

  Args:
    versions: [R, T] int32, policy version at sampling.
    mask: [R, T] bool.
    version: of the policy being updated.
    num_bins: length of the histogram.

  Returns:
    [num_bins] float32 counts.
  """
  chex.assert_equal_shape([versions, mask])
  age = jnp.clip(version - versions, 0, num_bins - 1)
  return reductions.segment_count(
    age.ravel().astype(jnp.int32), mask.ravel(), num_ids=num_bins
  )
