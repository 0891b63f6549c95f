"""Locks GraphGPO: distances to the goal, and credit by them."""

import advantage_oracles as oracles
import chex
import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax import advantages
from agentrl_jax.batch import TurnBatch

CLOSE = dict(rtol=1e-4, atol=2e-5)


class GraphTest(chex.TestCase):
  def test_distances_by_hand(self):
    # Trajectory 0 succeeds over states 0 > 1 > 2 > goal: 2, 1, 0 left after
    # its turns. Trajectory 1 goes 3 > 0 and stops: from 0 it is 3 to the goal,
    # so 3 after its first turn; after its last turn nobody knows: the furthest
    # known state is 3, at 4, hence 5.
    f = jax.jit(advantages.goal_distances)
    mask = jnp.array([[True, True, True], [True, True, False]])
    out = f(
      jnp.array([True, False]),
      jnp.zeros(2, jnp.int32),
      jnp.array([[0, 1, 2], [3, 0, 0]]),
      mask,
    )
    np.testing.assert_array_equal(out, [[2, 1, 0], [3, 5, 0]])

  def test_distances_oracle_over_random_cases(self):
    f = jax.jit(advantages.goal_distances)
    for seed in range(200):
      t = oracles.random_turns(seed)
      success = np.random.default_rng(seed).random(oracles.B) < 0.4
      args = (success, t['group_ids'], t['anchor_ids'], t['turn_mask'])
      want = oracles.distances(t, success)
      grouped = t['turn_mask'] & (t['group_ids'] >= 0)[:, None]
      got = np.where(grouped, f(*args), 0)
      want = np.where(grouped, want, 0)
      np.testing.assert_array_equal(got, want, err_msg=f'{seed=}')

  def test_graphgpo_rewards_progress_of_a_failure(self):
    # Both leave state 0 for state 1; there one turn reaches the goal (Q = 10)
    # and one does not (10 * .1^2 = .1, unreachable = 1 + max finite = 2 + 1).
    rewards = jnp.array([[0.0, 1.0], [0.0, 0.0]])
    out = advantages.graphgpo(
      rewards,
      jnp.zeros(2, jnp.int32),
      jnp.array([[0, 1], [0, 1]]),
      jnp.ones((2, 2), bool),
      scale='none',
      episode_weight=0.0,
    )
    # State 0: both led to state 1, at distance 1: equal, 0.
    q = np.array([10.0, 10 * 0.1**3])
    half = (q[0] - q[1]) / 2
    np.testing.assert_allclose(out, [[0, half], [0, -half]], rtol=1e-5)

  def test_graphgpo_oracle_over_random_cases(self):
    for weight, scale in [(1.0, 'std'), (0.5, 'none')]:
      f = jax.jit(
        lambda t, weight=weight, scale=scale: advantages.ESTIMATORS['graphgpo'](
          TurnBatch(**t), gamma=0.5, anchor_weight=weight, scale=scale
        )
      )
      for seed in range(200):
        t = oracles.random_turns(seed)
        want = oracles.graphgpo(t, 0.5, 10.0, weight, scale)
        np.testing.assert_allclose(f(t), want, err_msg=f'{seed=}', **CLOSE)
