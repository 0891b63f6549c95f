"""Checks of arrays against records: what they accept, what they refuse."""

import dataclasses

import numpy as np
import pytest
import tiny_run

from agentrl_jax.batch import TurnBatch
from agentrl_jax.doctor import batches, findings
from agentrl_jax.rollout import collate

made = tiny_run.made
# Prompt 2, then 3 and 2 sampled tokens with a reply between; and 1 sampled.
TRAJECTORIES = [made.append_only([3, 2]), made.append_only([1])]
CREDIT = np.array([[1.0, -2.0], [0.5, 0.0]], np.float32)
GOOD = findings.Status.OK


def update(weighting='trajectory', constant=None):
  batch = collate.token_rows(
    TRAJECTORIES, CREDIT, [0, 1], row_length=16, num_rows=2
  )
  batch = collate.with_weights(
    batch, weighting=weighting, num_trajectories=2, constant=constant
  )
  return batches.join(collate.microbatches(batch, 1))


def changed(name, change):
  fields = update()
  return {**fields, name: change(fields[name].copy())}


def test_sound_arrays_pass():
  whole = [update()]
  for finding in (
    batches.mask(whole, TRAJECTORIES),
    batches.rows(whole, TRAJECTORIES, CREDIT),
    batches.weights(whole, 'trajectory'),
  ):
    assert finding.status is GOOD, finding


def test_rows_of_several_lengths_pass():
  played = [*TRAJECTORIES, made.append_only([9])]
  credit = np.array([*CREDIT, [2.0, 0.0]], np.float32)
  batch = collate.token_rows(
    played, credit, [0, 1, 2], row_length=16, num_rows=1, shorter=(8,)
  )
  batch = collate.with_weights(
    batch, weighting='trajectory', num_trajectories=3
  )
  pieces = collate.cuts(batch, 1, (8,))
  assert pieces == [16, 8]
  whole = [batches.join(collate.microbatches(batch, 1, pieces))]
  assert whole[0]['tokens'].shape == (3, 16)
  for finding in (
    batches.mask(whole, played),
    batches.rows(whole, played, credit),
    batches.weights(whole, 'trajectory'),
  ):
    assert finding.status is GOOD, finding


def test_a_turn_without_a_trained_token():
  def drop(mask):
    mask[0, 6:8] = False  # the second turn of the first trajectory
    return mask

  fields = changed('mask', drop)
  assert 'token 6 is of turn 1 and not trained' in (
    batches.mask([fields], TRAJECTORIES).detail
  )
  # Where a drift policy may rewrite some of a turn, all of it is still told.
  partly = batches.mask([fields], TRAJECTORIES, complete=False)
  assert 'turn 1 has no trained token' in partly.detail


@pytest.mark.parametrize('name', ['behavior_logprobs', 'advantages'])
def test_a_shift_is_told_by_name_and_token(name):
  fields = changed(name, lambda x: np.roll(x, 1, axis=1))
  finding = batches.rows([fields], TRAJECTORIES, CREDIT)
  assert f'{name} of token 2 is' in finding.detail
  assert finding.status is findings.Status.FAILED


# 5 and 1 trained tokens in two segments of two trajectories: 6 in all.
WEIGHTS = {
  'token': (1 / 6, 1 / 6),
  'trajectory': (1 / 10, 1 / 2),
  'sequence_token_mean': (1 / 10, 1 / 2),
  'sequence_token_sum': (1 / 2, 1 / 2),
  'constant': (1 / 20, 1 / 20),
}


@pytest.mark.parametrize('weighting', WEIGHTS)
def test_expected_weights_by_hand_and_as_the_product_gives_them(weighting):
  fields = update(weighting, 20.0)
  want = batches.expected_weights(fields, weighting, 20.0)
  for b, each in enumerate(WEIGHTS[weighting]):
    mine = fields['mask'] & (fields['row_trajectory'] == b)
    np.testing.assert_allclose(want[mine], each)
  assert batches.weights([fields], weighting, 20.0).status is GOOD


def test_the_loss_at_ratio_one_by_hand():
  # -Σ w A = -(3/10 * 1 + 2/10 * -2 + 1/2 * 0.5) = -0.15.
  fields = update()
  assert batches.loss(fields, 'ppo_clip', -0.15).status is GOOD
  bad = batches.loss(fields, 'ppo_clip', -0.30)  # a mean over microbatches
  assert bad.detail == '-0.3, by the records -0.15'
  assert bad.status is findings.Status.FAILED
  other = batches.loss(fields, 'reinforce', 3.0)
  assert other.status is findings.Status.NOT_APPLICABLE


def turn_batch():
  mask = np.array([[True, True, False], [True, False, False]])
  return TurnBatch(
    turn_rewards=np.where(mask, 1.0, 0.0).astype(np.float32),
    turn_mask=mask,
    group_ids=np.zeros(2, np.int32),
    anchor_ids=np.full((2, 3), -1, np.int32),
    history_ids=np.full((2, 3, 1), -1, np.int32),
    turn_penalties=np.zeros((2, 3), np.float32),
    action_ids=np.zeros((2, 3), np.int32),
  )


def test_an_estimator_that_averages_over_padding():
  def careful(t):
    mean = (t.turn_rewards * t.turn_mask).sum() / t.turn_mask.sum()
    return np.where(t.turn_mask, t.turn_rewards - mean, 0)

  def careless(t):
    return np.where(t.turn_mask, t.turn_rewards - t.turn_rewards.mean(), 0)

  assert batches.padding(turn_batch(), careful).status is GOOD
  # The mean moves by 3 * 37 / 6 = 18.5.
  assert 'by 18.5' in batches.padding(turn_batch(), careless).detail


def test_a_failure_counts_no_turn():
  failed = dataclasses.replace(
    TRAJECTORIES[1], stop_reason=made.types.StopReason.ENV_ERROR
  )
  batch = turn_batch()
  assert batches.turns(batch, TRAJECTORIES).status is GOOD
  finding = batches.turns(batch, [TRAJECTORIES[0], failed])
  assert 'trajectory 1 has 0 turns that count, the mask 1' in finding.detail
