"""What does each turn or token earn, before any comparison with others?"""

import chex
import jax
import jax.numpy as jnp


def discounted_returns(
  turn_rewards: chex.Array, turn_mask: chex.Array, *, gamma: float
) -> chex.Array:
  """Sums discounted rewards from each turn to the end of its trajectory.

      R_t = r_t + γ R_{t+1},   R = 0 past the end

  Masked turns are skipped: they neither earn, nor discount, nor reset.
  `gamma=1` at the first turn is the episode return.

  Args:
    turn_rewards: [B, S] float32, in time order.
    turn_mask: [B, S] bool, True for a real turn.
    gamma: discount per turn, in [0, 1].

  Returns:
    [B, S] float32, 0 where masked.
  """
  chex.assert_rank([turn_rewards, turn_mask], 2)
  chex.assert_equal_shape([turn_rewards, turn_mask])
  chex.assert_type(turn_mask, bool)
  rewards = jnp.where(turn_mask, turn_rewards, 0).astype(jnp.float32)

  def step(later, now):
    reward, counts = now
    later = jnp.where(counts, reward + gamma * later, later)
    return later, jnp.where(counts, later, 0.0)

  start = jnp.zeros(rewards.shape[0], jnp.float32)
  _, returns = jax.lax.scan(step, start, (rewards.T, turn_mask.T), reverse=True)
  return returns.T


def episode_returns(
  turn_rewards: chex.Array, turn_mask: chex.Array
) -> chex.Array:
  """Sums the undiscounted rewards of each trajectory: [B, S] -> [B]."""
  chex.assert_equal_shape([turn_rewards, turn_mask])
  rewards = jnp.where(turn_mask, turn_rewards, 0).astype(jnp.float32)
  return jnp.sum(rewards, axis=-1)


def gae(
  rewards: chex.Array,
  values: chex.Array,
  mask: chex.Array,
  *,
  gamma: float,
  lam: float,
  bootstrap_values: chex.Array | None = None,
) -> tuple[chex.Array, chex.Array]:
  """Estimates advantages by exponentially weighted temporal differences.

      δ_t = r_t + γ V_{t+1} - V_t,   A_t = δ_t + γ λ A_{t+1}

  where t+1 is the *next position under the mask*: observation tokens are
  skipped, so a tool reply neither resets nor discounts. `lam=1` without
  bootstrap is `discounted_returns - values`; `lam=0` is one-step.

  Args:
    rewards: [B, S] float32, turns or tokens in trajectory order.
    values: [B, S] float32, V of the state before each position.
    mask: [B, S] bool.
    gamma: discount, in [0, 1].
    lam: weight of longer estimates, in [0, 1].
    bootstrap_values: [B] float32, V after the last position, for episodes cut
      by a limit rather than ended; None = 0.

  Returns:
    (advantages, returns), both [B, S] float32 and 0 where masked;
    returns = advantages + values, the regression target.

  Reference: Schulman et al. 2016, arXiv:1506.02438, Eq. 16. No whitening here
  (public codes whiten inside; compose with `whiten` where that is wanted).
  """
  chex.assert_rank([rewards, values, mask], 2)
  chex.assert_equal_shape([rewards, values, mask])
  chex.assert_type(mask, bool)
  rewards = jnp.where(mask, rewards, 0).astype(jnp.float32)
  values = jnp.where(mask, values, 0).astype(jnp.float32)
  if bootstrap_values is None:
    bootstrap_values = jnp.zeros(rewards.shape[0])

  def step(carry, now):
    next_value, next_advantage = carry
    reward, value, counts = now
    delta = reward + gamma * next_value - value
    advantage = delta + gamma * lam * next_advantage
    carry = (
      jnp.where(counts, value, next_value),
      jnp.where(counts, advantage, next_advantage),
    )
    return carry, jnp.where(counts, advantage, 0.0)

  last = bootstrap_values.astype(jnp.float32)
  _, advantages = jax.lax.scan(
    step,
    (last, jnp.zeros_like(last)),
    (rewards.T, values.T, mask.T),
    reverse=True,
  )
  advantages = advantages.T
  return advantages, jnp.where(mask, advantages + values, 0.0)


def vineppo(
  turn_rewards: chex.Array,
  continuation_returns: chex.Array,
  turn_mask: chex.Array,
  *,
  gamma: float = 1.0,
) -> chex.Array:
  """Takes differences of Monte-Carlo values between states that have one.

      A_t = r_t + γ V_{t+1} - V_t,   V_t = mean of K continuations from s_t

  `gae` with lam=0 and values measured by sampling, not learned. Where only some
  states were valued, the turns from one to the next share the difference over
  all of them (segments, as in SPO, Guo et al. 2025, arXiv:2505.23564):

      A_t = Σ_{i=k}^{n-1} γ^{i-k} r_i + γ^{n-k} V_n - V_k,   k <= t < n

  With the first state alone valued it is the episode's discounted return less
  a measured baseline, the same for all its turns.

  Args:
    turn_rewards: [B, S] float32.
    continuation_returns: [B, S, K] float32, returns of K continuations from a
      snapshot of the state before each turn; NaN = continuation not taken.
    turn_mask: [B, S] bool.
    gamma: discount per turn, the one of the continuations.

  Returns:
    [B, S] float32, 0 where masked and before the first state with a value.

  Reference: Kazemnejad et al. 2024, arXiv:2410.01679, Eq. 6.
  """
  chex.assert_rank([turn_rewards, continuation_returns], [2, 3])
  taken = ~jnp.isnan(continuation_returns) & turn_mask[..., None]
  total = jnp.sum(jnp.where(taken, continuation_returns, 0), axis=-1)
  count = jnp.sum(taken, axis=-1)
  known = count > 0
  values = jnp.where(known, total / jnp.maximum(count, 1), 0)
  rewards = jnp.where(turn_mask, turn_rewards, 0).astype(jnp.float32)

  def earn(ahead, now):
    reward, value, is_known, counts = now
    earned = jnp.where(counts, reward + gamma * ahead, ahead)
    return jnp.where(is_known, value, earned), earned - value

  def share(current, now):
    difference, is_known = now
    current = jnp.where(is_known, difference, current)
    return current, current

  start = jnp.zeros(rewards.shape[0], jnp.float32)
  _, differences = jax.lax.scan(
    earn, start, (rewards.T, values.T, known.T, turn_mask.T), reverse=True
  )
  _, advantages = jax.lax.scan(share, start, (differences, known.T))
  return jnp.where(turn_mask, advantages.T, 0.0)
