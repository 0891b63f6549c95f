"""Plots and the report say what the rows say, the same every time."""

import dataclasses
import math

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
