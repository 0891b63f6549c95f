"""Locks ECPO: credit to actions, shrunk and gated by the evidence."""

import advantage_oracles as oracles
import chex
import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax import advantages
from agentrl_jax.batch import TurnBatch

CLOSE = dict(rtol=1e-4, atol=2e-5)


class CalibratedTest(chex.TestCase):
  def test_action_advantages_by_hand(self):
    # One state. Action 0: returns 1, 0; action 1: 0. Mean 1/3; action means
    # 1/2 and 0. Between: 2*(1/6)^2 + (1/3)^2 = 1/6; within: 1/2: gate 1/4.
    # kappa 1: shrink 2/3 and 1/2. 1/4*2/3*1/6 = 1/36; -1/4*1/2*1/3 = -1/24.
    out = advantages.action_advantages(
      jnp.array([[1.0], [0.0], [0.0]]),
      jnp.zeros(3, jnp.int32),
      jnp.zeros((3, 1), jnp.int32),
      jnp.array([[0], [0], [1]]),
      jnp.ones((3, 1), bool),
      scale='none',
    )
    np.testing.assert_allclose(out[:, 0], [1 / 36, 1 / 36, -1 / 24], rtol=1e-5)

  def test_oracle_over_random_cases(self):
    f = jax.jit(
      lambda t: advantages.ESTIMATORS['ecpo'](
        TurnBatch(**t), gamma=0.9, shrinkage=0.5
      )
    )
    for seed in range(200):
      t = oracles.random_turns(seed)
      q = oracles.turn_returns(t, 0.9).ravel()
      want = oracles.actions(t, q, 0.5, 'std') + oracles.episode_part(t, 'std')
      np.testing.assert_allclose(f(t), want, err_msg=f'{seed=}', **CLOSE)

  def test_one_action_a_turn_and_no_shrinkage_compare_turns(self):
    # Every turn did something else: no variance within an action, gate 1.
    for seed in range(4):
      t = oracles.random_turns(seed)
      q = advantages.discounted_returns(
        t['turn_rewards'], t['turn_mask'], gamma=0.9
      )
      own = np.arange(oracles.B * oracles.S, dtype=np.int32)
      args = (q, t['group_ids'], t['anchor_ids'])
      got = advantages.action_advantages(
        *args, own.reshape(t['turn_mask'].shape), t['turn_mask'], shrinkage=0.0
      )
      want = advantages.anchor_advantages(*args, t['turn_mask'])
      np.testing.assert_allclose(got, want, **CLOSE)

  def test_an_action_without_a_name_earns_nothing(self):
    # Nor is it a peer: the other two are alone with mean 1 and 0.
    out = advantages.action_advantages(
      jnp.array([[1.0], [0.0], [5.0]]),
      jnp.zeros(3, jnp.int32),
      jnp.zeros((3, 1), jnp.int32),
      jnp.array([[0], [1], [-1]]),
      jnp.ones((3, 1), bool),
      scale='none',
      shrinkage=0.0,
    )
    np.testing.assert_allclose(out[:, 0], [0.5, -0.5, 0], atol=1e-6)
