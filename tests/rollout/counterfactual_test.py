"""Locks values of states against odds by hand, and greedy returns."""

import dataclasses
import functools

import numpy as np
import pytest
import rollout_fakes as made

from agentrl_jax import config as config_lib
from agentrl_jax import types
from agentrl_jax.rollout import counterfactual, loop

NUM_TASKS, SIZE = 2, 2


class OddEnv(made.EchoEnv):
  """Three turns; pays 1 if more than one had an odd number of letters."""

  def __init__(self, fault=None):
    super().__init__(fault=fault)
    self._odd = 0

  def step(self, action):
    result = super().step(action)
    self._odd += len(action.text) % 2
    reward = float(result.done and self._odd > 1)
    # Two letters are what this world calls malformed.
    info = {'valid': len(action.text) != 2}
    return types.StepResult(result.observation, reward, result.done, None, info)

  def snapshot(self):
    return super().snapshot(), self._odd

  def restore(self, snapshot):
    super().restore(snapshot[0])
    self._odd = snapshot[1]


def value(turn, odd):
  """Odds of more than one odd turn in the end; a turn is odd by halves."""
  if turn == 3:
    return float(odd > 1)
  return (value(turn + 1, odd) + value(turn + 1, odd + 1)) / 2


def fields(estimator='vineppo', **sets):
  c = config_lib.default()
  c.rollout.max_turns = 4
  c.train.constant_groups = 'keep'
  c.advantage.estimator = estimator
  for name, given in sets.items():
    c.advantage[name] = given
  return c


def score(groups):
  """The outcome, as `rewards.score_groups` would fill it in."""

  def total(t):
    return dataclasses.replace(
      t, rewards={'total': tuple(turn.reward for turn in t.turns)}
    )

  return [
    types.Group(g.task, tuple(map(total, g.trajectories))) for g in groups
  ]


def collector(make_env=OddEnv, draw=made.draw_text):
  engine = made.FakeEngine(draw, num_slots=8)
  return loop.Collector(engine, make_env, made.language(), made.limits())


@functools.cache
def played(make_env=OddEnv):
  """(groups, states, collector) of two tasks of three turns, twice each."""
  tasks = [
    types.Task('echo', 'train', i, {'turns': 3}) for i in range(NUM_TASKS)
  ]
  player, states = collector(make_env), counterfactual.States()
  flat = player.collect(
    [loop.Entry(task, s) for task in tasks for s in range(SIZE)],
    loop.Draws(0, 'train', 0),
    on_state=states,
  )
  groups = [
    types.Group(task, tuple(flat[SIZE * i : SIZE * (i + 1)]))
    for i, task in enumerate(tasks)
  ]
  return score(groups), states, player


def explore(c, iteration=0, given=None):
  groups, states, player = given or played()
  return counterfactual.explore(groups, states, player, score, c, iteration)


def test_values_are_the_odds_of_each_state():
  c = fields(continuations=100)
  (returns,) = explore(c).values()
  assert returns.shape == (4, 4, 100)
  flat = [t for g in played()[0] for t in g.trajectories]
  seen = set()
  for b, t in enumerate(flat):
    odd = 0
    for s, turn in enumerate(t.turns):
      # One standard error is at most 0.5 / √100 = 0.05.
      assert returns[b, s].mean() == pytest.approx(value(s, odd), abs=0.15)
      seen.add((s, odd))
      odd += len(turn.text) % 2
  assert len(seen) > 3 and np.isnan(returns[:, 3]).all()


def test_the_same_numbers_again_and_others_in_another_iteration():
  c = fields()
  one, two, other = (explore(c, i)['continuation_returns'] for i in (0, 0, 1))
  np.testing.assert_array_equal(one, two)
  assert (one[:, :3] != other[:, :3]).any()
  # The members of a group draw apart, from the first state on.
  (many,) = explore(fields(continuations=32)).values()
  assert len({x.tobytes() for x in many[:, 0]}) == 4


