"""Tokens, masks and advantages arrive where they were born."""

import numpy as np
import pytest
import rollout_fakes as made

from agentrl_jax import losses, types
from agentrl_jax.rollout import anchors, collate

StopReason = types.StopReason


def two_contexts():
  """A windowed episode: turns 0 and 2 in context 0, turn 1 in context 1."""
  first = made.context((1, False), (2, True), (1, False), (1, True), version=7)
  second = made.context((2, False), (1, True), first=50, version=8)
  turns = [made.turn(1, 3), made.turn(2, 3, context=1), made.turn(4, 5)]
  return made.trajectory(turns, [first, second])


def test_packed_rows_by_hand():
  played = [two_contexts(), made.append_only([1], prompt=1)]
  advantages = np.float32([[1, 2, 3], [-4, 9, 9]])
  batch = collate.token_rows(
    played, advantages, [0, 1], row_length=8, num_rows=2
  )
  # Contexts of 5, 3 and 2 tokens: [5 + 3], [2]; best fit, longest first.
  expected = {
    'tokens': [[10, 11, 12, 13, 14, 50, 51, 52], [10, 11, 0, 0, 0, 0, 0, 0]],
    'positions': [[0, 1, 2, 3, 4, 0, 1, 2], [0, 1, 0, 0, 0, 0, 0, 0]],
    'segment_ids': [[1, 1, 1, 1, 1, 2, 2, 2], [1, 1, 0, 0, 0, 0, 0, 0]],
    'mask': [[0, 1, 1, 0, 1, 0, 0, 1], [0, 1, 0, 0, 0, 0, 0, 0]],
    'advantages': [[0, 1, 1, 0, 3, 0, 0, 2], [0, -4, 0, 0, 0, 0, 0, 0]],
    'behavior_logprobs': [
      [0, -0.625, -0.75, 0, -1, 0, 0, -0.75],
      [0, -0.625, 0, 0, 0, 0, 0, 0],
    ],
    'versions': [
      [-1, 7, 7, -1, 7, -1, -1, 8],
      [-1, 3, -1, -1, -1, -1, -1, -1],
    ],
    'row_trajectory': [[0] * 8, [1, 1, -1, -1, -1, -1, -1, -1]],
    'row_turn': [
      [-1, 0, 0, -1, 2, -1, -1, 1],
      [-1, 0, -1, -1, -1, -1, -1, -1],
    ],
    'weights': np.zeros((2, 8)),
  }
  assert set(expected) | {'routes'} == set(batch) and batch.routes is None
  for name, value in expected.items():
    np.testing.assert_array_equal(batch[name], value, err_msg=name)


def test_rows_come_in_multiples_and_the_rest_is_nothing():
  batch = collate.token_rows(
    [made.append_only([2])], np.ones((1, 1)), [0], row_length=8, num_rows=4
  )
  assert batch.tokens.shape == (4, 8)
  empty = collate.empty_rows(3, 8)
  for name in set(batch) - {'routes'}:
    np.testing.assert_array_equal(batch[name][1:], empty[name], err_msg=name)
  assert not empty.mask.any() and (empty.row_trajectory == -1).all()


def test_only_the_chosen_trajectories_are_packed():
  played = [made.append_only([length]) for length in (1, 2, 3)]
  batch = collate.token_rows(
    played, np.float32([[1], [2], [3]]), [2, 0], row_length=16, num_rows=1
  )
  assert set(batch.row_trajectory.ravel()) == {-1, 0, 2}
  assert set(batch.advantages[batch.mask]) == {1.0, 3.0}


def test_a_context_longer_than_a_row_is_refused():
  with pytest.raises(ValueError, match='does not fit row_length=4'):
    collate.token_rows(
      [made.append_only([4])], np.ones((1, 1)), [0], row_length=4, num_rows=1
    )


def random_episodes(seed, num=6, num_turns=4):
  draw = np.random.default_rng(seed)
  played = []
  for _ in range(num):
    if draw.random() < 0.3:
      played.append(two_contexts())
    else:
      lengths = draw.integers(1, 5, draw.integers(1, num_turns + 1))
      played.append(made.append_only(lengths.tolist()))
  advantages = draw.normal(size=(num, num_turns)).astype(np.float32)
  return played, advantages


def weighted(played, advantages, weighting, row_length=24, **options):
  batch = collate.token_rows(
    played, advantages, range(len(played)), row_length=row_length, num_rows=2
  )
  return collate.with_weights(
    batch, weighting=weighting, num_trajectories=len(played), **options
  )


