"""What is trained on: by outcome alone, dealt by the generator, none empty."""

import numpy as np
import pytest
import rollout_fakes as made

from agentrl_jax import advantages, types
from agentrl_jax.rollout import anchors, collate, selection

StopReason = types.StopReason


def group(*rewards, stop_reasons=()):
  reasons = stop_reasons or [StopReason.DONE] * len(rewards)
  return types.Group(
    made.TASK,
    tuple(
      made.append_only([1, 2], reward=reward, stop_reason=reason)
      for reward, reason in zip(rewards, reasons)
    ),
  )


GROUPS = [group(1, 0, 1), group(0, 0, 0), group(1, 1, 1), group(0.5, 0, 0)]


def test_a_group_varies_by_outcome():
  assert selection.varying(GROUPS) == [True, False, False, True]
  assert selection.varying([group(1)]) == [False]
  # Equal up to rounding is equal, as in `advantages.outcome_varies`.
  assert selection.varying([group(100.0, 100.0001)]) == [False]
  assert selection.varying([group(100.0, 100.01)]) == [True]
  # One of eight by 2e-5: the std is 2e-5 / sqrt(8) = 7.1e-6 of the largest.
  assert selection.varying([group(*[100.0] * 7, 100.002)]) == [False]


def test_only_the_sum_of_an_episode_counts():
  early = made.append_only([1, 1], total=[1.0, 0.0])
  late = made.append_only([1, 1], total=[0.5, 0.5])
  same = types.Group(made.TASK, (early, late))
  assert selection.varying([same]) == [False]


def test_failures_have_no_outcome():
  reasons = [StopReason.DONE, StopReason.DONE, StopReason.ENV_ERROR]
  assert selection.varying([group(1, 1, 0, stop_reasons=reasons)]) == [False]
  lost = [StopReason.ENV_TIMEOUT] * 3
  assert selection.varying([group(1, 0, 0, stop_reasons=lost)]) == [False]


@pytest.mark.parametrize('estimator', ['grpo', 'gigpo', 'rloo', 'reinforce'])
def test_the_same_groups_go_whatever_estimates(estimator):
  groups = [*GROUPS, group(0, 0, 1, stop_reasons=[StopReason.DONE] * 3)]
  keys = [[[None, None] for _ in g.trajectories] for g in groups]
  ids = anchors.exact(keys)
  turns = collate.turn_batch(groups, ids, anchors.history(ids, 1), num_turns=2)
  varies = np.asarray(advantages.outcome_varies(turns)).reshape(-1, 3)
  assert (varies == varies[:, :1]).all()
  assert selection.varying(groups) == varies[:, 0].tolist()
  values = np.asarray(advantages.ESTIMATORS[estimator](turns))
  if estimator in ('grpo', 'rloo', 'gigpo'):  # dropping them loses nothing
    assert not values.reshape(len(groups), -1)[~varies[:, 0]].any()


def deal(groups=GROUPS, how='drop', parts=2, seed=0):
  indices = selection.usable(groups, how)
  return selection.minibatches(indices, parts, np.random.default_rng(seed))


def test_dropped_and_kept_trajectories():
  assert sorted(sum(deal(), [])) == [0, 1, 2, 9, 10, 11]
  assert sorted(sum(deal(how='keep'), [])) == list(range(12))


def test_dealing_is_by_the_generator_and_even():
  assert deal(seed=1) == deal(seed=1)
  assert len({str(deal(seed=seed)) for seed in range(8)}) > 1
  assert [len(part) for part in deal(how='keep', parts=5)] == [3, 3, 2, 2, 2]
  for part in deal():
    assert part == sorted(part)


def test_no_update_is_empty():
  assert [len(part) for part in deal(parts=9)] == [1] * 6
  assert deal([group(1, 1), group(0, 0)]) == []


def test_who_taught_nothing_is_in_no_update():
  reasons = [StopReason.DONE, StopReason.ENV_ERROR, StopReason.MAX_TURNS]
  groups = [group(1, 0, 0, stop_reasons=reasons)]
  assert sorted(sum(deal(groups), [])) == [0, 2]
  silent = made.trajectory([], [], stop_reason=StopReason.CONTEXT_FULL)
  groups = [types.Group(made.TASK, (silent, *groups[0].trajectories))]
  assert sorted(sum(deal(groups, 'keep'), [])) == [1, 3]


def test_an_iteration_is_filled_with_groups_that_vary_first():
  varied, dead = (GROUPS[0], GROUPS[3]), (GROUPS[1], GROUPS[2])
  assert selection.fill(GROUPS, 2) == list(varied)
  # Too few vary: those that came first of the others fill it up.
  assert selection.fill(GROUPS, 3) == [*varied, dead[0]]


def test_what_ran_out_of_tokens_is_judged_and_perhaps_not_trained():
  reasons = [StopReason.DONE, StopReason.LENGTH, StopReason.CONTEXT_FULL]
  groups = [group(1, 0, 0, stop_reasons=reasons)]
  assert selection.usable(groups, 'drop') == [0, 1, 2]
  assert selection.usable(groups, 'drop', 'drop') == [0]  # it still varies


def test_every_epoch_has_each_task_once_whatever_the_cuts():
  whole = selection.task_order(5, seed=3, first=0, count=15)
  for epoch in (whole[:5], whole[5:10], whole[10:]):
    assert sorted(epoch) == list(range(5))
  assert whole[:5] != whole[5:10]
  parts = [selection.task_order(5, 3, first, 3) for first in range(0, 15, 3)]
  assert sum(parts, []) == whole
