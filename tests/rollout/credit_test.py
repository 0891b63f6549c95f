"""Locks credit by turn and by token: lines, values, KL, what values learn."""

import dataclasses

import numpy as np
import pytest
import rollout_fakes as made

from agentrl_jax import config as config_lib
from agentrl_jax import types
from agentrl_jax.rollout import collate, credit

StopReason = types.StopReason

# One episode of 2 + 1 tokens that is paid 1, one of 1 + 3 that is not, one
# that failed; a group each. Prompt 2 tokens, reply 1.
PLAYED = (
  made.append_only([2, 1], reward=1.0),
  made.append_only([1, 3], stop_reason=StopReason.MAX_TURNS),
  made.append_only([1], reward=9.0, stop_reason=StopReason.ENV_ERROR),
)
GROUPS = [types.Group(made.TASK, (t,)) for t in PLAYED]
MASK = np.array([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0], [0] * 6], bool)


def fields(estimator, **sets):
  c = config_lib.default()
  c.rollout.max_turns = 3
  c.advantage.estimator = estimator
  for name, value in sets.items():
    c.advantage[name] = value
  return c


def lines(**arrays):
  return dataclasses.replace(credit.lines(PLAYED, 6), **arrays)


def rows(trajectories=PLAYED[:2], indices=(0, 1), row_length=16):
  return collate.token_rows(
    trajectories,
    np.zeros((len(trajectories), 3)),
    indices,
    row_length=row_length,
    num_rows=1,
  )


def assign(estimator, made_lines, **sets):
  c = fields(estimator, **sets)
  return credit.Assigner(c)(credit.turns(GROUPS, c, 0), made_lines)


def test_lines_hold_sampled_tokens_in_order():
  out = lines()
  np.testing.assert_array_equal(out.turn >= 0, MASK)
  np.testing.assert_array_equal(out.turn[0, :3], [0, 0, 1])
  np.testing.assert_array_equal(out.turn[1, :4], [0, 1, 1, 1])
  # Places 2, 3 and 5 of the context: its reply at 4 is not in the line.
  np.testing.assert_allclose(
    out.behavior_logprobs[0, :3], [-0.75, -0.875, -1.125]
  )


def test_a_line_is_never_cut():
  with pytest.raises(ValueError, match='sampled 4 tokens, more than 3'):
    credit.lines(PLAYED, 3)


@pytest.mark.parametrize('row_length', [8, 16])
def test_rows_and_lines_are_inverse(row_length):
  batch = rows(row_length=row_length)
  values = np.where(MASK, np.arange(18).reshape(3, 6) + 1.0, 0)
  there = credit.to_rows(batch, values)
  np.testing.assert_array_equal(there != 0, batch.mask)
  np.testing.assert_array_equal(credit.to_lines(batch, there, (3, 6)), values)


def test_a_line_runs_through_contexts_in_order_of_turns():
  # The third context shares the first's row, before the second's.
  short = made.context((2, False), (2, True))
  long = made.context((5, False), (3, True))
  turns = [
    made.turn(2, 4),
    made.turn(5, 8, context=1),
    made.turn(2, 4, context=2),
  ]
  played = (made.trajectory(turns, [short, long, short]),)
  batch = rows(played, [0], row_length=8)
  assert batch.row_turn[batch.mask].tolist() == [0, 0, 2, 2, 1, 1, 1]
  out = credit.lines(played, 7)
  logprobs = credit.to_lines(batch, batch.behavior_logprobs, (1, 7))
  np.testing.assert_array_equal(logprobs, out.behavior_logprobs)


def test_values_stand_before_their_token_and_after_the_last():
  batch = rows(row_length=8)  # a row each
  after = np.arange(16, dtype=np.float32).reshape(2, 8)
  out = credit.with_values(lines(), batch, after, PLAYED)
  order = np.argsort([batch.row_trajectory[r, 0] for r in range(2)])
  start = 8 * order  # of the row of trajectory 0 and of 1
  # Tokens at 2, 3, 5: the states before are after 1, 2, 4.
  np.testing.assert_array_equal(out.values[0, :3], start[0] + [1, 2, 4])
  np.testing.assert_array_equal(out.values[1, :4], start[1] + [1, 3, 4, 5])
  # Only the second was cut; its last token is at 6.
  np.testing.assert_array_equal(out.last_values, [0, start[1] + 6, 0])


def test_a_turn_without_a_token_borrows_places():
  out = credit.Lines(np.array([[0, 0, 2, -1]]), np.zeros((1, 4)))
  begin, end = credit.places(out, 4)
  np.testing.assert_array_equal(begin, [[0, 2, 2, 2]])
  np.testing.assert_array_equal(end, [[1, 1, 2, 2]])


