"""How are several off-policy corrections combined into one?

`CORRECTIONS[name](proximal_logprobs, behavior_logprobs, ids, mask, **options)`
is a weight [R, T] float32 or a mask [R, T] bool; `ids` holds [R, T] int32 under
'turn' and 'sequence'. The functions themselves are in `correction.py`.
"""

import functools
from collections.abc import Mapping, Sequence

import chex
import jax
import jax.numpy as jnp

from agentrl_jax import tables
from agentrl_jax.losses import correction


def tis(proximal, behavior, ids, mask, *, level: str = 'token', **options):
  """`correction.truncated_importance_weights`; options: cap, level."""
  return correction.truncated_importance_weights(
    proximal,
    behavior,
    mask,
    level=level,
    sequence_ids=ids.get(level),
    **options,
  )


def icepop(proximal, behavior, ids, mask, **options):
  """`correction.icepop_mask`; options: low, high."""
  del ids
  return correction.icepop_mask(proximal, behavior, mask, **options)


def _by_sequence(
  function, proximal, behavior, ids, mask, *, level='sequence', **options
):
  if level not in ids:
    raise ValueError(f'{level=}; allowed: {", ".join(ids)}')
  return function(proximal, behavior, ids[level], mask, **options)


CORRECTIONS = {
  'tis': tis,
  'icepop': icepop,
  # Options: level ('turn' | 'sequence'), low, high.
  'geometric': functools.partial(
    _by_sequence, correction.geometric_rejection_mask
  ),
  # Options: level ('turn' | 'sequence'), threshold.
  'veto': functools.partial(_by_sequence, correction.veto_mask),
}


def correct(
  parts: Sequence[tuple[str, Mapping]],
  proximal_logprobs: chex.Array,
  behavior_logprobs: chex.Array,
  ids: Mapping[str, chex.Array],
  mask: chex.Array,
) -> tuple[chex.Array, chex.Array]:
  """Multiplies the weights and intersects the masks of some corrections.

      w = Π w_i,   m = mask ∧ m_1 ∧ m_2 ...

  A dropped token keeps its place in every denominator: the weights of a batch
  were given before.

  Args:
    parts: (name in CORRECTIONS or dotted, options); none: w = 1, m = mask.
    proximal_logprobs: [R, T] float32, policy that the ratio is taken to.
    behavior_logprobs: [R, T] float32, at sampling.
    ids: 'turn' and 'sequence' -> [R, T] int32, -1 = in none.
    mask: [R, T] bool.

  Returns:
    (weights [R, T] float32, mask [R, T] bool), both stop-gradient. If the two
    policies are the same, (1 under the mask, mask).

  Raises:
    ValueError: unknown name or level.
  """
  chex.assert_equal_shape([proximal_logprobs, behavior_logprobs, mask])
  weights, kept = mask.astype(jnp.float32), mask
  for name, options in parts:
    function = tables.resolve(CORRECTIONS, name)
    out = function(proximal_logprobs, behavior_logprobs, ids, mask, **options)
    if out.dtype == bool:
      kept &= out
    else:
      weights *= out
  return jax.lax.stop_gradient(jnp.where(kept, weights, 0.0)), kept
