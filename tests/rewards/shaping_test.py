"""F = γΦ' - Φ: by hand, telescoping, and in small worlds solved exactly."""

import numpy as np
import pytest
import reward_fakes as made

from agentrl_jax import envs, rewards, types
from agentrl_jax.rewards import shaping

FLIGHT = types.Task('flight', 'test', 0, {'legs': [['A', 'B'], ['B', 'C']]})


def test_by_hand():
  """Φ = 0, 0.5, 0.5, γ = 0.9: 0.45, -0.05 (0.45 - 0.5), -0.5."""
  key = 'leg {}\norders {}\nview -\nx'
  episode = made.trajectory(
    made.turn(key=key.format(0, '-')),
    made.turn(key=key.format(1, 'placed')),
    made.turn(key=key.format(1, 'placed')),
    task=FLIGHT,
  )
  found = shaping.shaping(episode, potential='flight_progress', gamma=0.9)
  assert found == pytest.approx([0.45, -0.05, -0.5])


def test_whatever_is_done_it_sums_to_minus_the_first_potential():
  draw = np.random.default_rng(0)
  for gamma in (0.0, 0.5, 0.95, 1.0):
    phi = draw.normal(size=7)
    found = shaping.differences(list(phi), gamma)
    total = sum(gamma**t * f for t, f in enumerate(found))
    assert total == pytest.approx(-phi[0])


def world(seed, num=6, actions=3):
  """A random world whose last state is the end: P, R, Φ (0 at the end)."""
  draw = np.random.default_rng(seed)
  p = draw.dirichlet(np.full(num, 0.3), size=(num, actions))
  p[-1] = np.eye(num)[-1]
  r = draw.normal(size=(num, actions, num))
  r[-1] = 0
  phi = 5 * draw.normal(size=num)
  phi[-1] = 0
  return p, r, phi


def action_values(p, r, gamma):
  values = np.zeros(len(p))
  for _ in range(300):
    q = (p * (r + gamma * values)).sum(-1)
    values = q.max(-1)
  return q


def shaped(p, r, phi, gamma):
  """Adds what the part gives a turn from s to s'."""
  out = r.copy()
  for s in range(len(p) - 1):
    for then in range(len(p)):
      out[s, :, then] += shaping.differences([phi[s], phi[then]], gamma)[0]
  return out


def test_no_optimal_policy_changes():
  gamma, changed = 0.9, 0
  for seed in range(20):
    p, r, phi = world(seed)
    q = action_values(p, r, gamma)[:-1]
    with_shaping = action_values(p, shaped(p, r, phi, gamma), gamma)[:-1]
    # Every action of every state loses Φ(s), so their order stays.
    np.testing.assert_allclose(with_shaping, q - phi[:-1, None], atol=1e-8)
    wrong = action_values(p, shaped(p, r, phi, 0.4), gamma)[:-1]
    changed += (wrong.argmax(-1) != q.argmax(-1)).any()
  assert changed > 10  # a potential under another discount is a reward


def test_a_lake_is_shaped_towards_its_goal():
  rows = ['S..', '.O.', '..G']
  task = types.Task('frozen_lake', 'test', 0, {'rows': rows, 'slip': 0.0})
  ways = [made.action('move', direction=w) for w in ('up', 'down', 'right')]
  ways[1:1] = [ways[1]]  # up (a wall), down, down, right
  episode = made.play(envs.make('frozen_lake'), task, *ways)
  # Distance 4 of 2 * 3: Φ = 1 - 4/6, twice, then 1 - 3/6, 1 - 2/6, end.
  found = shaping.shaping(episode, potential='grid_nearness', gamma=1.0)
  assert found == pytest.approx([0, 1 / 6, 1 / 6, -2 / 3])


def test_returns_centred_in_a_group_stay_what_they_were():
  """All members start in one state, so each loses the same Φ(s_0)."""
  keys = 'leg 0\norders -\nview -\n', 'leg 1\norders placed\nview -\n'
  turns = [made.turn(key=key) for key in keys]
  members = [
    made.trajectory(turns[0], made.turn(1.0, key=keys[1]), task=FLIGHT),
    made.trajectory(*turns, turns[0], task=FLIGHT),
  ]
  options = {'potential': 'flight_progress', 'gamma': 1.0}
  config = [('outcome', 1.0), ('shaping', 3.0, options)]
  scored = rewards.score(made.group(*members), *rewards.compose(config))
  sums = [sum(t.rewards['total']) for t in scored.trajectories]
  assert sums[0] - sums[1] == pytest.approx(1.0)
  assert scored.trajectories[0].rewards['shaping'] == pytest.approx((0.5, -0.5))


def test_what_cannot_be_shaped_says_so():
  options = {'potential': 'flight_progress', 'gamma': 1.0}
  with pytest.raises(ValueError, match='no state key'):
    shaping.shaping(made.trajectory(0), **options)
  with pytest.raises(ValueError, match='gamma=1.5'):
    shaping.shaping(made.trajectory(0), **{**options, 'gamma': 1.5})
  with pytest.raises(ValueError, match='no line of orders'):
    shaping.shaping(made.trajectory(made.turn(key='x')), **options)
