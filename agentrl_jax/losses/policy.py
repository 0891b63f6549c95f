"""Which loss turns advantages into a gradient, token by token?

All return [R, T], to be minimised; `aggregate` with `token_weights` makes the
scalar. Advantages are taken as constants.
"""

import functools
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from agentrl_jax.losses.aggregate import sequence_lengths, sequence_sums
from agentrl_jax.losses.clamp import clamped_difference


def _constants(advantages: chex.Array, mask: chex.Array) -> chex.Array:
  chex.assert_equal_shape([advantages, mask])
  safe = jnp.where(mask, advantages, 0).astype(jnp.float32)
  return jax.lax.stop_gradient(safe)


def _clipped(
  ratio: chex.Array, advantages: chex.Array, low: float, high: float
) -> chex.Array:
  """max(-A r, -A clip(r, 1 - low, 1 + high))."""
  bounded = jnp.clip(ratio, 1 - low, 1 + high)
  return jnp.maximum(-advantages * ratio, -advantages * bounded)


def ppo_clip_loss(
  logprobs: chex.Array,
  old_logprobs: chex.Array,
  advantages: chex.Array,
  mask: chex.Array,
  *,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  dual_clip: float | None = None,
) -> chex.Array:
  """Bounds the gain from moving away from the sampling policy.

      L = max(-A r, -A clip(r, 1 - lo, 1 + hi)),   r = exp(log π - log π_old)
      L = min(L, -c A) for A < 0                   with dual_clip = c

  On-policy (r = 1) its gradient is that of REINFORCE. clip_high > clip_low is
  DAPO's clip-higher (0.28).

  Args:
    logprobs: [R, T] float32, current policy.
    old_logprobs: [R, T] float32, policy that the ratio is taken to.
    advantages: [R, T] float32.
    mask: [R, T] bool.
    clip_low: lo.
    clip_high: hi.
    dual_clip: c > 1, usually 3; None = off.

  Returns:
    [R, T] float32, 0 where masked.

  Reference: Schulman et al. 2017, arXiv:1707.06347, Eq. 7; dual clip: Ye et
  al. 2020, arXiv:1912.09729, Eq. 5; clip-higher: Yu et al. 2025,
  arXiv:2503.14476. Log-ratios are clamped to ±20.
  """
  advantages = _constants(advantages, mask)
  ratio = jnp.exp(clamped_difference(logprobs, old_logprobs, mask))
  loss = _clipped(ratio, advantages, clip_low, clip_high)
  if dual_clip is not None:
    bounded = jnp.minimum(loss, -dual_clip * advantages)
    loss = jnp.where(advantages < 0, bounded, loss)
  return jnp.where(mask, loss, 0.0)


def _sequence_mean(
  token_values: chex.Array,
  sequence_ids: chex.Array,
  mask: chex.Array,
  num_sequences: int | None,
) -> chex.Array:
  """Gives every token the mean over its sequence, 0 where in none."""
  where = dict(num_sequences=num_sequences)
  sums = sequence_sums(token_values, sequence_ids, mask, **where)
  lengths = sequence_lengths(sequence_ids, mask, **where)
  return sums / jnp.maximum(lengths, 1)


def gspo_loss(
  logprobs: chex.Array,
  old_logprobs: chex.Array,
  advantages: chex.Array,
  sequence_ids: chex.Array,
  mask: chex.Array,
  *,
  num_sequences: int | None = None,
  clip_low: float = 3e-4,
  clip_high: float = 4e-4,
) -> chex.Array:
  """Clips one ratio per sequence, the geometric mean of its tokens' ratios.

      s_i = exp(mean_t (log π - log π_old)),
      L_t = max(-A_t s, -A_t clip(s, 1 - lo, 1 + hi)),
      s = sg[s_i] · π_t / sg[π_t]

  In value every token of a sequence carries s_i; the gradient runs through the
  token's own log-prob (GSPO-token). With one advantage per sequence and the
  weights 'sequence_token_mean' it is GSPO. Sequences of one token: PPO.

  Args:
    logprobs: [R, T] float32, current policy.
    old_logprobs: [R, T] float32.
    advantages: [R, T] float32.
    sequence_ids: [R, T] int32, turn or trajectory of the token, -1 = in none
      (then 0).
    mask: [R, T] bool.
    num_sequences: static bound; None takes any ids.
    clip_low: lo.
    clip_high: hi.

  Returns:
    [R, T] float32, 0 where masked.

  Reference: Zheng et al. 2025, arXiv:2507.18071, Eq. 5, 7, 13-14.
  """
  counts = mask & (sequence_ids >= 0)
  advantages = _constants(advantages, counts)
  log_ratio = clamped_difference(logprobs, old_logprobs, counts)
  mean = _sequence_mean(log_ratio, sequence_ids, counts, num_sequences)
  safe = jnp.where(counts, logprobs, 0).astype(jnp.float32)
  own = safe - jax.lax.stop_gradient(safe)
  ratio = jnp.exp(jax.lax.stop_gradient(mean) + own)
  loss = _clipped(ratio, advantages, clip_low, clip_high)
  return jnp.where(counts, loss, 0.0)


