"""Locks which rows networks see: who is asked about, who is trained on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rollout_fakes as made

from agentrl_jax import config as config_lib
from agentrl_jax import losses, types
from agentrl_jax.learner import objective
from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.rollout import credit, updates


def group(*rewards, **fields):
  return types.Group(
    made.TASK,
    tuple(made.append_only([2, 1], reward=r, **fields) for r in rewards),
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


def test_rows_of_several_lengths_add_up_to_the_same_loss(c, draw_params):
  """Loss and gradient, in at most as many programs as there are lengths."""
  config = ModelConfig(vocab_size=64, **PRESETS['tiny'])
  weights = draw_params(config)
  c.train.row_length, c.train.minibatches, c.train.epochs = 32, 1, 1
  sizes = [([20, 7], 1), ([2, 1], 0), ([3, 1], 1), ([1, 9], 0), ([1, 1], 0)]
  played = [made.append_only(n, reward=r) for n, r in sizes * 3]
  groups = [types.Group(made.TASK, tuple(played))]
  lines = credit.lines(played, 27)
  policy = objective.PolicyObjective(
    losses.LOSSES['gspo'], sequence='trajectory', kl_coef=0.1, head_chunk=4
  )

  @jax.jit
  def gradient(weights, batch, extra):
    return jax.value_and_grad(lambda w: policy(config, w, batch, **extra)[0])(
      weights
    )

  found = []
  for shorter in ((), (16, 8)):
    c.train.shorter_rows = shorter
    asked = {'reference_logprobs': behavior}
    told = updates.consult(groups, lines, asked, c, about_all=True)
    np.testing.assert_array_equal(
      told.reference_logprobs, lines.behavior_logprobs
    )
    earned = credit.Assigner(c)(credit.turns(groups, c, 0), told)
    (update,), (extras,) = updates.deal(groups, earned, told, c, 0)
    parts = [gradient(weights, *x) for x in zip(update, extras, strict=True)]
    found.append(jax.tree.map(lambda *x: sum(x), *parts))
    lengths = {batch.tokens.shape[1] for batch in update}
    assert lengths == {32, *shorter}
  for one, other in zip(*map(jax.tree.leaves, found), strict=True):
    largest = np.abs(one).max()
    np.testing.assert_allclose(other, one, rtol=1e-6, atol=3e-6 * largest)
  assert abs(found[0][0]) > 1e-3
  assert gradient._cache_size() <= 3


def dealt_out(groups, c, iteration=0):
  """Trajectories of each update."""
  played = [t for g in groups for t in g.trajectories]
  lines = credit.lines(played, 4)
  earned = credit.Assigner(c)(credit.turns(groups, c, 0), lines)
  dealt, _ = updates.deal(groups, earned, lines, c, iteration)
  return [
    {int(b) for x in update for b in x.row_trajectory[x.mask]}
    for update in dealt
  ]


def test_epochs_and_iterations_deal_in_orders_of_their_own(c):
  groups = [group(*range(8))]
  dealt = dealt_out(groups, c) + dealt_out(groups, c, 1)
  assert all(len(part) == 4 for part in dealt)
  assert len({frozenset(part) for part in dealt[::2]}) == 4
  assert dealt == dealt_out(groups, c) + dealt_out(groups, c, 1)


def test_what_ran_out_of_tokens_is_not_dealt_where_the_config_says_so(c):
  long = group(2, stop_reason=types.StopReason.LENGTH).trajectories
  groups = [types.Group(made.TASK, GROUPS[0].trajectories + long)]
  assert set().union(*dealt_out(groups, c)) == {0, 1, 2}
  c.train.overlong = 'drop'
  assert set().union(*dealt_out(groups, c)) == {0, 1}
