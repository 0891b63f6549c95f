"""Locks what hosts add up; two of them are played one after the other here."""

import dataclasses
import pathlib

import jax
import numpy as np
import pytest
from loading import load

from agentrl_jax import config as config_lib
from agentrl_jax import distributed
from agentrl_jax.batch import TurnBatch
from agentrl_jax.rollout import collate, credit, gathering, hosts, loop
from agentrl_jax.types import Group, Task

ROOT = pathlib.Path(__file__).parents[2]


made = load(ROOT / 'tests' / 'rollout' / 'rollout_fakes.py')


class _Told(Exception):
  """What a host has said."""


@pytest.fixture
def two_hosts(monkeypatch):
  """f(work): calls work(i) as host i of two; returns both results.

  What both say is heard first, then they are called again with the answers.
  """

  def each(work):
    out = []
    for i in range(2):
      monkeypatch.setattr(distributed, 'index', lambda i=i: i)
      try:
        out.append(work(i))
      except _Told as e:
        out.append(e.args[0])
    return out

  def say(value):
    raise _Told(value)

  def play(work, verb, answer):
    monkeypatch.setattr(distributed, 'count', lambda: 2)
    monkeypatch.setattr(distributed, verb, say)
    heard = answer(each(work))
    monkeypatch.setattr(distributed, verb, lambda _: heard)
    return each(work)

  return play


def _joined(told):
  return jax.tree.map(lambda *x: np.concatenate(x), *told)


def turns(returns):
  """One turn a trajectory, one group, all in the same state."""
  size = len(returns)
  ids = np.zeros((size, 1), np.int32)
  return TurnBatch(
    turn_rewards=np.array(returns, np.float32)[:, None],
    turn_mask=np.ones((size, 1), bool),
    group_ids=np.zeros(size, np.int32),
    anchor_ids=ids,
    history_ids=ids[..., None],
    turn_penalties=np.zeros((size, 1), np.float32),
    action_ids=np.arange(size, dtype=np.int32)[:, None],
  )


def lines(size):
  return credit.Lines(
    np.zeros((size, 2), np.int32), np.zeros((size, 2), np.float32)
  )


# Returns of the trajectories of each host.
RETURNS = ([1.0, 0.0], [1.0, 1.0])


@pytest.mark.parametrize(
  'estimator, expected',
  [
    # Mean 3/4 and deviation 1/2 of all four.
    ('rebn', [[1 / 2, -3 / 2], [1 / 2, 1 / 2]]),
    # Within a group: the same id on both hosts is not the same group.
    ('rloo', [[1, -1], [0, 0]]),
  ],
)
def test_credit_is_by_the_statistics_of_all(two_hosts, estimator, expected):
  config = config_lib.default()
  config.advantage.estimator = estimator
  assign = credit.Assigner(config)

  def work(i):
    return hosts.credit_of_all(
      assign, turns(RETURNS[i]), lines(2), trained=[0, 1]
    )

  both = two_hosts(work, 'gather', _joined)
  for earned, values in zip(both, expected, strict=True):
    np.testing.assert_allclose(earned.advantages[:, 0], values, atol=1e-6)
    np.testing.assert_allclose(earned.by_turn[:, 0], values, atol=1e-6)
    # Of the two groups, that of the second host has equal returns.
    assert earned.measures['advantage/dead_groups'] == pytest.approx(1 / 2)


def test_lines_are_told_only_where_they_are_read(two_hosts):
  said = []

  def answer(told):
    said.append(set(told[0][1]))
    return _joined(told)

  for kl in (0.0, 0.1):
    config = config_lib.default()
    config.advantage.estimator = 'rloo'
    config.advantage.kl_in_reward = kl
    assign = credit.Assigner(config)
    made = dataclasses.replace(
      lines(2), reference_logprobs=np.zeros((2, 2), np.float32)
    )
    two_hosts(
      lambda i, a=assign, m=made: hosts.credit_of_all(
        a, turns(RETURNS[i]), m, trained=[0, 1]
      ),
      'gather',
      answer,
    )
  fields = {'turn', 'behavior_logprobs', 'reference_logprobs'}
  assert said == [set(), fields]


def test_one_host_gets_what_it_always_got():
  config = config_lib.default()
  config.advantage.estimator = 'rebn'
  assign = credit.Assigner(config)
  given = turns(RETURNS[0]), lines(2)
  ours = hosts.credit_of_all(assign, *given, trained=[0, 1])
  np.testing.assert_array_equal(ours.advantages, assign(*given).advantages)


def rows(*lengths):
  """A row for each trajectory, of that many trained tokens."""
  batch = collate.empty_rows(len(lengths), 8)
  for r, length in enumerate(lengths):
    batch.mask[r, :length] = True
    batch.segment_ids[r, :length] = 1
    batch.row_trajectory[r, :length] = r
  return batch


