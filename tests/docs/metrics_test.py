"""docs/metrics.md holds every metric and every stop reason, and no other."""

import pathlib
import re

import numpy as np
import pytest
from loading import load

from agentrl_jax import assembly, metrics, types
from agentrl_jax.rollout import collate, selection

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / 'docs' / 'metrics.md').read_text(encoding='utf-8')
SOURCE = '\n'.join(
  path.read_text(encoding='utf-8')
  for path in sorted((ROOT / 'agentrl_jax').rglob('*.py'))
)


made = load(ROOT / 'tests' / 'rollout' / 'rollout_fakes.py')


def table(head):
  """Rows of the tables whose first column is called `head`: name -> cells."""
  rows, inside = {}, False
  for line in PAGE.splitlines():
    cells = [cell.strip() for cell in line.strip('|').split('|')]
    if not line.startswith('|'):
      inside = False
    elif cells[0] == head:
      inside = True
    elif inside and cells[0].startswith('`'):
      name = cells[0].strip('`')
      assert name not in rows, f'{name} stands there twice'
      rows[name] = cells[1:]
  return rows


METRICS, REASONS = table('metric'), table('stop reason')


def pattern(name):
  """NAME, REASON, ... stand for what a run names; test/ is as eval/."""
  text = re.sub(r'\b[A-Z]{3,}|(?<=_)[A-Z]{3,}', r'[\\w.]+', re.escape(name))
  return re.sub('^eval/', '(eval|test)/', text)


def test_every_reason_has_a_row_with_its_counter():
  assert list(REASONS) == [reason.value for reason in types.StopReason]
  for reason, (what, counter, *_) in REASONS.items():
    assert what and counter == f'`stop/{reason}`'


@pytest.mark.parametrize('reason', types.StopReason)
def test_statistics_are_of_those_that_the_page_names(reason):
  trajectories = tuple(
    made.append_only([1], reward=reward, stop_reason=stop)
    for reward, stop in ((1.0, reason), (0.0, types.StopReason.DONE))
  )
  groups = [types.Group(made.TASK, trajectories)]
  ids = np.zeros((2, 1), np.int32)
  turns = collate.turn_batch(groups, ids, ids[..., None], num_turns=1)
  says = REASONS[reason.value][2] == 'yes'
  assert says == bool(turns.turn_mask[0].any()) == selection.varying(groups)[0]


def panel(config, split):
  del config
  return [types.Task('echo', split, i, {}) for i in range(10)]


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A run in which episodes end for every reason.

  Returns:
    (keys of its rows, reasons of the episodes that were trained on).
  """
  trained, reasons = set(), list(types.StopReason)
  plain = collate.token_rows

  def rows(trajectories, advantages, indices, **options):
    trained.update(trajectories[i].stop_reason for i in indices)
    return plain(trajectories, advantages, indices, **options)

  def reason(entry, draws):
    place = 4 * entry.task.index + entry.sample
    fine = draws.purpose != 'train'
    return reasons[0] if fine else reasons[place % len(reasons)]

  workdir = tmp_path_factory.mktemp('run')
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(assembly, 'tasks', panel)
    patch.setattr(collate, 'token_rows', rows)
    one, _ = load(ROOT / 'tests' / 'trainer_fakes.py').trainer(
      workdir,
      reason=reason,
      audit_reward='invalid',
      **{'train.constant_groups': 'keep', 'rollout.failure_limit': '1.0'},
    )
    one.run()
  return {key for row in metrics.read(workdir) for key in row}, trained


def test_a_gradient_comes_of_those_that_the_page_names(run):
  named = {r for r, (*_, gradient) in REASONS.items() if gradient == 'yes'}
  assert {reason.value for reason in run[1]} == named


def test_every_metric_of_a_run_stands_there(run):
  known = '|'.join(map(pattern, METRICS))
  strange = sorted(k for k in run[0] if not re.fullmatch(known, k))
  assert len(run[0]) > 50 and not strange, f'docs/metrics.md lacks {strange}'


@pytest.mark.parametrize('name', METRICS)
def test_what_stands_there_is_logged(name):
  last = re.sub(r'[A-Z]{3,}.*', '', name.rpartition('/')[2])
  last = last.removesuffix('_greedy')
  assert re.search(rf"['/]{last}", SOURCE)


def test_every_row_has_a_unit_column_and_a_meaning_column():
  assert {len(cells) for cells in METRICS.values()} == {3}
  assert {len(cells) for cells in REASONS.values()} == {4}