@pytest.mark.parametrize('name', ['gae', 'token_gae'])
def test_with_values_of_zero_and_lambda_one_advantages_are_returns(name):
  out = assign(
    name,
    lines(values=np.zeros((3, 6), np.float32)),
    options={'gamma': 1.0, 'lam': 1.0},
  )
  mask = MASK if name == 'token_gae' else [[1, 1, 0], [1, 1, 0], [0, 0, 0]]
  want = np.where(mask, [[1.0], [0.0], [0.0]], 0)
  np.testing.assert_allclose(out.advantages, want)
  np.testing.assert_allclose(out.returns, want)
  np.testing.assert_allclose(out.by_turn[0], [1, 1, 0])
  assert out.per_token == (name == 'token_gae')


def test_the_value_of_a_turn_is_that_of_its_first_state():
  values = np.where(MASK, np.arange(6) / 10, 0).astype(np.float32)
  out = assign('gae', lines(values=values), options={'lam': 0.0})
  np.testing.assert_allclose(out.values[:2, :2], [[0, 0.2], [0, 0.1]])
  # One step: 0 + V' - V, then r - V.
  np.testing.assert_allclose(
    out.advantages[:2, :2], [[0.2, 0.8], [0.1, -0.1]], atol=1e-6
  )


@pytest.mark.parametrize('bootstrap, want', [('none', 0.0), ('limit', 0.5)])
def test_a_cut_episode_goes_on_in_its_value_where_asked(bootstrap, want):
  out = assign(
    'gae',
    lines(
      values=np.zeros((3, 6), np.float32),
      last_values=np.array([0, 0.5, 0], np.float32),
    ),
    options={'lam': 1.0},
    bootstrap=bootstrap,
  )
  np.testing.assert_allclose(out.advantages[:2, 0], [1.0, want])


def test_kl_is_paid_where_it_arises():
  given = lines()
  reference = given.behavior_logprobs - np.where(MASK, 0.5, 0)
  given = dataclasses.replace(given, reference_logprobs=reference)
  zero = np.zeros((3, 6), np.float32)
  sets = dict(options={'lam': 1.0, 'gamma': 1.0}, kl_in_reward=0.1)
  given = dataclasses.replace(given, values=zero)
  # 0.1 · 0.5 a token, to go: 3, 2, 1 tokens of the first, 4 of the second.
  out = assign('token_gae', given, **sets)
  np.testing.assert_allclose(
    out.advantages[0, :3], [0.85, 0.9, 0.95], atol=1e-6
  )
  np.testing.assert_allclose(
    out.advantages[1, :4], [-0.2, -0.15, -0.1, -0.05], atol=1e-6
  )
  out = assign('gae', given, **sets)
  np.testing.assert_allclose(
    out.advantages[:2, :2], [[0.85, 0.95], [-0.2, -0.15]], atol=1e-6
  )
  assert out.measures['reward/kl'] == pytest.approx(0.5)


def test_whether_outcomes_differ_is_not_asked_of_the_kl():
  played = (made.append_only([2, 1]), made.append_only([1, 3]))
  groups = [types.Group(made.TASK, played)]
  c = fields('rebn', kl_in_reward=0.1)
  given = credit.lines(played, 6)
  # 0.5 and 0.05 a token: with it the returns are -0.15 and -0.02.
  given = dataclasses.replace(
    given,
    reference_logprobs=given.behavior_logprobs - np.array([[0.5], [0.05]]),
  )
  out = credit.Assigner(c)(credit.turns(groups, c, 0), given)
  assert out.measures['advantage/dead_groups'] == 1.0
  assert out.advantages.any()


def test_whitened_returns_by_token():
  out = assign('reinforce_pp', lines(), options={'gamma': 1.0})
  # Seven tokens: three of return 1, four of 0. Mean 3/7, sample variance
  # (3 (4/7)² + 4 (3/7)²) / 6 = 2/7.
  want = np.array([4 / 7, -3 / 7]) / np.sqrt(2 / 7)
  np.testing.assert_allclose(out.advantages[0, :3], want[0], rtol=1e-5)
  np.testing.assert_allclose(out.advantages[1, :4], want[1], rtol=1e-5)
  np.testing.assert_allclose(out.by_turn[:2, 0], want, rtol=1e-5)
  assert out.returns is None and not out.advantages[2].any()


def weighted(batch):
  return batch.replace(weights=np.where(batch.mask, 0.1, 0).astype(np.float32))


