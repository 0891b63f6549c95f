"""What the flight simulator lets an agent do, see, and not see."""

import pytest

from agentrl_jax import types
from agentrl_jax.envs import flight, flight_agent, noise

ROUTE = ['Beijing', 'Xian']
FLIGHTS = [
  ['CA1501', *ROUTE, '07:00', 600, 1],
  ['MU5101', *ROUTE, '12:00', 300, 5],
  ['CZ1501', *ROUTE, '06:00', 500, 0],
  ['HU1501', *ROUTE, '08:30', 700, 4],
  ['CA1831', 'Xian', 'Wuhan', '06:30', 400, 2],
  ['MU1831', 'Xian', 'Wuhan', '06:00', 450, 2],
]
DATA = {'legs': [ROUTE, ['Xian', 'Wuhan']], 'flights': FLIGHTS, 'seed': 1}
TASK = types.Task('flight', 'test', 0, DATA)


def start(**options):
  env = flight.FlightEnv(**options)
  env.reset(TASK)
  return env


def say(env, name, **arguments):
  """Steps a call, returns the reply."""
  result = env.step(flight_agent.call(name, **arguments))
  return result.observation.messages[0].content


def route(origin, destination):
  return {'from': origin, 'to': destination}


def finish(env, first, second):
  """Orders both legs, returns the reward."""
  env.step(flight_agent.call('order', flight=first))
  return env.step(flight_agent.call('order', flight=second)).reward


@pytest.mark.parametrize(
  'instructions, expected',
  [
    ('none', 'Beijing > Xian, Xian > Wuhan'),
    (
      'task',
      'Book cheapest early-morning flights: Beijing > Xian, Xian > Wuhan.',
    ),
  ],
)
def test_prompt_by_instructions(instructions, expected):
  env = flight.FlightEnv(instructions=instructions)
  assert env.reset(TASK).messages == (types.Message('user', expected),)


def test_hints_extend_the_task():
  prompts = [
    flight.FlightEnv(instructions=each).reset(TASK).messages[0].content
    for each in ('task', 'task+hints')
  ]
  assert prompts[1] == f'{prompts[0]}\n{flight.HINTS}'


def test_search_filter_sort_and_page():
  env = start()
  assert say(env, 'search', **route(*ROUTE)) == (
    '4 flights\nCA1501 07:00 600\nMU5101 12:00 300\nCZ1501 06:00 500'
  )
  assert say(env, 'page') == '4 flights page 2\nHU1501 08:30 700'
  assert say(env, 'page') == 'no more flights'
  assert say(env, 'filter', sort='price').splitlines()[1:] == [
    'MU5101 12:00 300',
    'CZ1501 06:00 500',
    'CA1501 07:00 600',
  ]
  early = '3 flights\nCZ1501 06:00 500\nCA1501 07:00 600\nHU1501 08:30 700'
  assert say(env, 'filter', dep='<9:00') == early  # the sort stays
  assert say(env, 'filter', dep='<09:00', sort='time').splitlines()[1] == (
    'CZ1501 06:00 500'
  )
  assert say(env, 'filter', dep='>=20:00') == '0 flights'
  assert say(env, 'pick_first') == 'no flights'


def test_what_cannot_be_done_is_said():
  env = start()
  assert say(env, 'page') == 'search first'
  assert say(env, 'search') == 'search needs from and to, or query'
  say(env, 'search', **route(*ROUTE))
  assert say(env, 'filter') == 'filter needs dep or sort'
  assert say(env, 'filter', dep='early') == 'dep must look like <09:00'
  assert say(env, 'check_seat', flight='ZZ1') == 'no flight ZZ1'
  assert say(env, 'order', flight='ZZ1') == 'no flight ZZ1'
  assert say(env, 'search', **route('Rome', 'Oslo')) == '0 flights'
  env.close()


def test_a_broad_query_is_mixed_and_a_narrow_one_is_not():
  env = start()
  mixed = say(env, 'search', query='Xian Beijing flight')
  assert mixed.startswith('6 flights\n')
  say(env, 'page')
  narrow = say(env, 'search', query='beijing to xian, early morning, cheap')
  assert narrow.splitlines()[1:] == [
    'CA1501 07:00 600',
    'CZ1501 06:00 500',
    'HU1501 08:30 700',
  ]
  other = say(env, 'search', query='Wuhan')
  assert other.splitlines()[1] == 'CA1831 06:30 400 Xian > Wuhan'


@pytest.mark.parametrize(
  'first, second, reward',
  [
    ('CA1501', 'CA1831', 1.0),
    ('HU1501', 'CA1831', 0.0),  # early, but not the cheapest with a seat
    ('MU5101', 'CA1831', 0.0),  # the cheapest, but not early
    ('CZ1501', 'CA1831', 0.0),  # sold out
    ('CA1501', 'MU1831', 0.0),  # one leg right is not enough
    ('CA1831', 'CA1501', 0.0),  # the right ones in the wrong order
  ],
)
def test_reward_needs_every_leg(first, second, reward):
  assert finish(start(), first, second) == reward