@pytest.mark.parametrize('seed', range(5))
def test_each_turns_advantage_is_on_its_sampled_tokens(seed):
  played, advantages = random_episodes(seed)
  batch = weighted(played, advantages, 'trajectory')
  for b, episode in enumerate(played):
    for s, turn in enumerate(episode.turns):
      place = (batch.row_trajectory == b) & (batch.row_turn == s)
      context = episode.contexts[turn.context]
      span = slice(turn.start, turn.end)
      assert batch.tokens[place].tolist() == list(context.tokens[span])
      assert (batch.advantages[place] == advantages[b, s]).all()
      assert batch.mask[place].all()
      logprobs = np.float32(context.logprobs[span])
      np.testing.assert_array_equal(batch.behavior_logprobs[place], logprobs)
  # Every sampled token is in a turn, no other token is.
  np.testing.assert_array_equal(batch.mask, batch.row_turn >= 0)


@pytest.mark.parametrize('seed', range(5))
def test_trajectories_weigh_the_same_however_they_are_cut(seed):
  played, advantages = random_episodes(seed)
  batch = weighted(played, advantages, 'trajectory')
  sums = [
    batch.weights[batch.row_trajectory == b].sum() for b in range(len(played))
  ]
  np.testing.assert_allclose(sums, 1 / len(played), rtol=1e-6)
  assert not batch.weights[~batch.mask].any()


def test_weights_of_every_kind_by_hand():
  played = [two_contexts(), made.append_only([1], prompt=1)]  # 3 + 1 and 1
  advantages = np.zeros((2, 3), np.float32)

  def weights(weighting, **options):
    # Two rows, [5 + 3] and [2]: a segment is told by its row as well.
    batch = weighted(played, advantages, weighting, 8, **options)
    long = batch.weights[(batch.segment_ids == 1) & batch.mask][:3]
    return long[0], batch.weights.sum()

  assert weights('token') == pytest.approx((1 / 5, 1))
  # Sequences are contexts: 3, 1 and 1 sampled tokens.
  assert weights('sequence_token_mean') == pytest.approx((1 / 9, 1))
  assert weights('sequence_token_sum') == pytest.approx((1 / 3, 5 / 3))
  assert weights('trajectory') == pytest.approx((1 / 8, 1))
  assert weights('constant', constant=50.0) == pytest.approx((1 / 50, 0.1))


def test_a_minibatch_of_some_trajectories_still_adds_up_to_one():
  played, advantages = random_episodes(0)
  batch = collate.token_rows(
    played, advantages, [1, 4], row_length=24, num_rows=2
  )
  batch = collate.with_weights(
    batch, weighting='trajectory', num_trajectories=len(played)
  )
  assert batch.weights.sum() == pytest.approx(1.0)
  assert batch.weights[batch.row_trajectory == 4].sum() == pytest.approx(0.5)


def test_microbatches_are_the_whole():
  played, advantages = random_episodes(1)
  batch = weighted(played, advantages, 'trajectory')
  parts = collate.microbatches(batch, 2)
  assert len(parts) > 1 and {p.tokens.shape for p in parts} == {(2, 24)}
  for name in set(batch) - {'routes'}:
    joined = np.concatenate([part[name] for part in parts])
    np.testing.assert_array_equal(joined, batch[name], err_msg=name)
  values = np.cos(batch.tokens)

  def loss(batch):
    return losses.aggregate(np.cos(batch.tokens), batch.weights)

  whole = np.sum(values * batch.weights)
  np.testing.assert_allclose(sum(map(loss, parts)), whole, rtol=1e-5)