def test_advantages_by_token_reach_their_tokens():
  out = assign('reinforce_pp', lines(), options={'gamma': 1.0})
  batch, extra = credit.attach(rows(), out, lines())
  assert not extra
  np.testing.assert_array_equal(
    credit.to_lines(batch, batch.advantages, (3, 6)), out.advantages
  )


def test_a_turns_state_counts_as_all_its_tokens():
  given = lines(values=np.full((3, 6), 0.25, np.float32))
  out = assign('gae', given, options={'lam': 1.0})
  batch = weighted(rows())
  _, extra = credit.attach(batch, out, given)
  got = {k: credit.to_lines(batch, v, (3, 6)) for k, v in extra.items()}
  np.testing.assert_allclose(
    got['value_weights'][:2],
    [[0.2, 0, 0.1, 0, 0, 0], [0.1, 0.3, 0, 0, 0, 0]],
    rtol=1e-6,
  )
  np.testing.assert_allclose(
    got['returns'][:2], [[1, 0, 1, 0, 0, 0], [0] * 6], atol=1e-6
  )
  np.testing.assert_allclose(
    got['old_values'], 0.25 * (got['value_weights'] > 0)
  )
  assert extra['value_weights'].sum() == pytest.approx(batch.weights.sum())


def test_explained_variance_by_hand():
  values = np.zeros((3, 6), np.float32)
  values[0, :3] = 0.5
  out = assign('gae', lines(values=values), options={'lam': 1.0})
  # Returns 1 1 0 0, left 0.5 0.5 0 0: 1 - (1/16) / (1/4).
  assert out.measures['value/explained_variance'] == pytest.approx(0.75)
  assert out.measures['value/mean'] == pytest.approx(0.25)


@pytest.mark.parametrize('trained', [None, [0, 1]])
def test_advantages_are_whitened_over_turns_by_hand(trained):
  zero = np.zeros((3, 6), np.float32)
  c = fields('gae', options={'lam': 1.0}, whiten=True)
  given = lines(values=zero)
  out = credit.Assigner(c)(credit.turns(GROUPS, c, 0), given, trained=trained)
  # Four turns of 1, 1, 0, 0: mean 1/2, sample variance 4 (1/2)² / 3 = 1/3.
  want = 0.5 / np.sqrt(1 / 3)
  np.testing.assert_allclose(
    out.advantages, want * np.array([[1, 1, 0], [-1, -1, 0], [0] * 3]), 1e-5
  )
  # What values are fitted to is not.
  np.testing.assert_allclose(out.returns[:2, :2], [[1, 1], [0, 0]])


def test_advantages_are_whitened_over_tokens_by_hand():
  given = lines(values=np.zeros((3, 6), np.float32))
  out = assign('token_gae', given, options={'lam': 1.0}, whiten=True)
  # As the whitened returns above: 3/7 of the tokens have 1.
  want = np.array([4 / 7, -3 / 7]) / np.sqrt(2 / 7)
  np.testing.assert_allclose(out.advantages[0, :3], want[0], rtol=1e-5)
  np.testing.assert_allclose(out.advantages[1, :4], want[1], rtol=1e-5)
  np.testing.assert_allclose(out.by_turn[:2, 0], want, rtol=1e-5)


def test_only_what_is_trained_on_is_whitened():
  given = lines(values=np.where(MASK, 0.25, 0).astype(np.float32))
  c = fields('token_gae', options={'lam': 0.0}, whiten=True)
  turns = credit.turns(GROUPS, c, 0)
  out = credit.Assigner(c)(turns, given, trained=[0])
  # 0, 0, 1 - 1/4 of the first: mean 1/4, sample variance 3/16.
  want = np.array([-0.25, -0.25, 0.5]) / np.sqrt(3 / 16)
  np.testing.assert_allclose(out.advantages[0, :3], want, rtol=1e-5)
  assert not out.advantages[1:].any()


def test_returns_that_were_played_reach_the_estimator():
  turns_of = {'vineppo': (3, 3, 2), 'remax': (3,)}
  for name, key in (
    ('vineppo', 'continuation_returns'),
    ('remax', 'greedy_returns'),
  ):
    c = fields(name)
    played = {key: np.full(turns_of[name], 0.25, np.float32)}
    one = credit.Assigner(c)
    out = one(credit.turns(GROUPS, c, 0), lines(), played=played)
    # ReMax: 1 - 1/4, 0 - 1/4; VinePPO: 0, then the last turn's r - 1/4.
    want = {
      'remax': [[0.75, 0.75], [-0.25, -0.25]],
      'vineppo': [[0, 0.75], [0, -0.25]],
    }
    np.testing.assert_allclose(out.advantages[:2, :2], want[name])
    assert not one.is_alone and not out.advantages[2].any()
