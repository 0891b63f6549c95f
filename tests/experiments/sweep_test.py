"""A sweep runs, goes on after faults, and compares its arms."""

import importlib.util
import json
import math
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def load(name):
  spec = importlib.util.spec_from_file_location(
    name, ROOT / 'experiments' / f'{name}.py'
  )
  module = importlib.util.module_from_spec(spec)
  sys.modules[name] = module  # dataclasses look their module up
  spec.loader.exec_module(module)
  return module


sweep = load('sweep')
table = load('sweep_table')

# Stands in for experiments/launch.py: success = seed / 10, plus 0.5 for `two`.
LAUNCH = """
import json, os, pathlib, sys
options = dict(item.lstrip('-').split('=', 1) for item in sys.argv[1:])
if os.environ.get('FAIL') == options['config.seed']:
  sys.exit('no such luck')
path = pathlib.Path(options['workdir'])
with (path / 'calls').open('a') as file:
  file.write(f'{sorted(os.sched_getaffinity(0))}\\n')
value = int(options['config.seed']) / 10
value += 0.5 * (options['config.advantage.estimator'] == 'two')
rows = [
  {'step': 0, 'eval/success': 0.05},
  {'step': 1, 'rollout/success': value},
  {'step': 1, 'test/success': value},
]
with (path / 'metrics.jsonl').open('w') as file:
  for row in rows:
    file.write(json.dumps({**row, 'updates': 0, 'wall_s': 1.0}) + '\\n')
"""

CONFIG = """
def sweep():
  for arm in ('one', 'two'):
    for seed in (0, 1):
      yield {'arm': arm, 'seed': seed, 'advantage.estimator': arm}
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
  (tmp_path / 'launch.py').write_text(LAUNCH)
  (tmp_path / 'config.py').write_text(CONFIG)
  monkeypatch.setattr(sweep, 'LAUNCH', tmp_path / 'launch.py')
  workdir = tmp_path / 'out'

  def act(*extra):
    arguments = [f'--config={tmp_path / "config.py"}', f'--workdir={workdir}']
    return sweep.main([*arguments, *extra])

  return act, workdir


def test_a_sweep_runs_every_trial_once_and_writes_its_results(run):
  act, workdir = run
  assert act('--jobs=2') == 0
  assert act('--jobs=2') == 0  # finished before: nothing runs again
  for trial in ('one_s0', 'one_s1', 'two_s0', 'two_s1'):
    assert (workdir / trial / 'calls').read_text().count('\n') == 1
  text = (workdir / 'table.md').read_text()
  assert '| one | 2 | 5.0% | 5.0% | 0.0% |' in text
  assert '| two | 2 | 5.0% | 55.0% | 50.0% |' in text
  assert '| two against one | 2-0-0 | 0.50 |' in text
  assert (workdir / 'table.csv').read_text().count('\n') == 5
  assert (
    json.loads((workdir / 'numbers.json').read_text())['two_success'] == 0.55
  )
  assert (workdir / 'curves.png').read_bytes().startswith(b'\x89PNG')


def test_a_failed_trial_is_recorded_and_tried_again(run, monkeypatch, capsys):
  act, workdir = run
  monkeypatch.setenv('FAIL', '1')
  assert act('--jobs=1') == 1
  assert 'no such luck' in capsys.readouterr().out
  assert (
    'Failed or not run: one_s1, two_s1.' in (workdir / 'table.md').read_text()
  )
  monkeypatch.delenv('FAIL')
  assert act('--jobs=1') == 0
  assert (workdir / 'one_s0' / 'calls').read_text().count('\n') == 1
  assert 'Failed' not in (workdir / 'table.md').read_text()


def test_each_trial_has_its_own_cores(run):
  act, workdir = run
  act('--jobs=2')
  dealt = [str(sorted(share)) for share in sweep.shares(2)]
  for trial in ('one_s0', 'one_s1', 'two_s0', 'two_s1'):
    assert (workdir / trial / 'calls').read_text().strip() in dealt


def test_other_overrides_run_a_trial_again(run):
  act, workdir = run
  act()
  act('--config.train.iterations=3')
  assert (workdir / 'one_s0' / 'calls').read_text().count('\n') == 2


def test_jobs_share_the_cores_without_overlap(monkeypatch):
  monkeypatch.setattr(sweep.os, 'sched_getaffinity', lambda _: {0, 1, 2, 5})
  assert sweep.shares(2) == [{0, 2}, {1, 5}]
  assert sweep.shares(1) == [{0, 1, 2, 5}]
  assert len(sweep.shares(6)) == 6


def test_two_trials_of_one_name_are_refused():
  with pytest.raises(ValueError, match='two trials are called a_s0'):
    sweep.trials([{'arm': 'a', 'seed': 0}, {'arm': 'a', 'seed': 0, 'x': 1}])


def test_an_unknown_option_is_refused(run, capsys):
  with pytest.raises(SystemExit):
    run[0]('--typo=1')
  assert '--config.FIELD=VALUE' in capsys.readouterr().err


@pytest.mark.parametrize(
  'ours, expected',
  [
    ([2, 2, 2, 2, 2], (5, 0, 0, 0.0625)),  # 2 * 1/32
    ([2, 2, 2, 2, 0], (4, 1, 0, 0.375)),  # 2 * (1 + 5)/32
    ([1, 1, 1, 1, 2], (1, 0, 4, 1.0)),  # 2 * 1/2
    ([1, 1, 1, 1, 1], (0, 0, 5, 1.0)),
  ],
)
def test_sign_test_by_hand(ours, expected):
  theirs = dict.fromkeys(range(5), 1)
  assert table.sign_test(dict(enumerate(ours)), theirs) == expected


def test_only_common_seeds_are_paired():
  assert table.sign_test({0: 1.0, 1: 1.0}, {1: 0.0, 2: 0.0})[:3] == (1, 0, 0)


def test_interval_by_hand():
  # mean 2, sample std 1, t(2, 0.975) = 4.3027: 2 -+ 4.3027 / sqrt(3)
  low, high = table.interval([1.0, 2.0, 3.0])
  assert low == pytest.approx(2 - 4.30265 / math.sqrt(3), abs=1e-4)
  assert high == pytest.approx(2 + 4.30265 / math.sqrt(3), abs=1e-4)


def test_outcome_prefers_the_test_and_falls_back_to_validation():
  rows = [
    {'eval/success': 0.1},
    {'rollout/success': 0.2},
    {'rollout/success': 0.4, 'eval/success': 0.5, 'wall_s': 9.0},
  ]
  found = table.outcome(rows)
  assert found == pytest.approx(
    {'success': 0.5, 'area': 0.3, 'start': 0.1, 'wall_s': 9.0}
  )
  assert table.outcome([*rows, {'test/success': 0.6}])['success'] == 0.6


def test_the_real_ablation_differs_between_arms_in_the_advantage_only():
  from agentrl_jax import config

  module = config.load_module(str(ROOT / 'configs/ablations/estimator.py'))
  found = sweep.trials(module.sweep())
  assert len(found) == 25
  for trial in found:
    assert all(key.startswith('advantage.') for key in trial.overrides)
    fields = {k: str(v) for k, v in trial.overrides.items()}
    path = str(ROOT / 'configs/ablations/estimator.py')
    config.validate(config.load(path, {**fields, 'seed': str(trial.seed)}))