def test_rows_are_cut_where_no_context_is():
  # Contexts of 7, 3, 3 and 2 tokens in rows of 8 that may be halves.
  played = [made.append_only([n]) for n in (5, 1, 1)]
  played.append(made.append_only([1], prompt=1))
  shape = dict(row_length=8, num_rows=1)
  batch = collate.token_rows(
    played, np.zeros((4, 1)), [0, 1, 2, 3], shorter=(4, 2), **shape
  )
  np.testing.assert_array_equal(
    batch.row_trajectory,
    [
      [0, 0, 0, 0, 0, 0, 0, -1],
      [1, 1, 1, -1, 2, 2, 2, -1],
      [3, 3, -1, -1, -1, -1, -1, -1],
    ],
  )
  pieces = collate.cuts(batch, 1, (4, 2))
  assert pieces == [8, 4, 2]
  parts = collate.microbatches(batch, 1, pieces)
  assert [x.tokens.shape for x in parts] == [(1, 8), (2, 4), (4, 2)]
  # Segments count from 1 again in each piece; all else only moves.
  np.testing.assert_array_equal(
    parts[1].segment_ids, [[1, 1, 1, 0], [1, 1, 1, 0]]
  )
  np.testing.assert_array_equal(parts[2].segment_ids, [[1, 1]] + [[0, 0]] * 3)
  for name in set(batch) - {'segment_ids', 'routes'}:
    moved = np.concatenate([x[name].reshape(1, 8) for x in parts])
    np.testing.assert_array_equal(moved, batch[name], err_msg=name)
  # Two rows together are cut as the longer of them needs it.
  pair = batch.replace(segment_ids=batch.segment_ids[1:])
  assert collate.cuts(pair, 2, (4, 2)) == [4]
  assert collate.cuts(batch, 1, ()) == []  # nothing to choose between


def test_segments_that_touch_are_cut_between():
  batch = collate.empty_rows(1, 8)
  batch.segment_ids[:] = [1, 1, 1, 1, 2, 2, 3, 3]
  assert collate.cuts(batch, 1, (4, 2)) == [4]
  (part,) = collate.microbatches(batch, 1, [4])
  np.testing.assert_array_equal(part.segment_ids, [[1, 1, 1, 1], [1, 1, 2, 2]])


def test_weights_compile_once_whatever_the_number_of_rows():
  before = collate._weights._cache_size()
  for count in (2, 3, 4):
    played = [made.append_only([3])] * 4
    batch = collate.token_rows(
      played, np.ones((4, 1)), range(count), row_length=40, num_rows=1
    )
    collate.with_weights(batch, weighting='trajectory', num_trajectories=4)
  assert collate._weights._cache_size() == before + 1


def lay_out(groups, **options):
  keys = [
    [[t.state_key for t in one.turns] for one in g.trajectories] for g in groups
  ]
  ids = anchors.exact(keys, num_turns=3)
  return collate.turn_batch(
    groups, ids, anchors.history(ids, 2), num_turns=3, **options
  )


def make_groups():
  def one(keys, total, **fields):
    turns = [
      made.turn(i, i + 1, state_key=key, text=f'say {key}', valid=key != 'bad')
      for i, key in enumerate(keys)
    ]
    return made.trajectory(turns, [], total=total, **fields)

  first = one(['a', 'b'], [0, 1])
  second = one(['a', 'bad', 'b'], [0, 0, 0.5])
  failed = one(['a', 'b'], [9, 9], stop_reason=StopReason.ENV_ERROR)
  return [
    types.Group(made.TASK, (first, failed)),
    types.Group(made.TASK, (second,)),
  ]


def test_turns_by_hand():
  turns = lay_out(make_groups(), invalid_penalty=0.1)
  np.testing.assert_array_equal(
    turns.turn_rewards, np.float32([[0, 1, 0], [0, 0, 0], [0, 0, 0.5]])
  )
  np.testing.assert_array_equal(
    turns.turn_mask, [[1, 1, 0], [0, 0, 0], [1, 1, 1]]
  )
  np.testing.assert_array_equal(turns.group_ids, [0, 0, 1])
  np.testing.assert_array_equal(
    turns.turn_penalties, np.float32([[0, 0, 0], [0, 0, 0], [0, 0.1, 0]])
  )
  anchors_ = turns.anchor_ids
  np.testing.assert_array_equal(anchors_ >= 0, turns.turn_mask)
  assert len(set(anchors_[anchors_ >= 0].tolist())) == 5  # groups apart
  np.testing.assert_array_equal(
    turns.history_ids[..., 1] >= 0, [[0, 1, 0], [0, 0, 0], [0, 1, 1]]
  )
  # 'say a', 'say b', 'say bad': an action is its text, in any group.
  np.testing.assert_array_equal(
    turns.action_ids, [[0, 1, -1], [-1, -1, -1], [0, 2, 1]]
  )


def test_a_failure_changes_nobody_elses_numbers():
  groups = make_groups()
  with_failure = lay_out(groups)
  alone = lay_out(
    [
      types.Group(made.TASK, groups[0].trajectories[:1]),
      groups[1],
    ]
  )
  for name in ('turn_rewards', 'turn_mask', 'turn_penalties', 'action_ids'):
    np.testing.assert_array_equal(with_failure[name][[0, 2]], alone[name])
    assert not with_failure[name][1].any() or name == 'action_ids'