@pytest.mark.parametrize(
  'weighting, expected',
  [
    ('token', [[1 / 9] * 3, [1 / 9]]),  # 3 and 1 + 5 tokens
    ('trajectory', [[1 / 9] * 3, [1 / 3]]),  # 3 trajectories, of 3, 1, 5
    ('sequence_token_sum', [[1 / 3] * 3, [1 / 3]]),
    ('constant', [[1 / 4] * 3, [1 / 4]]),
  ],
)
def test_weights_are_over_the_rows_of_all(two_hosts, weighting, expected):
  given = [rows(3), rows(1, 5)]

  def work(i):
    batch = collate.with_weights(
      given[i], weighting=weighting, num_trajectories=2, constant=4.0
    )
    return hosts.level([batch], weighting, collate.empty_rows(1, 8))

  (first,), (second,) = two_hosts(work, 'exchange', list)
  assert len(first.mask) == len(second.mask) == 2
  np.testing.assert_allclose(first.weights[0, :3], expected[0], rtol=1e-6)
  np.testing.assert_allclose(second.weights[0, :1], expected[1], rtol=1e-6)
  assert not first.mask[1].any() and not first.weights[1].any()


def test_a_host_without_an_update_gets_empty_rows(two_hosts):
  given = [[], [rows(3)]]
  first, second = two_hosts(
    lambda i: hosts.level(given[i], 'token', collate.empty_rows(1, 8)),
    'exchange',
    list,
  )
  assert len(first) == len(second) == 1
  assert not first[0].mask.any() and second[0].mask.sum() == 3


def test_hosts_have_routes_where_one_has(two_hosts):
  routes = np.ones((1, 8, 3, 2), np.int8)
  given = [[], [rows(3).replace(routes=routes)]]
  first, second = two_hosts(
    lambda i: hosts.level(given[i], 'token', collate.empty_rows(1, 8)),
    'exchange',
    list,
  )
  assert (first[0].routes == -1).all() and (second[0].routes == 1).all()
  assert first[0].routes.shape == routes.shape
  assert first[0].routes.dtype == np.int8


def test_what_hosts_ask_about_has_routes_where_one_has(two_hosts):
  given = [rows(3), rows(3).replace(routes=np.ones((1, 8, 3, 2), np.int8))]
  first, second = two_hosts(
    lambda i: hosts.with_routes_of_all(given[i]), 'exchange', list
  )
  assert (first.routes == -1).all() and (second.routes == 1).all()
  assert collate.route_kind(first) == collate.route_kind(second)


def test_groups_are_played_where_they_are_and_samples_never_twice(monkeypatch):
  tasks = [Task('echo', 'train', i, {}) for i in range(3)]
  monkeypatch.setattr(distributed, 'count', lambda: 2)
  played = []
  for i in range(2):
    monkeypatch.setattr(distributed, 'index', lambda i=i: i)
    times = gathering.Times()
    first = gathering.entries([*tasks, tasks[0]], times, 2)
    again = gathering.entries([tasks[0], tasks[1]], times, 2)
    played.append([(e.task.index, e.sample) for e in first + again])
  assert played[0] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 4), (0, 5)]
  # Task 0 comes again within the round: other samples than on the other host.
  assert played[1] == [(2, 0), (2, 1), (0, 2), (0, 3), (1, 2), (1, 3)]


def test_all_refill_while_one_lacks_groups(monkeypatch):
  """Host 0 has what it needs after the first round, host 1 after the second."""
  config = config_lib.default()
  config.rollout.tasks = 2
  config.train.constant_groups = 'refill'
  tasks = [Task('echo', 'train', i, {}) for i in range(20)]
  monkeypatch.setattr(distributed, 'count', lambda: 2)
  monkeypatch.setattr(distributed, 'together', lambda work, polite=(): work())
  for i in range(2):
    lacked = iter([1, 0])  # the most that a host lacks, after each round
    monkeypatch.setattr(distributed, 'index', lambda i=i: i)
    monkeypatch.setattr(distributed, 'most', lambda _, it=lacked: next(it))
    rounds = []

    def play(chosen, _, i=i, rounds=rounds):
      rounds.append(len(chosen))
      varies = i == 0 or len(rounds) == 2
      return [
        Group(task, tuple(episode(task, varies and s) for s in range(2)))
        for task in chosen[distributed.own(len(chosen))]
      ]

    groups, played, place = gathering.gather(play, tasks, 0, config)
    assert rounds == [2, 2] and place == 4 and len(played) == 2
    assert groups == [played[i]]  # the one that varies


def episode(task, reward):
  return made.append_only([2], reward=float(reward), task=task)


def test_trajectories_of_hosts_lie_side_by_side(monkeypatch):
  assert hosts.kind('train') == 'train'
  monkeypatch.setattr(distributed, 'index', lambda: 3)
  assert hosts.kind('train') == 'train_p3'


def test_one_process_keeps_its_row():
  row = {'rollout/success': 0.5}
  assert hosts.combine(row) == row and hosts.combine(row) is not row


def test_an_interrupted_host_interrupts():
  def play(chosen, times):
    raise loop.Interrupted

  tasks = [Task('echo', 'train', i, {}) for i in range(3)]
  with pytest.raises(loop.Interrupted):
    gathering.gather(play, tasks, 0, config_lib.default())
