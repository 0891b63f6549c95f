"""Playing by hand: what is typed, what is shown."""

import json
import pathlib
import subprocess
import sys

PLAY = pathlib.Path(__file__).parents[2] / 'tools' / 'play.py'


def play(*arguments, typed=''):
  return subprocess.run(
    [sys.executable, PLAY, *arguments],
    input=typed,
    capture_output=True,
    text=True,
    timeout=60,
  )


def test_a_human_plays_with_short_calls_and_whole_ones():
  typed = (
    'search from=Xian to=Oslo\n'
    '<tool_call>{"name":"page","args":{}}</tool_call>\n'
    'fly\n'
  )
  shown = play('flight', '--task=3', '--option=legs=1', typed=typed).stdout
  assert 'Book cheapest early-morning flights' in shown
  assert '0 flights\n> no more flights\n> reward 0' in shown


def test_agents_are_measured():
  done = play('flight', '--agent=oracle', '--episodes=5')
  row = json.loads(done.stdout)
  assert row.pop('steps_per_s') > 100
  assert row == {'agent': 'oracle', 'episodes': 5, 'success': 1.0}


def test_all_agents_of_an_environment_are_measured():
  done = play('desk', '--agent=all', '--episodes=20', '--option=orders=2')
  rows = [json.loads(line) for line in done.stdout.splitlines()]
  found = {row['agent']: row['success'] for row in rows}
  assert found['oracle'] == 1.0
  assert found['random'] < found['demonstrations'] < 1.0


def test_mistakes_are_one_line():
  for arguments in (['flihgt'], ['flight', '--option=leg=1']):
    done = play(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