def test_replies_to_orders_do_not_tell_right_from_wrong():
  replies = {
    say(start(), 'order', flight=each)
    for each in ('CA1501', 'HU1501', 'MU5101', 'CA1831')
  }
  assert replies == {'order placed. next: Xian > Wuhan'}
  assert say(start(), 'order', flight='HU1501', seat='aisle') == (
    'ticket issued. next: Xian > Wuhan'
  )


def test_a_sold_out_order_closes_the_leg():
  env = start()
  reply = say(env, 'order', flight='CZ1501')
  assert reply == 'sold out, order failed. next: Xian > Wuhan'
  assert say(env, 'order', flight='CA1501') == 'order placed. done'


def test_orders_deplete_the_inventory():
  env = start()
  assert say(env, 'check_seat', flight='CA1501') == 'CA1501 seats available'
  say(env, 'order', flight='CA1501')
  assert say(env, 'check_seat', flight='CA1501') == 'CA1501 sold out'
  assert env.legs_right()[0]  # its own order does not count against it


def test_a_final_answer_ends_the_episode_unpaid():
  result = start().step(types.Action('All booked: CA1501 and CA1831!'))
  assert (result.reward, result.done) == (0.0, True)
  assert result.observation.messages == ()


def test_parallel_calls_are_answered_in_order_and_stop_at_the_end():
  orders = [
    types.ToolCall('order', {'flight': flight_id})
    for flight_id in ('CA1501', 'CA1831', 'MU1831')
  ]
  result = start().step(types.Action('', tuple(orders)))
  assert [message.content for message in result.observation.messages] == [
    'order placed. next: Xian > Wuhan',
    'order placed. done',
    'error: the episode is over',
  ]
  assert result.reward == 1.0


def test_state_key_is_view_leg_orders_and_last_observation():
  one, two = start(), start()
  say(one, 'search', **route(*ROUTE))
  say(two, 'search', **route(*ROUTE))
  say(two, 'page')
  say(two, 'search', **route(*ROUTE))
  assert one.state_key() == two.state_key()  # another path, the same sight
  say(two, 'filter', sort='price')
  assert one.state_key() != two.state_key()


@pytest.mark.parametrize(
  'key_orders, same', [('status', True), ('none', True), ('flight', False)]
)
def test_state_key_hides_whether_the_last_order_was_right(key_orders, same):
  right, wrong = start(key_orders=key_orders), start(key_orders=key_orders)
  say(right, 'order', flight='CA1501')
  say(wrong, 'order', flight='HU1501')
  assert (right.state_key() == wrong.state_key()) is same
  failed = start(key_orders='status')
  say(failed, 'order', flight='CZ1501')
  say(failed, 'search', **route('Xian', 'Wuhan'))
  placed = start(key_orders='status')
  say(placed, 'order', flight='HU1501')
  say(placed, 'search', **route('Xian', 'Wuhan'))
  assert failed.state_key() != placed.state_key()  # the agent saw that


def test_failures_are_shared_by_a_group_or_not():
  def busy(sample, shared):
    env = flight.FlightEnv(failing_tools=0.5, shared_noise=shared)
    env.reset(TASK, sample=sample)
    return [say(env, 'page') == noise.BUSY for _ in range(40)]

  assert busy(0, True) == busy(7, True)
  assert busy(0, False) != busy(7, False)
  assert busy(3, False) == busy(3, False)
  assert 8 < sum(busy(0, True)) < 32


def test_distractors_depend_on_what_is_shown_only():
  env = start(distractors=1.0)
  first = say(env, 'search', **route(*ROUTE))
  assert first.splitlines()[-1] in noise.NOTICES
  assert say(env, 'search', **route(*ROUTE)) == first


@pytest.mark.parametrize(
  'options', [{'instructions': 'all'}, {'key_orders': 'x'}]
)
def test_bad_options_are_errors(options):
  with pytest.raises(ValueError, match='is not one of'):
    flight.FlightEnv(**options)


def test_state_key_names_the_view_behind_the_last_observation():
  one, two = start(), start()
  say(one, 'search', **route(*ROUTE))
  say(two, 'search', **route(*ROUTE))
  say(two, 'filter', sort='price')
  assert say(one, 'check_seat', flight='CA1501') == say(
    two, 'check_seat', flight='CA1501'
  )
  assert one.state_key() != two.state_key()


def test_an_order_closes_the_list_of_its_leg():
  env = start()
  say(env, 'search', **route(*ROUTE))
  say(env, 'order', flight='CA1501')
  assert say(env, 'page') == 'search first'


def test_a_snapshot_does_not_change_with_the_episode():
  env = start()
  say(env, 'search', **route(*ROUTE))
  snapshot, key = env.snapshot(), env.state_key()
  for _ in range(2):
    assert finish(env, 'CA1501', 'CA1831') == 1.0
    env.restore(snapshot)
    assert env.state_key() == key
    assert say(env, 'check_seat', flight='CA1501').endswith('available')


def test_notices_do_not_depend_on_the_turn():
  env = start(distractors=0.5)
  cities = ('Beijing', 'Xian', 'Wuhan')
  seen = [
    tuple(say(env, 'search', **route(a, b)) for a in cities for b in cities)
    for _ in range(5)
  ]
  assert len(set(seen)) == 1
  assert 0 < sum('notice' in text for text in seen[0]) < 9
