"""Where the line is, and that what is said leads to the cause."""

import pytest
import rollout_fakes as made

from agentrl_jax import types
from agentrl_jax.rollout import breaker

StopReason = types.StopReason


def failed(num, reason=StopReason.ENV_ERROR, **info):
  return [
    made.trajectory([], [], stop_reason=reason, info=info or {'error': 'gone'})
    for _ in range(num)
  ]


def trips(guard, num, total):
  try:
    guard.check(failed(num), total)
  except breaker.TooManyFailures:
    return True
  return False


@pytest.mark.parametrize(
  'share, count, total, most',
  [
    (0.5, 0, 16, 8),  # a half is allowed, above it not
    (0.25, 0, 10, 2),
    (0.01, 0, 16, 1),  # one alone never trips
    (0.5, 0, 1, 1),
    (1.0, 0, 5, 5),
    (0.5, 3, 16, 2),  # three are not
    (0.1, 9, 16, 1),  # the share still holds
    (1.0, 1, 16, 0),
  ],
)
def test_the_most_failures_that_are_let_through(share, count, total, most):
  guard = breaker.Breaker(share, count)
  assert not trips(guard, most, total)
  assert most == total or trips(guard, most + 1, total)


def test_what_is_said():
  mixed = failed(1) + failed(3, StopReason.ENV_TIMEOUT)
  with pytest.raises(breaker.TooManyFailures) as e:
    breaker.Breaker(0.5).check(mixed, 6)
  assert str(e.value) == (
    '4 of 6 episodes failed (3 env_timeout, 1 env_error): '
    'config.rollout.failure_limit=0.5; the first, flight/train/0: env_error: '
    'gone. Repair the environment or the reward, or raise the limit'
  )


def test_a_failed_reward_says_which():
  bad = failed(2, StopReason.REWARD_ERROR, reward_error='judge: no answer')
  with pytest.raises(breaker.TooManyFailures, match='judge: no answer') as e:
    breaker.Breaker(count=2).check(bad, 6)
  assert 'config.rollout.failure_count=2' in str(e.value)
