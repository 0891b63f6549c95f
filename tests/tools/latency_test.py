"""Locks what the schedules of tools/latency.py are and how they compare."""

import dataclasses

import pytest

from tools import bench, latency


@pytest.fixture
def small(monkeypatch):
  sizes = dict(
    GROUP=2, ITERATIONS=2, SEEDS=2, FEWER=1, TOOLS=(0.0,), LONG=4,
    SIZES=(8, 16), OVERSAMPLE=1, SPEED=200.0,
  )  # fmt: skip
  for name, value in sizes.items():
    monkeypatch.setattr(latency, name, value)
  plans = {
    name: dataclasses.replace(plan, tasks=4, slots=2, iterations=2)
    for name, plan in latency.PLANS.items()
  }
  monkeypatch.setattr(latency, 'PLANS', plans)
  return plans


def test_schedules_have_the_same_samples_and_bounds_hold(small):
  played = {name: latency.play(plan) for name, plan in small.items()}
  told = latency.compare(played)  # raises if samples differ
  for name in small:
    assert 0 < told[f'{name}_live'] <= told[f'{name}_busy'] <= 1
    assert told[f'{name}_s'] >= told['ideal_s']
  assert 1 < told['async_ratio'] <= told['async_bound']
  assert told['rollout_ratio'] <= told['rollout_bound']
  assert told['ahead_s'] < told['sync_s'] < told['waves_s']


def test_other_samples_are_noticed(small):
  played = {name: latency.play(plan) for name, plan in small.items()}
  played['sync'] = latency.play(small['sync'], seed=1)
  with pytest.raises(RuntimeError, match='other samples'):
    latency.compare(played)


def test_a_load_takes_the_same_time_each_time(small):
  first, second = (latency.play(small['ahead']) for _ in range(2))
  assert first.wall_s == second.wall_s and first.samples == second.samples


def test_updates_are_waited_for_only_where_nothing_is_played(small):
  sync = latency.play(small['sync'])
  updates = len('ab') * latency.UPDATE_S
  assert sync.wall_s == pytest.approx(sync.rollout_s + updates)


def test_a_line_for_each_question(small, capsys):
  assert bench.main(['latency']) == 0
  names = [line.split('"')[3] for line in capsys.readouterr().out.splitlines()]
  assert names == [
    'load', 'tool_0', 'alike', 'oversample', 'linear', 'memory', 'threads',
  ]  # fmt: skip
