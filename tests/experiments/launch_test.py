"""The whole command: a run, its guards, its refusals, its resumption."""

import functools
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from loading import load

from agentrl_jax import metrics
from agentrl_jax.rollout import store

ROOT = pathlib.Path(__file__).parents[2]
TINY = ROOT / 'tests' / 'experiments' / 'tiny_config.py'
# Compiled programs of earlier tests and of earlier runs of the tests.
PROGRAMS = pathlib.Path(
  tempfile.gettempdir(), f'agentrl_tests_{os.getuid()}', 'programs'
)


drill = load(ROOT / 'tools' / 'kill_drill.py')
COMMAND = (
  f'--config={TINY}',
  f'--config.compilation_cache={PROGRAMS}',
  '--display=plain',
)


def launch(home, *arguments, workdir='run', start=False, sets=COMMAND):
  """Starts launch.py; waits for it unless `start`."""
  home.mkdir(parents=True, exist_ok=True)
  process = subprocess.Popen(
    [
      sys.executable,
      str(drill.LAUNCH),
      *sets,
      f'--workdir={home / workdir}',
      *arguments,
    ],
    env=drill.environment(home),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )
  if start:
    return process
  output, _ = process.communicate()
  return process.returncode, output


@pytest.fixture(scope='session')
def whole(tmp_path_factory):
  """One undisturbed run: (home, output)."""
  home = tmp_path_factory.mktemp('whole')
  code, output = launch(home)
  assert code == 0, output
  return home, output


def rows(home, workdir='run', name='metrics'):
  return metrics.read(home / workdir, name=name)


NAMES = [
  'rollout/success',
  'rollout/return',
  'rollout/turns',
  'rollout/tokens_per_s',
  'rollout/grounded_arguments',
  'advantage/anchor_group_size',
  'advantage/anchor_singletons',
  'advantage/contrastive_share',
  'advantage/dead_groups',
  'advantage/phantom_share',
  'loss/policy',
  'loss/kl',
  'policy/entropy',
  'policy/clip_fraction',
  'policy/ratio_mean',
  'sampler/logprob_gap',
  'eval/success',
  'eval/success_greedy',
  'time/collect_s',
  'time/update_s',
  'stop/done',
  'stop/max_turns',
  'stop/length',
  'stop/env_error',
  'stop/env_timeout',
]


def test_rows_have_the_names_of_the_api(whole):
  first, *rest = rows(whole[0])
  assert [r['step'] for r in (first, *rest)] == [0, 1, 2]
  assert 'eval/success' in first and first['updates'] == 0
  for row in rest:
    missing = [name for name in NAMES if name not in row]
    assert not missing
    assert row['updates'] == 2 * row['step']
  assert {'test/success', 'test/success_greedy'} <= rest[-1].keys()
  assert 'test/success' not in rest[0]


def test_first_updates_are_on_policy_and_weights_handed_over(whole):
  for row in rows(whole[0])[1:]:
    assert row['sampler/published_equal'] == 1.0
    assert row['policy/first_ratio_deviation'] < 1e-4
    assert row['sampler/logprob_gap'] < 1e-4
    assert row['loss/weight'] == pytest.approx(1.0, abs=1e-5)
    assert row['train/grad_norm'] > 0 and row['train/skipped_updates'] == 0
    stops = [v for k, v in row.items() if k.startswith('stop/')]
    assert sum(stops) == row['rollout/trajectories'] == 8


def test_the_directory_has_what_a_researcher_expects(whole):
  run = whole[0] / 'run'
  assert sorted(int(p.name) for p in (run / 'checkpoints').glob('[0-9]*'))
  for name in ('config.json', 'report.html', 'sft.jsonl', 'tensorboard'):
    assert (run / name).exists(), name
  assert (run / 'tokenizer' / 'tokenizer.json').exists()
  assert list((run / 'plots').glob('*.png'))
  assert not list(run.glob('**/*.tmp')) and not (run / 'sft').exists()
  assert store.steps(run) == [1, 2] and store.steps(run, kind='test') == [2]


def test_stored_trajectories_hold_what_was_trained(whole):
  records = store.read(whole[0] / 'run', 2)
  assert len(records) == 8
  assert any(len(r.trajectory.turns) > 1 for r in records)
  for record in records:
    trajectory = record.trajectory
    assert len(record.advantages) == len(trajectory.turns)
    assert len(record.anchors) == len(trajectory.turns)
    (context,) = trajectory.contexts
    versions = {v for v in context.versions if v >= 0}
    assert versions == {2}  # updates done before the second iteration
  members = [r.trajectory.sample for r in records]
  assert members == [0, 1, 2, 3] * 2
  first = {r.trajectory.task.index for r in store.read(whole[0] / 'run', 1)}
  second = {r.trajectory.task.index for r in records}
  assert not first & second


