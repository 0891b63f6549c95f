"""Scripts become oracles and demonstrations; snapshots are copies."""

import pytest

from agentrl_jax import types
from agentrl_jax.envs import base, scripted


class Doors(scripted.ScriptedEnv):
  """Two doors in turn: the script opens left, then right."""

  tools = (base.function('open', 'Opens.', required=['x'], x={}),)
  rates = {'swap': 0.5, 'malformed': 0.0}

  @staticmethod
  def script(task, agent, prompt):
    for door in ('left', 'right'):
      reply = yield scripted.call('open', x=door)
      assert reply == f'opened {door}'

  def call_open(self, arguments):
    self._opened.append(arguments['x'])
    self._done = len(self._opened) == 2
    return f'opened {arguments["x"]}'

  def _start(self, task, sample):
    self._opened = []
    return 'open'

  def _judge(self, text):
    return float(self._opened == ['left', 'right'])


TASK = types.Task('doors', 'test', 0, {})


def test_the_oracle_plays_the_script():
  messages, reward = scripted.play(Doors(), TASK, Doors.oracle(TASK))
  assert reward == 1.0
  assert [m.content for m in messages] == [
    'open',
    '<tool_call>{"name":"open","args":{"x":"left"}}</tool_call>',
    'opened left',
    '<tool_call>{"name":"open","args":{"x":"right"}}</tool_call>',
    'opened right',
  ]


def test_a_broken_call_is_told_and_repeated_whole():
  agent = Doors.agent(TASK, seed=0, rates={'malformed': 1.0})
  messages, reward = scripted.play(Doors(), TASK, agent)
  assert reward == 1.0
  assert agent.mistakes == ['malformed'] * 2
  assert messages[2].content.startswith('error: ')


def test_a_script_that_ends_early_ends_the_episode():
  class Short(Doors):
    @staticmethod
    def script(task, agent, prompt):
      yield scripted.call('open', x='left')

  messages, reward = scripted.play(Short(), TASK, Short.oracle(TASK))
  assert (messages[-1].content, reward) == ('done', 0.0)


def test_unknown_mistakes_are_refused():
  with pytest.raises(ValueError, match='no mistake swop; known: swap, malf'):
    Doors.demonstrate(TASK, seed=0, rates={'swop': 1.0})


def test_a_snapshot_is_not_touched_by_what_comes_after():
  env = Doors()
  env.reset(TASK)
  env.step(scripted.call('open', x='left'))
  snapshot = env.snapshot()
  for _ in range(2):
    assert env.step(scripted.call('open', x='right')).reward == 1.0
    env.restore(snapshot)
