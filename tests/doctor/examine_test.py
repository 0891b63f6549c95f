"""When a run is examined, what numbers alone tell, and what stops it."""

import math

import pytest
import tiny_run

from agentrl_jax.doctor import examine, findings

made = tiny_run.made
GOOD, BAD = findings.Status.OK, findings.Status.FAILED


def handover(worst, gap, dtype, bound=1e-4):
  row = {
    'sampler/published_equal': 1.0,
    'policy/first_ratio_deviation': worst,
    'sampler/logprob_gap': gap,
  }
  return {f.check: f.status for f in examine.handover(row, dtype, bound)}


@pytest.mark.parametrize(
  'worst, gap, dtype, ratio',
  [
    (9e-5, 1e-6, 'float32', GOOD),
    (2e-4, 1e-6, 'float32', BAD),
    (0.5, 1e-2, 'bfloat16', GOOD),  # a mean is asked of bfloat16
    (0.5, 3e-2, 'bfloat16', BAD),
    (math.nan, math.nan, 'float32', BAD),
  ],
)
def test_bounds_of_the_ratio(worst, gap, dtype, ratio):
  assert handover(worst, gap, dtype)['ratio'] is ratio


def test_a_deep_model_may_round_more():
  assert handover(2e-4, 1e-6, 'float32', 1e-3)['ratio'] is GOOD
  assert handover(2e-3, 1e-6, 'float32', 1e-3)['ratio'] is BAD
  assert handover(2e-3, 1e-6, 'bfloat16', 1e-4)['ratio'] is GOOD


@pytest.mark.parametrize('ratio, failed', (('1e-4', 1), ('1e-3', 0)))
def test_the_config_says_how_much(ratio, failed):
  config = tiny_run.config(
    **{'doctor.every': '0', 'doctor.strict': 'none', 'doctor.ratio': ratio}
  )
  doctor = examine.Doctor(config, None, 'float32', lambda text: None)
  doctor._first = False  # numbers only
  row = {'policy/first_ratio_deviation': 2e-4, 'sampler/logprob_gap': 1e-6}
  evidence = examine.Evidence(
    iteration=3, trajectories=(), turns=None, updates=(), row=row, versions={3},
    credit=None, estimator=None, heard=None,
  )  # fmt: skip
  assert doctor.examine(evidence)['doctor/failed'] == failed


def test_without_an_update_there_is_no_ratio():
  row = {'sampler/published_equal': 0.0}
  found = {f.check: f.status for f in examine.handover(row, 'float32', 1e-4)}
  assert found['published'] is BAD
  assert found['ratio'] is findings.Status.NOT_APPLICABLE


def group(rewards, task):
  return [
    made.append_only([1], reward=r, task=made.tasks(9)[task], sample=i)
    for i, r in enumerate(rewards)
  ]


def test_forecast_of_dead_groups_by_hand():
  # No success in 8: rate 1/10; dead .1^4 + .9^4 = 66 %.
  never = group([0.0] * 4, 0) + group([0.0] * 4, 1)
  finding = examine.groups(never, 4)
  assert finding.status is BAD
  assert 'pass rate 0/8: 66% of groups of 4' in finding.detail
  # One in 8: rate 2/10; dead .2^4 + .8^4 = 41 %; one of the two varies.
  once = group([1.0, 0.0, 0.0, 0.0], 0) + group([0.0] * 4, 1)
  finding = examine.groups(once, 4)
  assert finding.status is GOOD
  assert '41% of groups' in finding.detail and '1 of 2' in finding.detail


def test_strictness():
  wrong = findings.failed('mask', 'shifted')
  light = findings.failed('groups', 'all dead')
  assert findings.CHECKS['mask'].wrong and not findings.CHECKS['groups'].wrong
  said = []
  findings.judge([light], 'wrong', said.append)
  findings.judge([wrong], 'none', said.append)
  assert [s.split(':')[1] for s in said] == [' groups', ' mask']
  for found, strict in (([wrong], 'wrong'), ([light], 'all')):
    with pytest.raises(findings.Unsound, match='(?s)likely: .*remedy: '):
      findings.judge(found, strict, said.append)


def test_a_table_has_two_lines_below_a_failure():
  found = [findings.ok('ratio', 'fine'), findings.failed('mask', 'shifted')]
  lines = findings.table(found)
  assert [line.split()[0] for line in lines] == [
    'ratio', 'mask', 'likely:', 'remedy:'
  ]  # fmt: skip
