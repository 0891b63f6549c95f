"""How does a return compare with the whole batch, across tasks?"""

import chex
import jax.numpy as jnp

from agentrl_jax import reductions
from agentrl_jax.advantages import grouped, returns


def whiten(
  values: chex.Array,
  mask: chex.Array,
  *,
  ddof: int = 1,
  epsilon: float = 1e-8,
  relative_floor: float = 1e-5,
) -> chex.Array:
  """Centres and scales values over the mask, whatever their shape.

      (v - mean) / √(var + ε),   exactly 0 if std <= relative_floor · max|v|

  Args:
    values: [...] float.
    mask: [...] bool.
    ddof: 0 population, 1 sample variance.
    epsilon: ε, added to the variance.
    relative_floor: see `grouped.group_statistics`.

  Returns:
    [...] float32, 0 where masked.
  """
  chex.assert_equal_shape([values, mask])
  chex.assert_type(mask, bool)
  values = jnp.where(mask, values, 0).astype(jnp.float32)
  # Whole sums, not those of one segment, which add a million tokens one after
  # the other and lose half a percent. Differences to the minimum lose less.
  count = jnp.sum(mask)
  lowest = jnp.min(jnp.where(mask, values, jnp.inf))
  offsets = jnp.where(mask, values - lowest, 0)
  mean = jnp.sum(offsets) / jnp.maximum(count, 1)
  centred = jnp.where(mask, offsets - mean, 0)
  variance = jnp.sum(jnp.square(centred)) / jnp.maximum(count - ddof, 1)
  largest = jnp.max(jnp.abs(values))
  varies = (count > 1) & (jnp.sqrt(variance) > relative_floor * largest)
  return jnp.where(varies, centred / jnp.sqrt(variance + epsilon), 0)


def rebn(
  turn_rewards: chex.Array, turn_mask: chex.Array, *, gamma: float = 0.95
) -> chex.Array:
  """Whitens discounted turn returns over all turns of the batch.

      A_bt = (R_t - mean R) / √(var R + ε)

  Args:
    turn_rewards: [B, S] float32.
    turn_mask: [B, S] bool.
    gamma: discount per turn.

  Returns:
    [B, S] float32, 0 where masked.

  Reference: return batch normalisation, GEM: Liu et al. 2025,
  arXiv:2510.01051.
  """
  turn_returns = returns.discounted_returns(
    turn_rewards, turn_mask, gamma=gamma
  )
  return whiten(turn_returns, turn_mask)


def reinforce_pp(
  token_rewards: chex.Array, mask: chex.Array, *, gamma: float
) -> chex.Array:
  """Whitens each token's return-to-go over all tokens of the batch.

      A_bt = (G_t - mean G) / √(var G + ε),   G_t = r_t + γ G_{t+1}

  Observation tokens are skipped: G neither resets nor discounts there, and a
  reward (or KL) placed on one is not counted.

  Args:
    token_rewards: [B, T] float32, in trajectory order.
    mask: [B, T] bool, True where the token was sampled.
    gamma: discount per token.

  Returns:
    [B, T] float32, 0 where masked.

  Reference: Hu et al. 2025, arXiv:2501.03262. Public codes reset G where the
  mask is 0, so that turns before a tool reply earn nothing.
  """
  to_go = returns.discounted_returns(token_rewards, mask, gamma=gamma)
  return whiten(to_go, mask)


def reinforce_pp_baseline(
  episode_returns: chex.Array,
  group_ids: chex.Array,
  mask: chex.Array,
  *,
  num_groups: int | None = None,
  singleton: str = 'zero',
) -> chex.Array:
  """Whitens over the batch's tokens what is left after the task's mean.

      A_bt = (a_b - mean a) / √(var a + ε),   a_b = R_b - mean_g R

  with mean and var over tokens: a long trajectory weighs more.

  Args:
    episode_returns: [B] float32.
    group_ids: [B] int32, -1 = in no group.
    mask: [B, T] bool, True where the token was sampled.
    num_groups: static bound; None takes any ids.
    singleton: a group of one has a = 0 ('zero') or R ('raw', public codes).

  Returns:
    [B, T] float32, 0 where masked or in no group.

  Reference: Hu et al. 2025, arXiv:2501.03262.
  """
  chex.assert_rank([episode_returns, group_ids, mask], [1, 1, 2])
  counts = mask & (group_ids >= 0)[:, None]
  centred = grouped.group_center(
    episode_returns,
    group_ids,
    jnp.any(counts, axis=-1),
    num_ids=num_groups,
    singleton=singleton,
  )
  whitened = whiten(jnp.broadcast_to(centred[:, None], mask.shape), counts)
  return reductions.poison(whitened, group_ids[:, None], counts, num_groups)
