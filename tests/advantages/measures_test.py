"""Locks what is reported about a batch's groups."""

import advantage_oracles as oracles
import chex
import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax import advantages
from agentrl_jax.batch import TurnBatch


class MeasuresTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_diagnostics_by_hand(self):
    # Task 0: returns 1, 0; task 1: 0, 0 (dead). Anchor groups, with distinct
    # actions in brackets: (0, 0) three turns [2], (0, 1) one [1], (1, 0) two
    # [1]; one turn without an anchor. 6 turns / 3 groups = 2. Alone: 2 of 7.
    # With contrast: 3 of 7. |A|: 4 in task 0, 1 in task 1.
    t = TurnBatch(
      turn_rewards=jnp.array([[0, 1.0], [0, 0], [0, 0], [0, 0]]),
      turn_mask=jnp.array([[1, 1], [1, 1], [1, 0], [1, 1]], bool),
      group_ids=jnp.array([0, 0, 1, 1]),
      anchor_ids=jnp.array([[0, 0], [0, 1], [0, -1], [0, -1]]),
      history_ids=jnp.zeros((4, 2, 1), jnp.int32),
      turn_penalties=jnp.zeros((4, 2)),
      action_ids=jnp.array([[2, 3], [2, 2], [3, 9], [3, 3]]),
    )
    a = jnp.array([[1.0, -1], [1, -1], [0.5, 99], [-0.5, 0]])
    out = self.variant(advantages.diagnostics)(t, a)
    want = {
      'anchor_group_size': 2,
      'anchor_singletons': 2 / 7,
      'contrastive_share': 3 / 7,
      'dead_groups': 0.5,
      'phantom_share': 0.2,
    }
    assert out.keys() == want.keys()
    for name, value in want.items():
      np.testing.assert_allclose(out[name], value, rtol=1e-6, err_msg=name)

  def test_oracle_over_random_cases(self):
    f = jax.jit(lambda t, a: advantages.diagnostics(TurnBatch(**t), a))
    for seed in range(200):
      t = oracles.random_turns(seed)
      mask = t['turn_mask']
      a = np.random.default_rng(seed).normal(size=mask.shape)
      a = a.astype(np.float32)
      keys = oracles.turn_keys(t, t['anchor_ids'])
      groups = list(oracles.members(keys))
      acts = t['action_ids'].ravel()
      contrast = [g for g in groups if len(set(acts[g]) - {-1}) > 1]
      tasks = list(oracles.members(oracles.trajectory_keys(t)))
      alive = [g for g in tasks if np.ptp(oracles.outcomes(t)[g]) > 1e-4]
      num = max(mask.sum(), 1)
      lone = mask.sum() - sum(len(g) for g in groups if len(g) > 1)
      size = np.where(mask, np.abs(a), 0).sum(-1)
      living = sum(size[g].sum() for g in alive)
      want = {
        'anchor_group_size': np.mean([len(g) for g in groups] or [0]),
        'anchor_singletons': lone / num,
        'contrastive_share': sum(map(len, contrast)) / num,
        'dead_groups': 1 - len(alive) / len(tasks) if tasks else 0,
        'phantom_share': 1 - living / size.sum() if size.sum() else 0,
      }
      for name, got in f(t, a).items():
        np.testing.assert_allclose(
          got, want[name], rtol=1e-5, atol=1e-6, err_msg=f'{seed} {name}'
        )
