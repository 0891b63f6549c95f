"""Locks what tools/bench.py prints and that its workloads do their work."""

import json

import pytest

from agentrl_jax.learner import step
from tools import bench


@pytest.fixture
def small(monkeypatch):
  """The workloads on a tiny policy and few tokens."""
  sizes = dict(
    BATCH=4,
    PROMPT=6,
    NEW=6,
    LENGTH=12,
    TURNS=3,
    TURN_NEW=2,
    TURN_OBSERVED=3,
    VOCAB=32,
    PRESET='tiny',
    GEMM=(8, 8, 8),
  )
  for name, value in sizes.items():
    monkeypatch.setattr(bench, name, value)
  cached = bench._policy, bench._gemm_rate
  for function in cached:
    function.cache_clear()
  yield
  for function in cached:
    function.cache_clear()


def run(capsys, *arguments):
  assert bench.main([*arguments, '--repeats=2', '--rows=2']) == 0
  return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_line_a_workload_and_nothing_is_compiled_late(small, capsys):
  rows = run(capsys, 'sample', 'multiturn', 'train', 'logprobs')
  assert [row['name'] for row in rows] == [
    'sample',
    'multiturn',
    'train',
    'logprobs',
  ]
  for row in rows:
    assert row['compiles'] == 0, row
    assert row['tok_s_best'] >= row['tok_s_median'] > 0
    assert row['tok_per_cpu_s'] > 0 and row['peak_rss_mb'] > 0


@pytest.mark.parametrize(
  'name, tokens, fed', [('sample', 24, 24), ('multiturn', 24, 24 + 8 * 4)]
)
def test_the_sampler_draws_the_tokens_that_are_counted(
  small, capsys, monkeypatch, name, tokens, fed
):
  engines = []
  build = bench._engine
  monkeypatch.setattr(
    bench, '_engine', lambda *a: engines.append(build(*a)) or engines[-1]
  )
  run(capsys, name)
  (engine,) = engines
  assert engine.counters.sampled_tokens == 3 * tokens  # cold and two warm calls
  assert engine.counters.extend_tokens == 3 * fed  # nothing is fed twice


def test_an_update_trains_every_row(small, capsys, monkeypatch):
  rows, update = [], step.Learner.update

  def counted(self, state, batches, extras):
    rows.append(sum(int(batch.mask.any(axis=1).sum()) for batch in batches))
    return update(self, state, batches, extras)

  monkeypatch.setattr(step.Learner, 'update', counted)
  run(capsys, 'train')
  assert rows == [4, 4, 4]


def test_an_unknown_workload_is_refused(capsys):
  with pytest.raises(SystemExit):
    bench.main(['sampel'])
  assert 'multiturn' in capsys.readouterr().err
