"""A head learns what tells good steps from bad, and is read by place."""

import dataclasses
import random

import numpy as np
import pytest

from agentrl_jax import rewards, scorer, types
from agentrl_jax.rewards import calibration
from agentrl_jax.rewards.steps import Steps


def record(seed, most=4):
  """Steps that say red or blue; red is good."""
  draw = random.Random(seed)
  said = [draw.choice(['red', 'blue']) for _ in range(draw.randint(1, most))]
  labels = tuple(float(word == 'red') for word in said)
  return Steps(f'task {seed % 3}', tuple(f'take {w}' for w in said), labels)


RECORDS = [record(i) for i in range(60)]


def trajectory(steps):
  def turn(text):
    return types.Turn(0, 0, 0, text, (), '', None, (), 0.0)

  task = types.Task('x', 'train', 0, {})
  prompt = (
    types.Message('system', 'Be good.'),
    types.Message('user', steps.prompt),
  )
  turns = tuple(map(turn, steps.steps))
  return types.Trajectory(task, 0, prompt, turns, (), types.StopReason.DONE)


def train(kind='process', **options):
  options = {'updates': 60, 'batch_rows': 4, 'row_length': 64, **options}
  return scorer.train(RECORDS, kind=kind, vocab_size=280, **options)


@pytest.fixture(scope='module')
def head():
  return train()


def test_it_knows_steps_that_it_has_not_seen(head):
  others = [record(i) for i in range(100, 120)]
  found = scorer.Scorer(head).steps(others)
  assert [len(row) for row in found] == [len(each.steps) for each in others]
  truth = [y > 0 for each in others for y in each.labels]
  assert calibration.auc([x for row in found for x in row], truth) > 0.99


def test_what_it_says_hangs_on_no_neighbour(head):
  score = scorer.Scorer(head)
  together = score.steps(RECORDS[:7])
  for one, row in zip(RECORDS, together):
    np.testing.assert_allclose(score.steps([one])[0], row, atol=1e-5)


def test_beyond_its_row_the_last_score_stays(head):
  short = scorer.Scorer(dataclasses.replace(head, row_length=24))
  long = Steps('task 1', ('take red', *['take blue'] * 20), (0.0,) * 21)
  (row,) = short.steps([long])
  whole = scorer.Scorer(head).steps([dataclasses.replace(
    long, steps=long.steps[:2], labels=(0.0,) * 2
  )])[0]  # fmt: skip
  assert row[:2] == pytest.approx(whole, abs=1e-5)
  assert len(row) == 21 and len(set(row[-5:])) == 1


def test_a_saved_head_is_a_part_of_the_reward(head, tmp_path):
  scorer.save(head, tmp_path / 'head')
  options = {'directory': str(tmp_path / 'head')}
  part = {'score': 'agentrl_jax.scorer:load', 'options': options}
  composed = rewards.compose([('learned', 2.0, part)])
  shown = [trajectory(each) for each in RECORDS[:3]]
  group = types.Group(shown[0].task, tuple(shown))
  scored = rewards.score(group, *composed).trajectories
  want = scorer.Scorer(head).steps(RECORDS[:3])
  for t, row in zip(scored, want):
    assert t.rewards['learned'] == pytest.approx(row, abs=1e-6)
    assert t.rewards['total'] == pytest.approx([2 * x for x in row], abs=1e-6)


def test_an_outcome_head_learns_the_last_label_alone():
  """All steps but the last are labelled wrong, and that must not matter."""
  first = [
    dataclasses.replace(
      each, labels=(*(1 - y for y in each.labels[:-1]), each.labels[-1])
    )
    for each in RECORDS
  ]
  made = scorer.train(
    first, kind='outcome', updates=60, batch_rows=4, row_length=64,
    vocab_size=280,
  )  # fmt: skip
  others = [record(i) for i in range(100, 120)]
  scores = scorer.Scorer(made)([trajectory(each) for each in others])
  assert all(isinstance(x, float) for x in scores)
  assert calibration.auc(scores, [e.labels[-1] > 0 for e in others]) > 0.99


@pytest.mark.parametrize(
  'records, options, said',
  [
    ([], {}, 'no records'),
    (RECORDS, {'kind': 'steps'}, "'steps': not one of process, outcome"),
    ([Steps('a', ('b',), (-1.0,))], {}, r'\[-1.0\]: must be 0 to 1'),
  ],
)
def test_what_it_cannot_learn_from(records, options, said):
  with pytest.raises(ValueError, match=said):
    scorer.train(records, **options)


def test_no_head_is_said_with_the_remedy(tmp_path):
  part = {
    'score': 'agentrl_jax.scorer:load',
    'options': {'directory': str(tmp_path)},
  }
  (fault,) = rewards.faults([('learned', 1.0, part)])
  assert 'holds no head' in fault and 'tools/train_head.py' in fault
