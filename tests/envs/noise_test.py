"""Noise is the same for the same call, and of the strength that was asked."""

import pytest

from agentrl_jax.envs import noise


def test_failures_come_as_often_as_asked_and_repeat():
  made = noise.Noise(failing=0.3).of(7, 0)
  fails = [made.fails(number) for number in range(4000)]
  assert fails == [made.fails(number) for number in range(4000)]
  assert 0.27 < sum(fails) / 4000 < 0.33


@pytest.mark.parametrize('shared', [True, False])
def test_members_of_a_group_share_failures_if_asked(shared):
  first, second = (
    noise.Noise(failing=0.5, shared=shared).of(7, sample) for sample in (0, 1)
  )
  same = [first.fails(i) == second.fails(i) for i in range(100)]
  assert all(same) == shared


def test_other_tasks_meet_other_failures():
  made = noise.Noise(failing=0.5)
  first, second = made.of(1, 0), made.of(2, 0)
  assert any(first.fails(i) != second.fails(i) for i in range(50))


def test_a_notice_depends_on_the_reply_and_the_world_only():
  made = noise.Noise(notices=0.5).of(3, 0)
  replies = [f'row {i}' for i in range(200)]
  dressed = [made.dress(reply) for reply in replies]
  assert dressed == [made.of(3, 5).dress(reply) for reply in replies]
  assert dressed != [made.of(4, 0).dress(reply) for reply in replies]
  carried = [text for text in dressed if text.count('\n')]
  assert 70 < len(carried) < 130
  assert {text.split('\n')[1] for text in carried} == set(noise.NOTICES)


def test_without_noise_nothing_changes():
  made = noise.Noise()
  assert not any(made.fails(i) for i in range(100))
  assert made.dress('row') == 'row'


@pytest.mark.parametrize(
  'options, field',
  [
    ({'failing': 1.1}, 'failing_tools'),
    ({'failing': -0.1}, 'failing_tools'),
    ({'notices': 1.5}, 'distractors'),
  ],
)
def test_what_is_no_probability_is_refused(options, field):
  with pytest.raises(ValueError, match=field):
    noise.Noise(**options)