def test_waits_are_named_and_a_trajectory_is_shown(whole):
  for words in (
    'loading jax',
    'preparing tasks',
    'compiling the sampler',
    'before any training',
    'fine-tuning 60/60',
    'step 2/2',
    'report.html',
  ):
    assert words in whole[1], words


def test_every_fault_is_listed_before_anything_starts(tmp_path):
  code, output = launch(
    tmp_path,
    '--config.train.rows=0',
    '--config.advantage.estimator=gigpoo',
    "--config.env.options={'wings': 3}",
    '--config.loss.options.sharpness=1',
  )
  assert code == 2, output
  for words in (
    'config.train.rows=0',
    "'gigpoo'",
    "did you mean 'gigpo'",
    'wings',
    'config.loss.options',
    "'sharpness'",
  ):
    assert words in output, output
  assert 'Traceback' not in output and not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  'argument, words',
  [
    ('--config.train.iteration=3', 'did you mean config.train.iterations?'),
    ('--iterations=3', 'expected --config.field=value'),
    ('--config.seed=x', 'expected int'),
  ],
)
def test_a_typo_is_refused_at_once(argument, words, tmp_path):
  code, output = launch(tmp_path, argument)
  assert code == 2 and words in output and 'Traceback' not in output


def test_a_missing_config_names_the_nearest(tmp_path):
  code, output = launch(tmp_path, sets=[f'--config={ROOT}/configs/gigop.py'])
  assert code == 2 and 'did you mean' in output and 'gigpo.py' in output


def test_a_changed_config_is_refused_by_field(whole):
  code, output = launch(whole[0], '--config.train.epochs=2', '--config.seed=5')
  assert code == 2, output
  assert 'config.train.epochs=2' in output and 'config.seed=5' in output
  assert 'another --workdir' in output


def test_a_second_run_in_the_same_directory_is_refused(whole):
  import fcntl

  with (whole[0] / 'run' / '.lock').open() as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    code, output = launch(whole[0])
  assert code == 2 and 'is in use by process' in output


def test_weights_of_no_run_are_refused(tmp_path):
  code, output = launch(tmp_path, f'--config.init_from={tmp_path}')
  assert code == 2 and 'Traceback' not in output, output
  assert 'config.init_from' in output and 'no checkpoints/ in it' in output


def test_weights_of_another_model_are_refused(whole):
  code, output = launch(
    whole[0],
    f'--config.init_from={whole[0] / "run"}',
    '--config.model.d_ff=16',
    workdir='other',
  )
  assert code == 2 and 'Traceback' not in output, output
  assert 'config.init_from' in output and 'another model' in output


def wait_for(process, condition, seconds=500):
  end = time.monotonic() + seconds
  while not condition():
    assert process.poll() is None, process.communicate()[0]
    assert time.monotonic() < end
    time.sleep(0.01)


def test_history_that_may_not_be_rewritten_stops_it_by_both_texts(tmp_path):
  code, output = launch(
    tmp_path,
    '--config.text.style=tiny_think',
    "--config.env.options={'legs': 1, 'traces': True}",
    '--config.rollout.thinking=strip',
    '--config.rollout.drift=raise',
  )
  assert code == 1, output
  shown = ' '.join(output.split())
  assert "there was '<think>" in shown and "now it is '<tool_call>" in shown
  assert 'Traceback' not in output


def test_a_finished_run_rerun_changes_nothing(whole):
  before = rows(whole[0])
  code, output = launch(whole[0])
  assert code == 0 and 'resumed after iteration 2' in output
  assert rows(whole[0]) == before


def test_another_machine_is_told_of_on_resumption(whole):
  path = whole[0] / 'run' / 'host.json'
  kept = path.read_text()
  assert json.loads(kept)['cores'] == len(os.sched_getaffinity(0))
  path.write_text(kept.replace('"cores": ', '"cores": 1'))
  code, output = launch(whole[0])
  assert path.read_text() == kept
  assert code == 0 and 'is now' in output and 'last digits' in output


def first_row(run):
  path = run / 'metrics.jsonl'
  return path.exists() and path.read_bytes().count(b'\n') > 0


MOMENTS = {
  'config': lambda run: (run / 'config.json').exists(),
  'sft': lambda run: any((run / 'sft').glob('*/[0-9]*')),
  'row': first_row,
  'iteration': lambda run: (run / 'checkpoints' / '1').exists(),
  'report': lambda run: (run / 'plots').exists(),
}