def test_continuations_are_discounted_and_pay_for_their_own_turns():
  c = fields(options={'gamma': 0.5}, invalid_penalty=0.25, continuations=64)
  (returns,) = explore(c).values()
  # From the third state on there is one turn: 1 or 0, less 1/4 if malformed;
  # from the first three: less 1/4 (1 + .5 + .25) at most, 1/4 of 1 is paid.
  assert set(np.unique(returns[:, 2])) <= {1.0, 0.0, -0.25, 0.75}
  assert -0.25 in returns[:, 2]
  assert returns[:, 0].max() == 0.25 and returns[:, 0].min() >= -0.4375


@pytest.mark.parametrize('count', [1, 2, 3, 9])
def test_some_states_are_valued_the_first_always(count):
  (returns,) = explore(fields(valued_turns=count)).values()
  known = ~np.isnan(returns).any(-1)
  assert known[:, 0].all() and not known[:, 3].any()
  assert (known.sum(-1) == min(count, 3)).all()
  np.testing.assert_array_equal(known, ~np.isnan(returns).all(-1))


def test_the_other_states_are_chosen_at_random():
  c = fields(valued_turns=2, continuations=1)
  known = [~np.isnan(*explore(c, i).values()) for i in range(6)]
  assert 0 < np.mean(np.stack(known)[:, :, 1]) < 1


def test_only_what_is_trained_on_is_valued():
  c = fields()
  c.train.constant_groups = 'drop'
  groups, states, player = played()
  first = groups[0].trajectories

  def paid(t, amount):
    return dataclasses.replace(t, rewards={'total': (0.0, 0.0, amount)})

  # Group 0 is constant, group 1 is not.
  groups = [
    types.Group(groups[0].task, tuple(paid(t, 1.0) for t in first)),
    types.Group(
      groups[1].task,
      tuple(paid(t, float(i)) for i, t in enumerate(groups[1].trajectories)),
    ),
  ]
  (returns,) = explore(c, given=(groups, states, player)).values()
  assert np.isnan(returns[:2]).all() and not np.isnan(returns[2:, :3]).any()


def fails():
  raise OSError('no disk')


def test_a_continuation_that_fails_is_no_zero():
  make_env = functools.partial(OddEnv, fault={(1, 3): fails})
  groups, states, player = played()
  player._make_env = make_env
  try:
    (returns,) = explore(fields(), given=(groups, states, player)).values()
  finally:
    player._make_env = OddEnv
  assert np.isnan(returns[2:]).all() and not np.isnan(returns[:2, :3]).any()


def test_greedy_returns_are_one_for_each_task():
  groups, states, _ = played()
  player = collector()
  (returns,) = explore(fields('remax'), given=(groups, states, player)).values()
  temperatures = {t for _, t, _ in player.engine.requests}
  assert temperatures == {0.0} and len(player.engine.requests) == 6
  assert returns.shape == (4,)
  assert returns[0] == returns[1] and returns[2] == returns[3]
  assert set(returns.tolist()) <= {0.0, 1.0}


def test_a_greedy_episode_that_failed_is_no_zero():
  groups, states, _ = played()
  player = collector(functools.partial(OddEnv, fault={(0, 2): fails}))
  (returns,) = explore(fields('remax'), given=(groups, states, player)).values()
  assert np.isnan(returns[:2]).all() and not np.isnan(returns[2:]).any()


def test_other_estimators_play_nothing():
  assert explore(fields('gigpo')) == {}
  assert counterfactual.measures([], {}) == {}


def test_what_was_played_is_counted():
  groups, _, _ = played()
  returns = np.array([[1.0, np.nan], [0.0, 0.5]])
  row = counterfactual.measures(groups, {'continuation_returns': returns})
  assert row == {'counterfactual/episodes': 3.0, 'counterfactual/return': 0.5}


def test_a_greedy_episode_counts_once_for_all_that_compare_with_it():
  groups, _, _ = played()
  returns = np.array([1.0, 1.0, 0.0, 0.0])
  row = counterfactual.measures(groups, {'greedy_returns': returns})
  assert row == {'counterfactual/episodes': 2.0, 'counterfactual/return': 0.5}


def test_without_an_episode_there_is_no_return():
  groups, _, _ = played()
  row = counterfactual.measures(groups, {'greedy_returns': np.full(4, np.nan)})
  assert row['counterfactual/episodes'] == 0
  assert np.isnan(row['counterfactual/return'])
