"""A collapsed run rings, a healthy one does not; a resumed one goes on."""

import math

import pytest
import rollout_fakes as made

from agentrl_jax import config, types
from agentrl_jax.rollout import watch

Call, StopReason = types.ToolCall, types.StopReason

HEALTHY = {
  'rollout/success': 0.4,
  'rollout/turn_tokens': 6.5,
  'rollout/grounded_arguments': 0.66,
  'policy/entropy': 0.1,
  'policy/clip_fraction': 0.02,
  'policy/ess': 0.99,
  'advantage/dead_groups': 0.5,
  'watch/repeated_calls': 0.1,
  'watch/distinct_sequences': 0.4,
  'watch/input_dependence': 0.95,
  'audit/gap': 0.02,
  'audit/pull': 0.1,
}
# What makes each rule ring.
SICK = {
  'entropy': {'policy/entropy': 0.002},
  'repeated_calls': {'watch/repeated_calls': 0.8},
  'distinct_sequences': {'watch/distinct_sequences': 0.0},
  'input_dependence': {'watch/input_dependence': 0.1},
  'length_drift': {'rollout/turn_tokens': 30.0},
  'dead_groups': {'advantage/dead_groups': 1.0},
  'clip_fraction': {'policy/clip_fraction': 0.6},
  'ess': {'policy/ess': 0.1},
  'grounded_arguments': {'rollout/grounded_arguments': 0.2},
  'audit_gap': {'audit/gap': 0.3},
  'audit_pull': {'audit/pull': 0.3},
}


def run(rows, **changes):
  """Warnings of rows as (step, text), and what was measured."""
  limits = {**config.default().watch.to_dict(), **changes}
  heard, step, more = [], [0], []
  ward = watch.Watch(limits, lambda text: heard.append((step[0], text)))
  for step[0], row in enumerate(rows, 1):
    more.append(ward.see(step[0], row))
  return heard, more


def ill(name, healthy=4, sick=6):
  return [HEALTHY] * healthy + [{**HEALTHY, **SICK[name]}] * sick


def test_every_rule_is_tried_here():
  assert set(SICK) == set(watch.RULES)
  assert set(watch.RULES) < set(config.default().watch)


def test_a_healthy_run_is_silent():
  assert run([HEALTHY] * 40) == (
    [],
    [{'watch/length_drift': 1.0}] * 40,
  )


@pytest.mark.parametrize('name', SICK)
def test_a_collapsed_one_rings_once_and_says_what_to_do(name):
  ((step, text),), _ = run(ill(name))
  patient = watch.RULES[name].patient
  assert step == (7 if patient else 5)  # the third of three in a row
  assert watch.RULES[name].metric in text
  assert watch.RULES[name].remedy in text and f'config.watch.{name}' in text
  assert '{' not in text


@pytest.mark.parametrize('name', SICK)
def test_a_threshold_of_zero_is_off(name):
  assert run(ill(name), **{name: 0.0})[0] == []


@pytest.mark.parametrize('name', SICK)
def test_two_in_a_row_are_chance(name):
  rows = ill(name, sick=2) + [HEALTHY] + ill(name, healthy=0, sick=2)
  heard, _ = run(rows)
  assert bool(heard) == (not watch.RULES[name].patient)


def test_the_same_warning_comes_again_after_ten_iterations():
  heard, _ = run(ill('dead_groups', sick=25))
  assert [step for step, _ in heard] == [7, 17, 27]
  heard, _ = run(ill('dead_groups', sick=25), quiet=4, patience=1)
  assert [step for step, _ in heard] == [5, 9, 13, 17, 21, 25, 29]


@pytest.mark.parametrize('name', watch.RULES)
def test_a_policy_that_succeeds_may_be_narrow(name):
  rows = [{**row, 'rollout/success': 0.95} for row in ill(name)]
  assert bool(run(rows)[0]) == (not watch.RULES[name].unsolved)


def test_less_that_is_confirmed_and_not_paid_is_no_gaming():
  gaps = [-0.2] * 4 + [0.0] * 4 + [0.05] * 4 + [0.11] * 3
  heard, _ = run([{**HEALTHY, 'audit/gap': gap} for gap in gaps])
  assert [step for step, _ in heard] == [15]


def test_shorter_and_longer_are_drift_and_measured():
  rows = [{**HEALTHY, 'rollout/turn_tokens': n} for n in (3, 6, 9, 1.5, 1.5, 1)]
  heard, more = run(rows)
  factors = [m['watch/length_drift'] for m in more]
  # The mean of the first: 3, 4.5, then 6 for good.
  assert factors == pytest.approx([1.0, 6 / 4.5, 1.5, 0.25, 0.25, 1 / 6])
  assert len(heard) == 1 and heard[0][0] == 6


def test_numbers_that_are_none_neither_ring_nor_break_a_row():
  nothing = {**HEALTHY, 'advantage/dead_groups': math.nan}
  sick = {**HEALTHY, **SICK['dead_groups']}
  heard, _ = run([sick, nothing, sick, nothing, sick])
  assert [step for step, _ in heard] == [5]
  assert run([{'eval/success': 0.1}])[1] == [{}]  # before training
  assert run([{'rollout/success': 0.1}] * 5) == ([], [{}] * 5)


def test_little_dependence_from_the_start_is_the_tasks_nature():
  low = {**HEALTHY, 'watch/input_dependence': 0.05}
  assert run([low, {**low, 'watch/input_dependence': -0.01}])[0] == []


def test_a_resumed_watch_goes_on_like_the_undisturbed_one():
  rows = [{**r, 'step': i} for i, r in enumerate(ill('ess', sick=20), 1)]
  whole, numbers = run(rows)
  for at in range(len(rows)):
    heard = []
    limits = config.default().watch.to_dict()
    again = watch.Watch(limits, heard.append)
    again.replay(rows[:at])
    more = [again.see(row['step'], row) for row in rows[at:]]
    assert heard == [text for step, text in whole if step > at]
    assert more == numbers[at:]


def acted(*names, **fields):
  """A trajectory that calls these tools, one a turn; '' is plain text."""
  turns = [
    made.turn(k, k + 1, text=name or 'hm', calls=(Call(name),) if name else ())
    for k, name in enumerate(names)
  ]
  return made.trajectory(turns, [], **fields)


def measured(*groups):
  row = watch.measure([types.Group(made.TASK, tuple(g)) for g in groups])
  return row['watch/repeated_calls'], row['watch/distinct_sequences']


def test_measures_by_hand():
  failed = acted('a', 'a', stop_reason=StopReason.ENV_TIMEOUT)
  first = [acted('a', 'b', 'a'), acted('a', 'b', 'a'), acted('b'), failed]
  second = [acted('c', 'c', 'c', '', '')] * 2
  # Repeats: 1 + 1 + 0, then 2 + 2; calls: 3 + 3 + 1, then 3 + 3.
  # Different from the rest: (2 - 1) / 2 and (1 - 1) / 1.
  assert measured(first, second) == pytest.approx((6 / 13, 0.25))


def test_nothing_to_count_is_no_number():
  assert all(map(math.isnan, measured([acted('')])))


def test_the_same_step_from_another_place_repeats_nothing():
  turns = [
    made.turn(k, k + 1, calls=(Call('right'),), text='right', state_key=key)
    for k, key in enumerate(('(0, 0)', '(1, 0)', '(0, 0)'))
  ]
  assert measured([made.trajectory(turns, [])])[0] == pytest.approx(1 / 3)
