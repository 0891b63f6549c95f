"""Averages of an iteration by hand; the first metric that is not finite."""

import math

import pytest

from agentrl_jax.learner import summary
from agentrl_jax.learner.objective import Metrics


def measured(**changes):
  sums = dict(
    loss=0.5,
    policy=0.25,
    kl=0.0,
    tokens=10.0,
    entropy=20.0,
    ratio=11.0,
    ratio_square=12.1,
    clipped=1.0,
    gap=0.01,
    own_tokens=10.0,
    weight=1.0,
  )
  return Metrics({**sums, **changes}, {'gap': 0.002, 'ratio': 0.003})


INFO = {'grad_norm': 2.0, 'update_norm': 0.1, 'finite': 1.0}


def test_means_are_over_updates_or_over_all_tokens():
  second = measured(tokens=30.0, entropy=20.0, policy=0.75, gap=9.0)
  row = summary.update_metrics([measured(), second], [INFO, INFO])
  expected = {
    'loss/policy': 0.5,  # (0.25 + 0.75) / 2
    'policy/entropy': 1.0,  # (20 + 20) / (10 + 30)
    'policy/ratio_mean': 0.55,  # (11 + 11) / 40
    'policy/ess': 0.5,  # 22² / (40 · 24.2)
    'policy/clip_fraction': 0.05,
    'sampler/logprob_gap': 0.001,  # of the first update alone
    'policy/first_ratio_deviation': 0.003,
    'train/grad_norm': 2.0,
    'train/minibatches': 2.0,
    'train/tokens': 40.0,
  }
  assert {k: row[k] for k in expected} == pytest.approx(expected)


def test_no_update_no_numbers():
  assert summary.update_metrics([], []) == {}


def test_the_first_that_is_not_finite_is_named():
  good, bad = measured(), measured(entropy=math.nan)
  assert summary.first_bad([good, bad], [INFO, INFO]) == 'entropy'
  broken = {**INFO, 'grad_norm': math.inf}
  assert summary.first_bad([good, bad], [broken, INFO]) == 'grad_norm'
  assert summary.first_bad([good], [INFO]) == 'grad_norm'


def test_values_and_corrections_have_rows_where_they_are():
  plain = summary.update_metrics([measured()], [INFO])
  assert not any(k.startswith(('value/', 'correction/')) for k in plain)
  ages = dict(age=15.0, age_0=2.0, age_1=3.0, age_2=1.0, age_3=4.0)
  off = dict(
    correction_ratio=20.0,
    correction_square=80.0,
    correction_kept=9.0,
    correction_kl=2.0,
  )
  row = summary.update_metrics([measured(value=0.5, **off, **ages)], [INFO])
  expected = {
    'value/loss': 0.5,
    'correction/ess': 0.5,  # 20² / (10 · 80)
    'correction/masked_share': 0.1,
    'correction/mismatch_kl': 0.2,
    'correction/staleness_mean': 1.5,
    'correction/staleness_3': 0.4,
  }
  assert {k: row[k] for k in expected} == pytest.approx(expected)