@pytest.mark.parametrize('moment', ['sft', 'row'])
def test_killed_there_it_ends_as_if_left_alone(moment, whole, tmp_path):
  killed_at(MOMENTS[moment], signal.SIGKILL, whole, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize('moment', MOMENTS)
@pytest.mark.parametrize('how', [signal.SIGKILL, signal.SIGTERM])
def test_ended_anywhere_it_ends_as_if_left_alone(moment, how, whole, tmp_path):
  killed_at(MOMENTS[moment], how, whole, tmp_path)


def killed_at(condition, how, whole, tmp_path):
  process = launch(tmp_path, start=True)
  wait_for(process, functools.partial(condition, tmp_path / 'run'))
  process.send_signal(how)
  process.communicate()
  assert process.returncode in (-how, 128 + how, 0)
  code, output = launch(tmp_path)
  assert code == 0, output
  assert not drill.differences(whole[0] / 'run', tmp_path / 'run')


@pytest.mark.parametrize(
  'how, code', [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_asked_to_end_it_saves_and_goes_on_identically(
  how, code, whole, tmp_path
):
  process = launch(tmp_path, start=True)
  wait_for(process, functools.partial(MOMENTS['sft'], tmp_path / 'run'))
  process.send_signal(how)
  output, _ = process.communicate()
  assert process.returncode == code, output
  assert 'the same command goes on from here' in output
  assert 'Traceback' not in output
  code, output = launch(tmp_path)
  assert code == 0, output
  assert not drill.differences(whole[0] / 'run', tmp_path / 'run')


@pytest.mark.slow
def test_the_smoke_config_survives_kills_at_random_moments():
  assert drill.main(['--config=configs/smoke.py', '--kills=5', '--seed=0']) == 0


def sibling(whole, name, *arguments):
  """A run with the caches of `whole`."""
  code, output = launch(whole[0], *arguments, workdir=name)
  assert code == 0, output
  return output


def test_estimators_of_a_seed_start_from_the_same_weights(whole):
  output = sibling(
    whole,
    'grpo',
    '--config.advantage.estimator=grpo',
    '--config.train.iterations=1',
  )
  assert 'fine-tuned weights reused' in output
  assert rows(whole[0], name='sft') == rows(whole[0], 'grpo', 'sft')
  one, two = (rows(whole[0], name) for name in ('run', 'grpo'))
  assert one[0]['eval/success'] == two[0]['eval/success']
  # The same trajectories, another credit.
  played = [
    [r.trajectory for r in store.read(whole[0] / name, 1)]
    for name in ('run', 'grpo')
  ]
  assert [t.contexts for t in played[0]] == [t.contexts for t in played[1]]


def test_seeds_start_from_their_own_weights_and_a_run_warms_another(whole):
  short = ('--config.train.iterations=0', '--config.sft.steps=0')
  output = sibling(
    whole, 'seed1', '--config.seed=1', '--config.train.iterations=0'
  )
  assert 'reused' not in output
  losses = [
    rows(whole[0], name, 'sft')[-1]['sft/loss'] for name in ('run', 'seed1')
  ]
  assert losses[0] != losses[1]
  # Saved before any training, the warm run's weights are those of the source.
  sibling(whole, 'warm', *short, f'--config.init_from={whole[0] / "seed1"}')
  states = [drill.last_state(whole[0] / n)[1] for n in ('seed1', 'warm')]
  weights = [k for k in states[0] if 'params' in k and 'opt' not in k]
  assert weights
  for key in weights:
    assert states[0][key] == states[1][key]


def test_updates_that_are_not_finite_stop_the_run_by_name(whole):
  code, output = launch(
    whole[0],
    '--config.train.optimizer.learning_rate=1e30',
    '--config.train.optimizer.warmup=0',
    '--config.train.iterations=6',
    '--config.train.max_nonfinite=2',
    '--config.train.constant_groups=keep',
    '--config.eval.tasks=0',
    workdir='diverged',
  )
  assert code == 1, output
  assert re.search(r'[23] updates in a row were not finite', output)
  assert 'the first bad metric is' in output and 'Traceback' not in output


def test_a_prompt_that_is_refused_stops_the_run_with_what_to_change(tmp_path):
  code, output = launch(
    tmp_path,
    '--config.rollout.long_prompt=refuse',
    '--config.rollout.max_context=64',
    '--config.rollout.max_turn_tokens=16',
    '--config.text.style=qwen3',  # lists the tools
    '--config.sft.steps=0',
    '--config.eval.tasks=0',
  )
  assert code == 1 and 'Traceback' not in output, output
  assert re.search(r'flight/\w+/\d+: the first prompt has \d+ tokens', output)
  assert 'config.rollout.max_context=64' in output
  assert "long_prompt to 'truncate' or 'drop'" in output


def test_evaluate_plays_a_run_again(whole):
  result = subprocess.run(
    [
      sys.executable,
      str(ROOT / 'experiments' / 'evaluate.py'),
      str(whole[0] / 'run'),
      '--tasks=4',
    ],
    env=drill.environment(whole[0]),
    capture_output=True,
    text=True,
  )
  assert result.returncode == 0, result.stderr
  values = json.loads(result.stdout)
  last = rows(whole[0])[-1]
  assert values['step'] == 2 and values['tasks'] == 4
  for key, value in values.items():
    if key.startswith('test/'):
      nan = value is None and math.isnan(last[key])
      assert nan or value == last[key], key
