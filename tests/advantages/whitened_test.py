"""Locks what is compared with the whole batch: REINFORCE++ and ReBN."""

import advantage_oracles as oracles
import chex
import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax import advantages

CLOSE = dict(rtol=1e-4, atol=1e-5)


def whiten(values, mask):
  chosen = values[mask].astype(np.float64)
  out = np.zeros(mask.shape)
  if chosen.size > 1:
    std = chosen.std(ddof=1)
    if std > oracles.FLOOR * np.abs(chosen).max():
      out[mask] = (chosen - chosen.mean()) / np.sqrt(std**2 + 1e-8)
  return out


class WhitenedTest(chex.TestCase):
  def test_reinforce_pp_crosses_the_observation(self):
    # Return-to-go with gamma 1: 6, -, 4, 3; the 50 on the observation is not
    # counted. Mean 13/3; deviations 5/3, -1/3, -4/3; sample var 7/3.
    rewards = jnp.array([[2.0, 50.0, 1.0, 3.0]])
    mask = jnp.array([[True, False, True, True]])
    out = advantages.reinforce_pp(rewards, mask, gamma=1.0)
    want = np.array([[5 / 3, 0, -1 / 3, -4 / 3]]) / np.sqrt(7 / 3)
    np.testing.assert_allclose(out, want, rtol=1e-5)

  def test_reinforce_pp_baseline_by_hand(self):
    # Two of one task, returns 1 and 0: +-.5, over 1 and 3 tokens. Mean over
    # the 4 tokens -.25; deviations .75, -.25 x 3; sample var .75/3 = .25.
    mask = jnp.array([[True, False, False], [True, True, True]])
    ids = jnp.zeros(2, jnp.int32)
    f = jax.jit(advantages.reinforce_pp_baseline)
    out = f(jnp.array([1.0, 0.0]), ids, mask)
    want = [[1.5, 0, 0], [-0.5, -0.5, -0.5]]
    np.testing.assert_allclose(out, want, rtol=1e-6)

  def test_rebn_is_whitened_over_all_turns(self):
    # gamma .5: [[.5, 1], [0, -]]: mean .5, deviations 0, .5, -.5, var .25.
    rewards = jnp.array([[0.0, 1.0], [0.0, 9.0]])
    mask = jnp.array([[True, True], [True, False]])
    out = advantages.rebn(rewards, mask, gamma=0.5)
    np.testing.assert_allclose(out, [[0, 1], [-1, 0]], rtol=1e-5, atol=1e-6)
    assert not np.any(advantages.rebn(jnp.zeros((2, 2)), mask))


def test_a_million_tokens_lose_no_digits():
  """One sum after the other is off by half a percent here."""
  values = np.where(
    np.random.default_rng(0).random((64, 2**14)) < 0.5, 0.1, 0.8
  )
  values = values.astype(np.float32)
  mask = np.ones(values.shape, bool)
  got = jax.jit(advantages.whiten)(values, mask)
  np.testing.assert_allclose(got, whiten(values, mask), rtol=1e-5)


def test_whitened_over_random_cases():
  f = jax.jit(
    lambda r, i, m: (
      advantages.reinforce_pp(r, m, gamma=0.9),
      advantages.rebn(r, m, gamma=0.5),
      advantages.reinforce_pp_baseline(advantages.episode_returns(r, m), i, m),
    )
  )
  for seed in range(200):
    t = oracles.random_turns(seed)
    rewards, mask, ids = t['turn_rewards'], t['turn_mask'], t['group_ids']
    centred = oracles.center(oracles.outcomes(t), oracles.trajectory_keys(t))
    rows = np.broadcast_to(centred[:, None], mask.shape)
    want = (
      whiten(oracles.discounted(rewards, mask, 0.9), mask),
      whiten(oracles.discounted(rewards, mask, 0.5), mask),
      whiten(rows, mask & (ids >= 0)[:, None]),
    )
    got = f(rewards, ids, mask)
    np.testing.assert_allclose(got, want, err_msg=f'{seed=}', **CLOSE)
