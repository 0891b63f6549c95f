"""Information by hand; rows that hold each pair; who is asked."""

import math

import numpy as np
import pytest
import rollout_fakes as made

from agentrl_jax import types
from agentrl_jax.rollout import dependence

First = dependence.First


def told(scores):
  return dependence.information(np.array(scores))


def test_each_response_possible_under_its_own_prompt_alone_is_one():
  # -1 - log((e^-1 + 0) / 2) = log 2; divided by log 2
  assert told([[-1.0, -900.0], [-900.0, -3.0]]) == pytest.approx((1.0, 1.0))


def test_prompts_that_explain_equally_well_give_nothing():
  assert told([[-2.0] * 3, [-9.0] * 3, [-5.0] * 3]) == pytest.approx((0.0, 0.0))


def test_in_between_by_hand():
  # Response 0: log 0.6 against log((0.6 + 0.2) / 2) = log 1.5
  # Response 1: log 0.1 against log((0.3 + 0.1) / 2) = log 0.5
  scores = np.log([[0.6, 0.2], [0.3, 0.1]])
  mean = (math.log(1.5) + math.log(0.5)) / 2 / math.log(2)
  assert told(scores) == pytest.approx((mean, 0.5))


def test_very_unlikely_responses_do_not_underflow():
  value, _ = told([[-5000.0, -5001.0], [-8000.0, -8000.0]])
  assert math.isfinite(value) and value > 0


def test_every_response_stands_behind_every_prompt():
  asked = [First((1, 2, 3), (7, 8)), First((4,), (9,)), First((5, 6), (7, 7))]
  batch, places = dependence.cross(asked, 8, 2)
  assert batch.tokens.shape[0] % 2 == 0 and batch.tokens.shape[1] == 8
  assert batch.mask.sum() == 3 * (2 + 1 + 2)
  for p, (r, columns) in enumerate(places):
    i, j = divmod(p, 3)
    response, prompt = asked[i].response, asked[j].prompt
    assert tuple(batch.tokens[r, columns]) == response
    before = slice(columns.start - len(prompt), columns.start)
    assert tuple(batch.tokens[r, before]) == prompt
    whole = slice(before.start, columns.stop)
    np.testing.assert_array_equal(
      batch.positions[r, whole], np.arange(len(prompt) + len(response))
    )
    assert len(set(batch.segment_ids[r, whole])) == 1
    assert batch.mask[r, columns].all() and not batch.mask[r, before].any()


def played(prompt, response, **fields):
  """A trajectory whose first turn has these tokens."""
  size = len(prompt), len(response)
  context = types.Context(
    tokens=(*prompt, *response),
    sampled_mask=(False,) * size[0] + (True,) * size[1],
    logprobs=(0.0,) * sum(size),
    versions=(-1,) * sum(size),
  )
  return made.trajectory([made.turn(size[0], sum(size))], [context], **fields)


def test_one_of_each_prompt_and_no_failures():
  failed = types.StopReason.ENV_ERROR
  some = [
    played((1,), (5,), stop_reason=failed),
    made.trajectory([], []),
    played((1,), (6,)),
    played((1,), (7,)),  # the same prompt
    played((2,), (8,) * 9),  # does not fit
    played((3,), (9,)),
    played((4,), (9,)),
  ]
  taken = dependence.firsts(some, 2, 8)
  assert taken == [First((1,), (6,)), First((3,), (9,))]
  assert len(dependence.firsts(some, 9, 8)) == 3


def test_a_prompt_too_long_for_the_longest_response_is_left_out():
  some = [played((1,), (5,) * 6), played((2,) * 6, (5,)), played((3,), (4,))]
  assert [f.prompt for f in dependence.firsts(some, 9, 8)] == [(1,), (3,)]


def listens(batches):
  """Scores of a policy that answers with its prompt's last token."""
  out = []
  for b in batches:
    before = np.pad(b.tokens, [(0, 0), (1, 0)])[:, :-1]
    out.append(np.where(b.tokens == before, -0.1, -9.0) * b.mask)
  return out


def deaf(batches):
  return [np.where(b.mask, -1.5, 0.0) for b in batches]


def test_a_policy_that_listens_and_one_that_does_not():
  some = [played((9, k), (k,)) for k in range(4)]
  options = dict(num_tasks=4, row_length=8, num_rows=2)
  row = dependence.measure(some, listens, **options)
  assert row['watch/input_dependence'] > 0.9
  assert row['watch/input_retrieval'] == 1.0
  row = dependence.measure(some, deaf, **options)
  assert row['watch/input_dependence'] == pytest.approx(0.0)
  assert row['watch/input_retrieval'] == 0.0


def test_a_single_prompt_tells_nothing():
  some = [played((1,), (5,)), played((1,), (6,))]
  options = dict(num_tasks=4, row_length=8, num_rows=2)
  assert dependence.measure(some, listens, **options) == {}
