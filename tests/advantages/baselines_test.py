"""Locks OPO, MaxRL, pass@k and whitening against loops over random cases."""

import advantage_oracles as oracles
import jax
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


def test_baselines_over_random_cases():
  f = jax.jit(
    lambda r, n, i, m: (
      advantages.opo(r, n, i, m),
      advantages.maxrl(r, i, m),
      advantages.pass_at_k(r, i, m),
    )
  )
  for seed in range(200):
    t = oracles.random_turns(seed)
    # MaxRL is for returns that are not negative.
    total = np.abs(oracles.outcomes(t)).astype(np.float32)
    lengths = t['turn_mask'].sum(-1).astype(np.float32)
    want = np.zeros((3, oracles.B))
    for group in oracles.members(oracles.trajectory_keys(t)):
      v = total[group].astype(np.float64)
      best = np.sort(v)[::-1]
      if len(v) < 2 or np.ptp(v) <= 1e-4:
        continue
      want[0, group] = v - np.average(v, weights=lengths[group])
      want[1, group] = (v - v.mean()) / (v.mean() + 1e-6)
      want[2, group] = np.where(v == best[0], best[0] - best[1], 0)
    got = f(total, lengths, t['group_ids'], t['turn_mask'].any(-1))
    np.testing.assert_allclose(got, want, err_msg=f'{seed=}', **CLOSE)


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