def gmpo_loss(
  logprobs: chex.Array,
  old_logprobs: chex.Array,
  advantages: chex.Array,
  sequence_ids: chex.Array,
  mask: chex.Array,
  *,
  num_sequences: int | None = None,
  clip_low: float = 0.4,
  clip_high: float = 0.4,
) -> chex.Array:
  """Takes the geometric mean of ratios that were clipped token by token.

      L_t = -A_t exp(mean_t c_t),   c_t = log-ratio d, at most hi for A > 0,
      at least -lo for A < 0 (in log space)

  Args:
    logprobs: [R, T] float32, current policy.
    old_logprobs: [R, T] float32.
    advantages: [R, T] float32.
    sequence_ids: [R, T] int32, -1 = in none (then 0).
    mask: [R, T] bool.
    num_sequences: static bound; None takes any ids.
    clip_low: lo, of the log-ratio.
    clip_high: hi, of the log-ratio.

  Returns:
    [R, T] float32, 0 where masked; meant for 'sequence_token_mean'.

  Reference: Zhao et al. 2025, arXiv:2507.20673, Eq. 3.
  """
  counts = mask & (sequence_ids >= 0)
  advantages = _constants(advantages, counts)
  log_ratio = clamped_difference(logprobs, old_logprobs, counts)
  sign = jnp.sign(advantages)
  bounded = jnp.clip(log_ratio, -clip_low, clip_high)
  pessimistic = sign * jnp.minimum(sign * log_ratio, sign * bounded)
  mean = _sequence_mean(pessimistic, sequence_ids, counts, num_sequences)
  return jnp.where(counts, -advantages * jnp.exp(mean), 0.0)


def cispo_loss(
  logprobs: chex.Array,
  old_logprobs: chex.Array,
  advantages: chex.Array,
  mask: chex.Array,
  *,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
) -> chex.Array:
  """Clips the weight, not the gradient: every token keeps learning.

      L = -sg[clip(r, 1 - lo, 1 + hi)] A log π

  Args:
    logprobs: [R, T] float32, current policy.
    old_logprobs: [R, T] float32.
    advantages: [R, T] float32.
    mask: [R, T] bool.
    clip_low: lo; 1 = no lower bound.
    clip_high: hi.

  Returns:
    [R, T] float32, 0 where masked.

  Reference: MiniMax 2025, arXiv:2506.13585, Eq. 4-5.
  """
  ratio = jnp.exp(clamped_difference(logprobs, old_logprobs, mask))
  weight = jnp.clip(ratio, 1 - clip_low, 1 + clip_high)
  return _weighted_likelihood(logprobs, weight, advantages, mask)


def reinforce_loss(
  logprobs: chex.Array,
  old_logprobs: chex.Array,
  advantages: chex.Array,
  mask: chex.Array,
  *,
  max_weight: float | None = None,
) -> chex.Array:
  """Follows the likelihood of what was sampled, times its advantage.

      L = -A log π                        max_weight=None
      L = -sg[min(r, C)] A log π          max_weight=C

  Args:
    logprobs: [R, T] float32, current policy.
    old_logprobs: [R, T] float32, of the policy that sampled; unused without
      max_weight.
    advantages: [R, T] float32.
    mask: [R, T] bool.
    max_weight: C, truncation of the importance weight; None = weight 1.

  Returns:
    [R, T] float32, 0 where masked.

  Reference: Williams 1992, doi:10.1007/BF00992696.
  """
  if max_weight is None:
    weight = jnp.ones(mask.shape, jnp.float32)
  else:
    ratio = jnp.exp(clamped_difference(logprobs, old_logprobs, mask))
    weight = jnp.minimum(ratio, max_weight)
  return _weighted_likelihood(logprobs, weight, advantages, mask)


def _weighted_likelihood(
  logprobs: chex.Array,
  weight: chex.Array,
  advantages: chex.Array,
  mask: chex.Array,
) -> chex.Array:
  """-sg[weight] A log π, 0 where masked."""
  chex.assert_equal_shape([logprobs, weight, advantages, mask])
  chex.assert_type(mask, bool)
  safe = jnp.where(mask, logprobs, 0).astype(jnp.float32)
  factor = jax.lax.stop_gradient(weight) * _constants(advantages, mask)
  return jnp.where(mask, -factor * safe, 0.0)


def sapo_loss(
  logprobs: chex.Array,
  old_logprobs: chex.Array,
  advantages: chex.Array,
  mask: chex.Array,
  *,
  tau_positive: float = 1.0,
  tau_negative: float = 1.05,
) -> chex.Array:
  """Fades tokens out smoothly as their ratio leaves 1, instead of clipping.

      L = -A (4/τ) σ(τ (r - 1)),   τ = τ_pos for A > 0, else τ_neg

  At r = 1 its gradient is that of REINFORCE.

  Args:
    logprobs: [R, T] float32, current policy.
    old_logprobs: [R, T] float32.
    advantages: [R, T] float32.
    mask: [R, T] bool.
    tau_positive: τ_pos.
    tau_negative: τ_neg.

  Returns:
    [R, T] float32, 0 where masked.

  Reference: Gao et al. 2025, arXiv:2511.20347, Eq. 5-6.
  """
  advantages = _constants(advantages, mask)
  ratio = jnp.exp(clamped_difference(logprobs, old_logprobs, mask))
  tau = jnp.where(advantages > 0, tau_positive, tau_negative)
  gate = jax.nn.sigmoid(tau * (ratio - 1)) * 4 / tau
  return jnp.where(mask, -advantages * gate, 0.0)


def per_token(loss: Callable[..., chex.Array]) -> Callable[..., chex.Array]:
  """Gives a loss without sequences the signature of those with: for tables."""

  @functools.wraps(loss)
  def with_sequences(
    logprobs, old_logprobs, advantages, sequence_ids, mask, **options
  ):
    del sequence_ids
    return loss(logprobs, old_logprobs, advantages, mask, **options)

  return with_sequences
