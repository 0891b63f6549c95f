"""Locks the controls and placebos."""

import advantage_oracles as oracles
import chex
import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax import advantages
from agentrl_jax.batch import TurnBatch


class ControlsTest(chex.TestCase):
  def test_return_to_go_compares_all_turns_of_a_task(self):
    # gamma .5: .5, 1, 0, 0: mean .375.
    out = advantages.return_to_go(
      jnp.array([[0.0, 1.0], [0.0, 0.0]]),
      jnp.zeros(2, jnp.int32),
      jnp.ones((2, 2), bool),
      gamma=0.5,
      scale='none',
    )
    want = [[0.125, 0.625], [-0.375, -0.375]]
    np.testing.assert_allclose(out, want, atol=1e-6)

  def test_return_to_go_over_random_cases(self):
    f = jax.jit(
      lambda t: advantages.ESTIMATORS['return_to_go'](TurnBatch(**t), gamma=0.9)
    )
    for seed in range(200):
      t = oracles.random_turns(seed)
      q = oracles.turn_returns(t, 0.9).ravel()
      want = oracles.center(q, oracles.turn_keys(t), 'std')
      want = want.reshape(t['turn_mask'].shape)
      np.testing.assert_allclose(
        f(t), want, rtol=1e-4, atol=2e-5, err_msg=f'{seed=}'
      )

  def test_turn_index_counts_true_turns(self):
    mask = jnp.array([[True, False, True], [True, True, False]])
    out = advantages.turn_index_anchors(mask)
    np.testing.assert_array_equal(out, [[0, -1, 1], [0, 1, -1]])

  def test_shuffling_keeps_sizes_within_each_task(self):
    f = jax.jit(advantages.shuffled_anchors)
    moved = 0
    for seed in range(200):
      t = oracles.random_turns(seed)
      ids, groups, mask = t['anchor_ids'], t['group_ids'], t['turn_mask']
      got = np.asarray(f(ids, groups, mask, jax.random.key(seed)))
      for g in set(groups.tolist()) - {-1}:
        here = mask & (groups == g)[:, None]
        before, after = np.sort(ids[here]), np.sort(got[here])
        np.testing.assert_array_equal(after, before)
      real = mask & (groups >= 0)[:, None]
      np.testing.assert_array_equal(got[real] < 0, ids[real] < 0)
      assert np.all(got[~real] == -1)
      moved += np.sum(got[real] != ids[real])
    assert moved > 400
