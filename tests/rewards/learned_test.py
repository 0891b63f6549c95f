"""A head is asked once a group, for outcomes or for steps."""

import pytest
import reward_fakes as made

from agentrl_jax import rewards

GROUP = made.group(made.trajectory(0, 0), made.trajectory(0))


@pytest.mark.parametrize(
  'given, want',
  [
    ([0.25, 0.5], [(0.0, 0.25), (0.5,)]),
    ([[1, 2], [3]], [(1.0, 2.0), (3.0,)]),
  ],
)
def test_a_number_is_paid_at_the_end_and_a_list_by_turn(
  monkeypatch, given, want
):
  asked = []

  def head(trajectories):
    asked.append(len(trajectories))
    return given

  monkeypatch.setattr(made, 'head', head, raising=False)
  composed = rewards.compose([('learned', 1.0, {'score': 'reward_fakes:head'})])
  scored = rewards.score(GROUP, *composed)
  assert [t.rewards['total'] for t in scored.trajectories] == want
  assert asked == [2]


def test_a_head_that_fails_scores_nobody(monkeypatch):
  monkeypatch.setattr(made, 'head', lambda ts: [0.5], raising=False)
  composed = rewards.compose([('learned', 1.0, {'score': 'reward_fakes:head'})])
  for t in rewards.score(GROUP, *composed).trajectories:
    assert t.info['reward_error'].endswith('1 scores for 2 trajectories')
  (fault,) = rewards.faults([('learned', 1.0, {'score': 'no_such:head'})])
  assert 'learned: cannot import' in fault


def maker(start):
  """A function of functions, as `agentrl_jax.scorer:load` is."""
  return lambda ts: [[start, 0.75][: len(t.turns)] for t in ts]


def test_progress_is_what_a_turn_added_and_adds_up_to_the_last(monkeypatch):
  monkeypatch.setattr(made, 'head', maker, raising=False)
  options = {'score': 'reward_fakes:head', 'options': {'start': 0.5}}
  for pay, want in (('scores', (0.5, 0.75)), ('progress', (0.5, 0.25))):
    composed = rewards.compose([('learned', 1.0, options | {'pay': pay})])
    first, second = rewards.score(GROUP, *composed).trajectories
    assert first.rewards['total'] == want
    assert second.rewards['total'] == (0.5,)
  (fault,) = rewards.faults([('learned', 1.0, options | {'pay': 'twice'})])
  assert "pay='twice': not one of scores, progress" in fault
