"""What all tool environments share: errors that come back as observations."""

import pytest

from agentrl_jax import envs, types
from agentrl_jax.envs import base


class Echo(base.ToolEnv):
  """Answers what it is told; refuses 'no'; pays for 'yes'."""

  tools = (
    base.function('say', 'Says.', required=['x'], x={'type': 'string'}),
    base.function('quit', 'Ends.'),
  )

  def call_say(self, arguments):
    if arguments['x'] == 'no':
      raise base.ToolError('I will not')
    return arguments['x']

  def call_quit(self, arguments):
    self._done = True
    return 'bye'

  def _start(self, task, sample):
    return 'hello'

  def _judge(self, text):
    return float(text == 'yes')


TASK = types.Task('echo', 'test', 0, {})


def step(env, *calls, text='', error=''):
  made = tuple(types.ToolCall(name, arguments) for name, arguments in calls)
  result = env.step(types.Action(text, made, error))
  return [m.content for m in result.observation.messages], result


@pytest.fixture
def env():
  made = Echo()
  made.reset(TASK)
  return made


@pytest.mark.parametrize(
  'call, reply, kind, valid',
  [
    (('say', {'x': 'hi'}), 'hi', '', True),
    (('say', {'x': 'no'}), 'I will not', 'refused', True),
    (('say', {}), 'error: say: missing argument x', 'bad_arguments', False),
    (
      ('shout', {}),
      'error: unknown tool shout; tools: say, quit',
      'unknown_tool',
      False,
    ),
  ],
)
def test_replies_and_info(env, call, reply, kind, valid):
  texts, result = step(env, call)
  assert texts == [reply]
  assert (result.info['error'], result.info['valid']) == (kind, valid)
  assert result.info['ok'] is (not kind)
  assert (result.done, result.stop_reason) == (False, None)


def test_a_parse_error_comes_back_and_nothing_is_executed(env):
  texts, result = step(env, ('quit', {}), error='malformed call: cut off')
  assert texts == ['error: malformed call: cut off']
  assert not result.done
  assert not result.info['valid']


def test_one_invalid_call_of_several_makes_the_turn_invalid(env):
  texts, result = step(env, ('nope', {}), ('say', {'x': 'hi'}))
  assert len(texts) == 2
  assert texts[1] == 'hi'
  assert not result.info['valid']


def test_too_many_calls_are_cut_once(env):
  texts, result = step(env, *[('say', {'x': 'a'})] * 100)
  assert texts == ['a'] * base.MAX_CALLS + ['error: at most 8 calls a turn']
  assert not result.info['valid']


@pytest.mark.parametrize('text, reward', [('yes', 1.0), ('maybe', 0.0)])
def test_a_text_without_calls_is_the_final_answer(env, text, reward):
  texts, result = step(env, text=text)
  assert texts == []
  assert (result.reward, result.done) == (reward, True)
  assert result.stop_reason is types.StopReason.DONE
  assert result.info['success'] is (reward > 0)


def test_misuse_by_the_loop_raises(env):
  with pytest.raises(RuntimeError, match='single-use'):
    env.reset(TASK)
  step(env, ('quit', {}))
  with pytest.raises(RuntimeError, match='no end before'):
    step(env, ('quit', {}))
  with pytest.raises(RuntimeError, match='reset before'):
    step(Echo(), ('quit', {}))


def test_errors_do_not_quote_without_bound(env):
  texts, _ = step(env, ('x' * 9999, {}))
  assert len(texts[0]) < 200
  texts, _ = step(env, error='y' * 9999)
  assert len(texts[0]) < 250


def test_environments_by_name():
  assert isinstance(envs.make('arithmetic'), base.Env)
  assert (
    type(envs.make('agentrl_jax.envs.flight:FlightEnv', legs=1))
    is (envs.ENVS['flight'])
  )
  with pytest.raises(ValueError, match="known: arithmetic, .*flight.*'flight'"):
    envs.make('flihgt')
  with pytest.raises(ValueError, match='no option leg; of the environment'):
    envs.make('flight', leg=1)
