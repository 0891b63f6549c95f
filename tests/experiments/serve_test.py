"""A served policy answers, judges and ends; what cannot be served is named."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from loading import load

from agentrl_jax.rewards import parts, ruler

openai = pytest.importorskip('openai')
ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = ROOT / 'experiments' / 'serve.py'
made = load(ROOT / 'tests' / 'rewards' / 'reward_fakes.py')
HELLO = [{'role': 'user', 'content': 'Book a flight.'}]
SIZES = ['--slots=2', '--context=1024', '--max_tokens=16']


@pytest.fixture(scope='module')
def served():
  """(process, address) of the policy that a config begins with."""
  process = subprocess.Popen(
    [sys.executable, PROGRAM, '--config=configs/smoke.py', '--port=0', *SIZES],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
  )
  said = process.stdout.readline()
  found = re.fullmatch(r'smoke answers at (http://\S+/v1)\n', said)
  assert found, said + process.stdout.read()
  yield process, found[1]
  process.kill()
  process.wait()
  process.stdout.close()


def ask(address, **options):
  client = openai.OpenAI(
    api_key='none', base_url=address, max_retries=0, timeout=120
  )
  answer = client.chat.completions.create(
    model='smoke', messages=HELLO, logprobs=True, **options
  )
  return [[t.token for t in c.logprobs.content] for c in answer.choices]


def test_draws_go_by_seed_and_temperature(served):
  _, address = served
  greedy = ask(address, temperature=0)
  assert ask(address, temperature=0, n=3) == greedy * 3
  assert len(greedy[0]) == 16  # an untrained policy goes on to the limit
  drawn = ask(address, seed=1, n=3)
  assert ask(address, seed=1, n=3) == drawn
  assert len({tuple(d) for d in drawn}) == 3
  assert ask(address, seed=2) != drawn[:1]


def test_a_policy_that_knows_no_json_is_a_judge_that_fails(served):
  """Its part is dropped with the reason, episodes keep their other rewards."""
  _, address = served
  judge = ruler.Ruler(
    model='smoke', base_url=address, retries=1, backoff_s=0.0, failure='part'
  )
  attempts = (made.trajectory(made.turn(text=text)) for text in ('a', 'b'))
  rows = judge(made.group(*attempts))
  assert all(isinstance(row, parts.Failure) for row in rows)
  assert all('JSON' in row.reason and row.stop is None for row in rows)
  counted = judge.drain()
  assert (counted['judge/calls'], counted['judge/failed']) == (2.0, 1.0)


def test_it_ends_when_told_to(served):
  process, _ = served
  process.send_signal(signal.SIGTERM)
  assert process.wait(30) == 0


@pytest.mark.parametrize(
  'arguments, said',
  [
    (['/nowhere'], 'no config.json'),
    (['--config=configs/smoke.py', '--context=100'], 'multiple of 64'),
    (['--config=configs/nothing.py'], 'no such file'),
  ],
)
def test_what_cannot_be_served_is_said(arguments, said, capsys, monkeypatch):
  monkeypatch.chdir(ROOT)
  program = load(PROGRAM)
  assert program.main([*arguments, '--port=0']) == 2
  assert said in capsys.readouterr().err


@pytest.mark.parametrize(
  'arguments', [[], ['RUN', '--config=x'], ['RUN', '--config.seed=1']]
)
def test_a_command_line_that_makes_no_sense(arguments):
  with pytest.raises(SystemExit):
    load(PROGRAM).main(arguments)
