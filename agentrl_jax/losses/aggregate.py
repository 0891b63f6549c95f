"""How much does each token count? Decided once, over the global batch."""

import chex
import jax.numpy as jnp

from agentrl_jax import reductions

# Kind -> the ids it needs.
WEIGHTINGS = {
  'token': None,
  'sequence_token_mean': 'sequence_ids',
  'sequence_token_sum': 'sequence_ids',
  'trajectory': 'trajectory_ids',
  'constant': None,
}


def token_weights(
  mask: chex.Array,
  *,
  weighting: str,
  sequence_ids: chex.Array | None = None,
  trajectory_ids: chex.Array | None = None,
  num_sequences: int | None = None,
  num_trajectories: int | None = None,
  constant: float | None = None,
) -> chex.Array:
  """Gives every token its weight over the whole batch.

      'token'                1 / N                 N tokens in the batch
      'sequence_token_mean'  1 / (n · len_i)       n sequences
      'sequence_token_sum'   1 / n
      'trajectory'           1 / (n_traj · len_traj)
      'constant'             1 / constant

  Because a loss is Σ w·x, microbatches, shards, hosts, padding and packing
  change nothing. With one sequence per trajectory, 'trajectory' is
  'sequence_token_mean'.

  Args:
    mask: [R, T] bool, True for a trained token of the *global* batch.
    weighting: one of WEIGHTINGS.
    sequence_ids: [R, T] int32, a packed segment (never a physical row), unique
      over the batch, -1 = in none.
    trajectory_ids: [R, T] int32, -1 = in none.
    num_sequences: static bound; None takes any ids.
    num_trajectories: static bound; None takes any ids.
    constant: divisor of 'constant', e.g. trajectories times the token budget
      of one (Dr. GRPO).

  Returns:
    [R, T] float32, 0 where masked or in no sequence. Sequences without a
    trained token count for nothing. An id beyond a given bound yields NaN.

  Raises:
    ValueError: unknown weighting, or missing ids or constant.

  Reference: Dr. GRPO: Liu et al. 2025, arXiv:2503.20783; DAPO: Yu et al. 2025,
  arXiv:2503.14476, Eq. 12.
  """
  chex.assert_rank(mask, 2)
  chex.assert_type(mask, bool)
  if weighting not in WEIGHTINGS:
    known = ', '.join(WEIGHTINGS)
    raise ValueError(f'weighting={weighting!r}; allowed: {known}')
  if weighting == 'token':
    return jnp.where(mask, 1 / jnp.maximum(jnp.sum(mask), 1), 0.0)
  if weighting == 'constant':
    if constant is None:
      raise ValueError("weighting='constant' needs constant=<divisor>")
    return jnp.where(mask, 1 / constant, 0.0).astype(jnp.float32)
  ids, bound = sequence_ids, num_sequences
  if weighting == 'trajectory':
    ids, bound = trajectory_ids, num_trajectories
  if ids is None:
    raise ValueError(f'{weighting=} needs {WEIGHTINGS[weighting]}')
  chex.assert_equal_shape([mask, ids])
  lengths = sequence_lengths(ids, mask, num_sequences=bound)
  num = _num_sequences(lengths)
  divisor = num if weighting == 'sequence_token_sum' else num * lengths
  weights = jnp.where(lengths > 0, 1 / jnp.maximum(divisor, 1), 0.0)
  return reductions.poison(weights, ids, mask, bound)


def sequence_lengths(
  sequence_ids: chex.Array,
  mask: chex.Array,
  *,
  num_sequences: int | None = None,
) -> chex.Array:
  """Gives every token the trained length of its sequence, 0 where masked."""
  return sequence_sums(
    jnp.ones(mask.shape), sequence_ids, mask, num_sequences=num_sequences
  )


def sequence_sums(
  token_values: chex.Array,
  sequence_ids: chex.Array,
  mask: chex.Array,
  *,
  num_sequences: int | None = None,
) -> chex.Array:
  """Gives every token the sum of values over its sequence.

  Args:
    token_values: [R, T] float.
    sequence_ids: [R, T] int32, -1 = in none.
    mask: [R, T] bool.
    num_sequences: static bound; None takes any ids.

  Returns:
    [R, T] float32, 0 where masked or in no sequence. An id beyond a given
    bound yields NaN.
  """
  chex.assert_equal_shape([token_values, sequence_ids, mask])
  ids, flat, size = sequence_ids.ravel(), mask.ravel(), num_sequences
  if size is None:
    size = ids.shape[0]
    ids = reductions.dense_ids(ids, mask=flat)
  sums = reductions.segment_sum(token_values.ravel(), ids, flat, num_ids=size)
  sums = reductions.gather(sums, ids, flat)
  return reductions.poison(sums, ids, flat, num_sequences).reshape(mask.shape)


def _num_sequences(lengths: chex.Array) -> chex.Array:
  """Counts sequences from the length that each of their tokens carries."""
  share = jnp.where(lengths > 0, 1 / jnp.maximum(lengths, 1), 0.0)
  return jnp.round(jnp.sum(share))


def aggregate(token_values: chex.Array, weights: chex.Array) -> chex.Array:
  """Sums weighted token values; microbatches, shards and hosts just add.

      L = Σ_rt w_rt · x_rt,   0 · NaN = 0

  Args:
    token_values: [R, T] float.
    weights: [R, T] float32, from `token_weights`.

  Returns:
    Scalar float32.
  """
  chex.assert_equal_shape([token_values, weights])
  counts = weights != 0
  values = jnp.where(counts, token_values, 0).astype(jnp.float32)
  return jnp.sum(values * weights)
