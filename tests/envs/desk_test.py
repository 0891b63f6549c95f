"""The customer tells what is asked; the policy judges what was done and how."""

import pytest

from agentrl_jax import types
from agentrl_jax.envs import contract, desk, scripted


@pytest.mark.parametrize('options', [{}, {'orders': 2, 'impostors': 1.0}])
def test_contract(options):
  contract.check_env('desk', num_tasks=3, **options)


def order(**changes):
  row = {'item': 'kite', 'days': 10, 'state': 'shipped', 'email': 'a@b.c'}
  return {**row, **changes}


def start(want='refund', email='a@b.c', reason='broken', **changes):
  customer = {'want': want, 'order': '101', 'email': email, 'reason': reason}
  data = {
    'orders': {'101': order(**changes), '102': order(email='x@y.z')},
    'customer': {**customer, 'item': 'lamp'},
  }
  env = desk.DeskEnv()
  env.reset(types.Task('desk', 'test', 0, data))
  return env


def say(env, text):
  result = env.step(types.Action(text))
  (message,) = result.observation.messages
  assert message.role == 'user' and not result.done
  return message.content


def act(env, name, **arguments):
  return env.step(scripted.call(name, **arguments))


@pytest.mark.parametrize(
  'text, reply',
  [
    ('Which order?', 'It is order 101'),
    ('Order number please', 'It is order 101'),
    ('Your E-mail?', 'My email is a@b.c'),
    ('Why?', 'It came broken.'),
    ('What item?', 'Please send: lamp'),
    ('Your order and email?', 'It is order 101 My email is a@b.c'),
    ('Hello', 'Sorry?'),
    ('', 'Sorry?'),
  ],
)
def test_facts_are_told_when_asked_for(text, reply):
  assert say(start(), text) == reply


def test_an_order_is_looked_up():
  result = act(start(), 'lookup', order='101')
  (message,) = result.observation.messages
  assert message.role == 'tool'
  assert message.content == 'item kite days 10 state shipped email a@b.c'


@pytest.mark.parametrize(
  'want, changes, email, reason, made',
  [
    ('refund', {'days': 30}, 'a@b.c', 'unwanted', 'refund'),
    ('refund', {'days': 31}, 'a@b.c', 'unwanted', 'decline'),
    ('refund', {'days': 90}, 'a@b.c', 'broken', 'refund'),
    ('refund', {'days': 91}, 'a@b.c', 'broken', 'decline'),
    ('refund', {'days': 1}, 'x@y.z', 'broken', 'decline'),
    ('change', {'state': 'packed'}, 'a@b.c', 'broken', 'change'),
    ('change', {'state': 'shipped'}, 'a@b.c', 'broken', 'decline'),
    ('change', {'state': 'packed'}, 'x@y.z', 'broken', 'decline'),
  ],
)
def test_the_policy(want, changes, email, reason, made):
  assert desk.decision(want, order(**changes), email, reason) == made


def test_a_right_refund_without_the_email_earns_nothing():
  env = start()
  assert act(env, 'refund', order='101').reward == 0.0
  assert env.violations() == ['email not compared']
  env = start()
  say(env, 'email?')
  assert act(env, 'refund', order='101').reward == 1.0


def test_a_refund_that_hangs_on_the_reason_needs_it_asked():
  for question, reward in (('email?', 0.0), ('email? why?', 1.0)):
    env = start(days=60)
    say(env, question)
    assert act(env, 'refund', order='101').reward == reward


def test_the_database_is_compared_as_a_whole():
  cases = (
    ('refund', {'order': '102'}, 0.0),  # of somebody else
    ('decline', {}, 0.0),
    ('change', {'order': '101', 'item': 'robot'}, 0.0),  # not what was asked
    ('change', {'order': '101', 'item': 'lamp'}, 1.0),
  )
  for name, arguments, reward in cases:
    env = start(want='change', state='packed')
    say(env, 'email?')
    result = act(env, name, **arguments)
    assert (result.done, result.reward) == (True, reward), name


def test_impostors_are_declined():
  for name, arguments, reward in (
    ('refund', {'order': '101'}, 0.0),
    ('decline', {}, 1.0),
  ):
    env = start(email='x@y.z')
    say(env, 'email?')
    assert act(env, name, **arguments).reward == reward


def test_states_are_equal_whatever_the_order_of_questions():
  keys = []
  for questions in (('order?', 'email?'), ('email?', 'order?')):
    env = start()
    for question in (*questions, 'hello'):
      say(env, question)
    keys.append(env.state_key())
  assert keys[0] == keys[1] == 'told email order\nseen -\nSorry?'


def test_the_oracle_is_always_right():
  for seed in range(200):
    task = types.Task('desk', 'test', seed, desk.generate(seed))
    oracle = desk.DeskEnv.oracle(task)
    assert scripted.play(desk.DeskEnv(), task, oracle)[1] == 1.0, task.data


@pytest.mark.parametrize('options', [{'orders': 1}, {'impostors': -1}])
def test_impossible_options_are_errors(options):
  with pytest.raises(ValueError, match='give'):
    desk.generate(0, **options)
