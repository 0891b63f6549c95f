"""Locks the ways between turns, tokens and packed rows."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax import advantages


class BroadcastTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_only_sampled_tokens_of_a_turn_get_it(self):
    out = self.variant(advantages.broadcast_turns)(
      jnp.array([[1.0, 2.0], [3.0, jnp.nan]]),
      jnp.array([[0, 0, 0, 1, -1]]),
      jnp.array([[0, 0, 1, 0, -1]]),
      jnp.array([[False, True, True, True, True]]),
    )
    np.testing.assert_array_equal(out, [[0, 1, 2, 3, 0]])

  def test_what_there_is_not_is_nan(self):
    # Trajectory 2, turn 2; under the mask neither is asked for.
    out = advantages.broadcast_turns(
      jnp.ones((2, 2)),
      jnp.array([[0, 2, 1, 2]]),
      jnp.array([[1, 0, 2, 0]]),
      jnp.array([[True, True, True, False]]),
    )
    np.testing.assert_array_equal(out, [[1, jnp.nan, jnp.nan, 0]])

  def test_rows_and_trajectories_are_inverse(self):
    # Trajectory 0 lies in two rows, its second context packed first.
    trajectory = jnp.array([[0, 0, 1, -1], [0, 0, 0, -1]])
    turn = jnp.array([[1, 1, 0, -1], [0, 0, 0, -1]])
    positions = jnp.array([[5, 6, 0, 0], [0, 1, 2, 0]])
    mask = jnp.array([[1, 1, 1, 0], [0, 1, 1, 0]], bool)
    ranks = advantages.token_ranks(trajectory, turn, positions, mask)
    np.testing.assert_array_equal(ranks, [[2, 3, 0, -1], [-1, 0, 1, -1]])
    rows = jnp.array([[30.0, 40, 5, 9], [9, 10, 20, 9]])
    values, filled = advantages.scatter_tokens(
      rows, trajectory, ranks, mask, num_trajectories=2, num_tokens=5
    )
    np.testing.assert_array_equal(
      values, [[10, 20, 30, 40, 0], [5, 0, 0, 0, 0]]
    )
    np.testing.assert_array_equal(filled, np.asarray(values) > 0)
    back = advantages.gather_tokens(values, trajectory, ranks, mask)
    np.testing.assert_array_equal(back, np.where(mask, rows, 0))

  def test_ranks_over_random_cases(self):
    f = jax.jit(advantages.token_ranks)
    for seed in range(200):
      rng = np.random.default_rng(seed)
      shape = (3, 8)
      trajectory = rng.integers(-1, 3, shape)
      mask = rng.random(shape) < 0.7
      turn = rng.integers(0, 3, shape)
      positions = np.broadcast_to(np.arange(8), shape)
      got = np.asarray(f(trajectory, turn, positions, mask))
      counts = mask & (trajectory >= 0)
      assert np.all(got[~counts] == -1)
      for b, n in itertools.product(range(3), range(3)):
        here = counts & (trajectory == b)
        assert sorted(got[here]) == list(range(here.sum()))
        low, high = got[here & (turn < n)], got[here & (turn >= n)]
        assert low.max(initial=-1) < high.min(initial=99)

  def test_every_way_over_random_cases(self):
    f = jax.jit(
      lambda turns, rows, b, s, p, m: (
        advantages.broadcast_turns(turns, b, s, m),
        advantages.scatter_tokens(
          rows,
          b,
          advantages.token_ranks(b, s, p, m),
          m,
          num_trajectories=4,
          num_tokens=6,
        ),
      )
    )
    for seed in range(200):
      rng = np.random.default_rng(seed)
      shape = (3, 8)
      trajectory, turn = rng.integers(-1, 4, shape), rng.integers(-1, 3, shape)
      mask = rng.random(shape) < 0.8
      positions = np.broadcast_to(np.arange(8), shape)
      turns = rng.normal(size=(4, 3)).astype(np.float32)
      rows = np.where(mask, rng.normal(size=shape), np.nan).astype(np.float32)
      given, (values, filled) = f(
        turns, rows, trajectory, turn, positions, mask
      )
      counts = mask & (trajectory >= 0) & (turn >= 0)
      want = np.where(counts, turns[trajectory, turn], 0)
      np.testing.assert_array_equal(given, want)
      for b in range(4):
        places = sorted(
          (turn[r, c], c, r) for r, c in np.argwhere(counts & (trajectory == b))
        )
        # Tokens beyond the bound are dropped. Two rows may tie: any order.
        got = np.sort(values[b][filled[b]])
        assert len(got) == min(len(places), 6)
        if len(places) <= 6:
          want = np.sort([rows[r, c] for _, c, r in places])
          np.testing.assert_array_equal(got, want)
        assert not np.any(values[b][~filled[b]])
