"""Plots say what the rows say, the same every time."""

import math
import time

import pytest

from agentrl_jax import plots


def make_rows(n=6):
  rows = [{'step': 0, 'eval/success': 0.125}]
  for step in range(1, n):
    rows.append(
      {
        'step': step,
        'rollout/success': step / n,
        'rollout/return': step / n,
        'rollout/turns': 9.0 - step,
        'rollout/tokens_per_s': 6000.0 + step,
        'advantage/dead_groups': 0.25,
        'policy/entropy': math.nan if step == 2 else 0.5,
        'loss/policy': -0.01,
        'time/collect_s': 2.0,
        'time/update_s': 1.0,
        'stop/done': 1.0,
      }
    )
  return rows + [{'step': n - 1, 'test/success': 0.96}]


def test_plots_are_drawn_for_what_was_measured(tmp_path):
  files = plots.draw(tmp_path, make_rows())
  assert [file.stem for file in files] == [
    'success',
    'returns',
    'speed',
    'advantage',
    'policy',
    'time',
    'stop',
  ]
  for file in files:
    assert file.read_bytes().startswith(b'\x89PNG')
  assert not list(tmp_path.rglob('*.tmp'))


def test_fine_tuning_has_a_plot_of_its_own(tmp_path):
  rows = [{'step': 5, 'sft/loss': 1.0}, {'step': 10, 'sft/loss': 0.5}]
  (file,) = plots.draw(tmp_path, [], sft_rows=rows)
  assert file == tmp_path / 'plots' / 'sft.png'


def test_the_same_rows_give_the_same_bytes(tmp_path):
  one = plots.draw(tmp_path / 'a', make_rows())
  two = plots.draw(tmp_path / 'b', make_rows())
  assert [f.read_bytes() for f in one] == [f.read_bytes() for f in two]


def test_nothing_is_drawn_from_nothing(tmp_path):
  assert plots.draw(tmp_path, []) == []


def test_rows_of_one_step_are_merged_later_over_earlier():
  rows = [{'step': 1, 'a': 1}, {'step': 0, 'a': 0}, {'step': 1, 'a': 2, 'b': 3}]
  assert plots.merge(rows) == [{'step': 0, 'a': 0}, {'step': 1, 'a': 2, 'b': 3}]


def test_a_series_skips_rows_without_the_key():
  rows = plots.merge(make_rows(4))
  assert plots._series(rows, 'rollout/turns') == ([1, 2, 3], [8.0, 7.0, 6.0])
  assert plots._series(rows, 'test/success') == ([3], [0.96])
  assert plots._series(rows, 'nothing') == ([], [])


@pytest.mark.parametrize(
  'patterns, keys',
  [
    (['rollout/return', 'rollout/turns'], ['rollout/return', 'rollout/turns']),
    (['*_per_s'], ['rollout/tokens_per_s']),
    (['policy/*', 'loss/*'], ['policy/entropy', 'loss/policy']),
    (['time/*', 'time/c*'], ['time/collect_s', 'time/update_s']),
    (['policy'], []),
  ],
)
def test_keys_by_pattern(patterns, keys):
  assert plots._keys(make_rows(), patterns) == keys


def test_arms_are_drawn(tmp_path):
  path = tmp_path / 'deeper' / 'arms.png'
  arms = {'grpo': [make_rows()], 'gigpo': [make_rows()] * 2}
  plots.draw_arms(path, arms)
  assert path.read_bytes().startswith(b'\x89PNG')
  fewer = tmp_path / 'fewer.png'
  plots.draw_arms(fewer, {'grpo': [make_rows()]})
  assert fewer.read_bytes() != path.read_bytes()


def test_all_plots_take_less_than_three_seconds(tmp_path):
  start = time.process_time()
  plots.draw(tmp_path, make_rows(40))
  assert time.process_time() - start < 3.0
