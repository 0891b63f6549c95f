"""Locks OPO, MaxRL and pass@k against loops over random cases."""

import advantage_oracles as oracles
import jax
import numpy as np

from agentrl_jax import advantages

CLOSE = dict(rtol=1e-4, atol=1e-5)


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


def test_maxrl_of_a_negative_return_is_nan_where_it_would_count():
  # By the formula the better of -1 and -.5 would get .25 / -.75 < 0.
  got = advantages.maxrl(
    np.array([-1, -0.5, 0, 1, -1, -1, -1, 3], np.float32),
    np.array([0, 0, 1, 1, 2, 2, 3, 3], np.int32),
    np.array([True] * 6 + [False, True]),
  )
  want = [np.nan, np.nan, -1, 1, 0, 0, 0, 0]
  np.testing.assert_allclose(got, want, rtol=1e-5)
