"""Delays repeat, have the median that was asked for, and change no answer."""

import statistics

import pytest

from agentrl_jax import envs, types
from agentrl_jax.envs import latency


def test_delays_are_lognormal_and_repeat():
  some = [latency.seconds(0.2, 'task', i) for i in range(4000)]
  assert some[:9] == [latency.seconds(0.2, 'task', i) for i in range(9)]
  assert statistics.median(some) == pytest.approx(0.2, rel=0.1)
  # p99 / median = 25 by the definition of SIGMA.
  assert sorted(some)[3960] == pytest.approx(5.0, rel=0.4)
  assert latency.seconds(0.4, 'task', 3) == 2 * some[3]


def test_it_answers_as_the_environment_does(monkeypatch):
  slept = []
  monkeypatch.setattr(latency.time, 'sleep', slept.append)
  task = envs.tasks('arithmetic', 'train')[0]
  plain = envs.make('arithmetic')
  slow = latency.make(lambda: envs.make('arithmetic'), 0.5)
  assert slow.reset(task, sample=2) == plain.reset(task, sample=2)
  assert slow.tools == plain.tools and slow.state_key() == plain.state_key()
  action = types.Action('1')
  assert slow.step(action) == plain.step(action)
  assert slept == [latency.seconds(0.5, task.name, 2, 1)]
  slow.close()
