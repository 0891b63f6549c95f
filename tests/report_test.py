"""Plots and the report say what the rows say, the same every time."""

import dataclasses
import math
import time

import pytest

from agentrl_jax import plots, report, types
from agentrl_jax.rollout import store


def make_rows(n=6):
  rows = [{'step': 0, 'updates': 0, 'wall_s': 80.0, 'eval/success': 0.125}]
  for step in range(1, n):
    rows.append(
      {
        'step': step,
        'updates': 2 * step,
        'wall_s': 80.0 + 3 * step,
        'rollout/success': step / n,
        'rollout/return': step / n,
        'rollout/turns': 9.0 - step,
        'rollout/tokens_per_s': 6000.0 + step,
        'advantage/anchor_group_size': 5.5,
        'advantage/dead_groups': 0.25,
        'policy/entropy': math.nan if step == 2 else 0.5,
        'loss/policy': -0.01,
        'time/collect_s': 2.0,
        'time/update_s': 1.0,
        'stop/done': 1.0,
      }
    )
  rows.append(
    {'step': n - 1, 'updates': 10, 'wall_s': 99.0, 'test/success': 0.96}
  )
  return rows


def make_record(advantages=(0.4, -1.0)):
  turns = tuple(
    types.Turn(
      context=0,
      start=0,
      end=0,
      text=text,
      calls=(),
      error='',
      state_key=None,
      observation=(types.Message('tool', 'a < b & c'),),
      reward=0.0,
    )
    for text in ('<tool_call>{}</tool_call>', 'order')
  )
  trajectory = types.Trajectory(
    task=types.Task('flight', 'train', 3, {}),
    sample=0,
    prompt=(types.Message('user', 'Book.'),),
    turns=turns,
    contexts=(),
    stop_reason=types.StopReason.DONE,
  )
  return store.Record(trajectory, advantages=advantages, anchors=(4, -1))


def test_plots_are_drawn_for_what_was_measured(tmp_path):
  files = plots.draw(tmp_path, make_rows())
  names = [file.stem for file in files]
  assert names == [
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


def test_the_same_rows_give_the_same_bytes(tmp_path):
  one = plots.draw(tmp_path / 'a', make_rows())
  two = plots.draw(tmp_path / 'b', make_rows())
  assert [f.read_bytes() for f in one] == [f.read_bytes() for f in two]


def test_nothing_is_drawn_from_nothing(tmp_path):
  assert plots.draw(tmp_path, []) == []


def test_rows_of_one_step_are_merged_later_over_earlier():
  rows = [{'step': 1, 'a': 1}, {'step': 0, 'a': 0}, {'step': 1, 'a': 2, 'b': 3}]
  assert plots.merge(rows) == [{'step': 0, 'a': 0}, {'step': 1, 'a': 2, 'b': 3}]


def test_arms_are_drawn(tmp_path):
  path = tmp_path / 'arms.png'
  plots.draw_arms(path, {'grpo': [make_rows()], 'gigpo': [make_rows()] * 2})
  assert path.read_bytes().startswith(b'\x89PNG')


def test_all_plots_take_less_than_three_seconds(tmp_path):
  start = time.process_time()
  plots.draw(tmp_path, make_rows(40))
  assert time.process_time() - start < 3.0


def test_key_numbers_are_first_best_and_last():
  numbers = report.key_numbers(
    [
      {'eval/success': 0.1, 'wall_s': 1.0},
      {'eval/success': 0.9, 'wall_s': 2.0},
      {'eval/success': 0.7, 'wall_s': 3.0},
    ]
  )
  assert numbers == {
    'validation success before RL': '10.0%',
    'validation success, best': '90.0%',
    'validation success, last': '70.0%',
    'wall time [s]': '3',
  }


@pytest.fixture(scope='module')
def page(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('run')
  plots.draw(workdir, make_rows())
  path = report.write(
    workdir,
    make_rows(),
    changes={'advantage.estimator': 'hgpo'},
    records=[make_record()],
  )
  assert path == workdir / 'report.html'
  return path.read_text()


def test_the_report_is_one_file_without_scripts_or_links(page):
  assert '<script' not in page and 'http' not in page
  assert page.count('data:image/png;base64,') == 7
  assert '96.0%' in page and 'hgpo' in page


def test_model_text_is_escaped(page):
  assert '&lt;tool_call&gt;' in page and '<tool_call>' not in page
  assert 'a &lt; b &amp; c' in page


def test_turns_are_coloured_by_their_advantage(page):
  # Largest |A| = 1: the second turn is full red (0.45), the first 0.4 green.
  assert 'rgba(40, 150, 60, 0.18)"' in page
  assert 'rgba(200, 40, 60, 0.45)"' in page
  assert '+0.400' in page and '-1.000' in page and 'anchor 4' in page
  assert 'anchor -1' not in page


def test_a_report_without_advantages_has_no_colour(tmp_path):
  record = dataclasses.replace(make_record(), advantages=None)
  text = report.write(tmp_path, [], records=[record]).read_text()
  assert 'rgba' not in text and '<p>none</p>' in text
