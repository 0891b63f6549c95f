"""The display says the same facts live and plain."""

import dataclasses
import io
import subprocess
import sys

import pytest

from agentrl_jax import display, types


def make_trajectory():
  def turn(text, reply, error='', reward=0.0):
    message = types.Message('tool', reply)
    return types.Turn(0, 0, 0, text, (), error, None, (message,), reward)

  return types.Trajectory(
    task=types.Task('flight', 'train', 7, {}),
    sample=2,
    prompt=(types.Message('user', 'Book [bold]two[/bold] legs.'),),
    turns=(
      turn('search(', 'cannot parse', error='no closing tag'),
      turn('order', 'ordered ' + 'x' * 500, reward=1.0),
    ),
    contexts=(),
    stop_reason=types.StopReason.DONE,
  )


def shown(kind, act, **options):
  stream = io.StringIO()
  with display.Display(kind, stream=stream, **options) as shows:
    act(shows)
  return stream.getvalue()


def test_auto_is_plain_without_a_terminal():
  with display.Display(stream=io.StringIO()) as shows:
    assert shows.kind == 'plain'


def test_an_iteration_is_one_line_of_what_was_measured():
  line = shown(
    'plain',
    lambda d: d.row(
      3, {'rollout/success': 0.5, 'loss/policy': -0.01, 'x/y': 1.0}, total=30
    ),
  )
  assert line.count('\n') == 1
  assert line.endswith('] step 3/30  success 50.0%  loss -0.0100\n')


def test_plain_progress_is_rare_and_says_the_end():
  def act(shows):
    for done in range(1, 101):
      shows.progress('SFT', done, 100, loss=2 / done)

  lines = shown('plain', act, every_s=1e6).splitlines()
  assert len(lines) == 2
  assert 'SFT 1/100  loss 2' in lines[0]
  assert 'SFT 100/100  loss 0.02' in lines[1]


def test_a_stage_says_what_the_wait_is_for():
  assert 'compiling the sampler ...' in shown(
    'plain', lambda d: d.stage('compiling the sampler')
  )


@pytest.mark.parametrize('kind', ['plain', 'live'])
def test_a_trajectory_can_be_read(kind):
  text = shown(
    kind,
    lambda d: d.trajectory(make_trajectory(), advantages=[-0.5, 1.0], limit=40),
  )
  for part in (
    'flight/train/7, sample 2',
    'user: Book [bold]two[/bold] legs.',  # no markup is read from a model
    '[-0.50]',
    '! no closing tag',
    '(468 more)',
    'done after 2 turns, return 1',
  ):
    assert part in text


def test_several_contexts_are_told():
  context = types.Context((1,), (True,), (0.0,), (0,))
  trajectory = dataclasses.replace(make_trajectory(), contexts=(context,) * 2)
  text = shown('plain', lambda d: d.trajectory(trajectory))
  assert 'done after 2 turns in 2 contexts, return 1' in text


def test_quiet_shows_warnings_only():
  def act(shows):
    shows.stage('x')
    shows.progress('x', 1, 1)
    shows.row(1, {})
    shows.trajectory(make_trajectory())
    shows.note('x')
    shows.warn('disk full')

  text = shown('quiet', act)
  assert text.count('\n') == 1 and 'WARNING: disk full' in text


def test_hushed_it_shows_warnings_only():
  stream = io.StringIO()
  shown = display.Display('plain', stream=stream)
  shown.note('before')
  shown.hush()
  shown.note('after')
  shown.warn('careful')
  text = stream.getvalue()
  assert 'before' in text and 'careful' in text and 'after' not in text


def test_live_takes_the_same_calls():
  def act(shows):
    shows.stage('compiling [x]')
    shows.progress('SFT', 3, 10, loss=0.5, note='ok')
    shows.row(1, {'rollout/success': 1.0})

  assert 'step 1  success 100.0%' in shown('live', act)


def test_an_unknown_kind_is_refused():
  with pytest.raises(ValueError, match='known are auto, live, plain, quiet'):
    display.Display('loud')


def test_the_display_starts_without_jax_and_silences_logs():
  program = (
    'from agentrl_jax import display; display.quiet_logs()\n'
    'import sys, logging\n'
    'assert "jax" not in sys.modules\n'
    'logging.getLogger("jax").warning("noise")\n'
    'logging.getLogger("orbax.checkpoint").info("noise")\n'
    'from absl import logging as absl_logging\n'
    'absl_logging.warning("noise")\n'
  )
  result = subprocess.run(
    [sys.executable, '-c', program], capture_output=True, text=True
  )
  assert (result.returncode, result.stdout, result.stderr) == (0, '', '')
