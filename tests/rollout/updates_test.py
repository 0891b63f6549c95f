"""Locks which rows networks see: who is asked about, who is trained on."""

import jax.numpy as jnp
import numpy as np
import pytest
import rollout_fakes as made

from agentrl_jax import config as config_lib
from agentrl_jax import types
from agentrl_jax.rollout import credit, updates


def group(*rewards):
  return types.Group(
    made.TASK, tuple(made.append_only([2, 1], reward=r) for r in rewards)
  )


GROUPS = [group(1, 0), group(0, 0)]  # the second teaches nothing


@pytest.fixture
def c():
  c = config_lib.default()
  c.rollout.max_turns = 2
  c.train.row_length, c.train.rows, c.train.epochs = 8, 1, 2
  return c


def all_lines():
  played = [t for g in GROUPS for t in g.trajectories]
  return credit.lines(played, 4)


def behavior(rows):
  return [jnp.asarray(batch.behavior_logprobs) for batch in rows]


@pytest.mark.parametrize('about_all, asked', [(True, 4), (False, 2)])
def test_answers_reach_the_lines_of_those_who_are_asked_about(
  about_all, asked, c
):
  lines = all_lines()
  out = updates.consult(
    GROUPS, lines, {'reference_logprobs': behavior}, c, about_all=about_all
  )
  np.testing.assert_array_equal(
    out.reference_logprobs[:asked], lines.behavior_logprobs[:asked]
  )
  assert not out.reference_logprobs[asked:].any()
  assert out.values is None and out.proximal_logprobs is None


def test_nobody_is_asked_without_a_question(c):
  lines = all_lines()
  assert updates.consult(GROUPS, lines, {}, c, about_all=True) is lines


def test_each_epoch_deals_all_that_varies_once_with_its_extras(c):
  lines = updates.consult(
    GROUPS, all_lines(), {'reference_logprobs': behavior}, c, about_all=True
  )
  turns = credit.turns(GROUPS, c, 0)
  earned = credit.Assigner(c)(turns, lines)
  dealt, extras = updates.deal(GROUPS, earned, lines, c, 0)
  assert len(dealt) == len(extras) == 4  # two epochs of two minibatches
  seen = [
    {int(b) for x in update for b in x.row_trajectory[x.mask]}
    for update in dealt
  ]
  for epoch in (seen[:2], seen[2:]):
    assert sorted(map(sorted, epoch)) == [[0], [1]]
  for update, more in zip(dealt, extras, strict=True):
    for batch, extra in zip(update, more, strict=True):
      np.testing.assert_array_equal(
        extra['reference_logprobs'],
        np.where(batch.mask, batch.behavior_logprobs, 0),
      )
