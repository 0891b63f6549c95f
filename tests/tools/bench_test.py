"""Locks what tools/bench.py prints and that its workloads do their work."""

import json

import numpy as np
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
    GROUP=2,
    STEPS=2,
    EPISODE_PROMPT=4,
    ENDS=3,
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


def test_a_whole_step_samples_scores_and_updates(small, capsys, monkeypatch):
  batches, update = [], step.Learner.update

  def seen(self, state, parts, extras):
    batches.append(parts)
    for part, extra in zip(parts, extras, strict=True):
      ratio = np.where(part.mask, extra['reference_logprobs'], 0)
      if len(batches) == 1:  # the reference is what sampled
        gap = np.where(part.mask, ratio - part.behavior_logprobs, 0)
        np.testing.assert_allclose(gap, 0, atol=1e-4)
    return update(self, state, parts, extras)

  monkeypatch.setattr(step.Learner, 'update', seen)
  (row,) = run(capsys, 'grpo')
  assert row['compiles'] == 0
  assert len(batches) == 3
  masks = [np.concatenate([p.mask for p in parts]) for parts in batches]
  assert all((mask.sum(1) == 6).all() for mask in masks)
  earned = np.concatenate([p.advantages for p in batches[0]])
  np.testing.assert_allclose(
    earned.reshape(2, 2, -1).sum(1)[:, -1], 0, atol=1e-5
  )


def test_an_agentic_run_counts_its_compiles_and_trains_what_it_drew(
  small, capsys, monkeypatch
):
  drawn, update = [], step.Learner.update

  def seen(self, state, parts, extras):
    drawn.append(sum(int(part.mask.sum()) for part in parts))
    return update(self, state, parts, extras)

  monkeypatch.setattr(step.Learner, 'update', seen)
  (row,) = run(capsys, 'agentic')
  assert len(drawn) == 2 and row['tokens'] == sum(drawn) > 8
  assert row['compiles'] > 0 and row['compile_s'] > 0


def test_an_unknown_workload_is_refused(capsys):
  with pytest.raises(SystemExit):
    bench.main(['sampel'])
  assert 'multiturn' in capsys.readouterr().err
