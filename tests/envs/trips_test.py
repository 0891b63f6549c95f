"""Trips: seat maps, moving fares, a policy, and notes that stay in sight."""

import pytest

from agentrl_jax import types
from agentrl_jax.envs import contract, noise, scripted, trips

LEGS = [['Rom', 'Oslo', 'early'], ['Oslo', 'Rom', 'evening']]


def flight(route, time, price, *free):
  return {'route': route, 'time': time, 'price': price, 'free': list(free)}


def world(**changes):
  """A round trip whose best flights are AA1 (then AA2) and BB1."""
  out, back = LEGS[0][:2], LEGS[1][:2]
  data = {
    'kind': 'round',
    'legs': LEGS,
    'side': 'window',
    'flights': {
      'AA0001': flight(out, '07:00', 300, '1A', '2C'),
      'AA0002': flight(out, '08:00', 330, '2A'),
      'AA0003': flight(out, '06:00', 270, '2C'),  # aisle only
      'AA0004': flight(out, '09:00', 240, '1A'),  # not early
      'BB0001': flight(back, '18:00', 500, '3A'),
      'BB0002': flight(back, '17:00', 100, '3A'),  # not evening
    },
    'moves': [None, None],
    'codes': ['K2', 'M3'],
    'booking': {
      'code': 'X9',
      'flight': 'AA0004',
      'fare': 'basic',
      'state': 'kept',
    },
    'seed': 1,
  }
  return {**data, **changes}


def start(data, **options):
  env = trips.TripsEnv(**options)
  env.reset(types.Task('trips', 'test', 0, data))
  return env


def act(env, name, **arguments):
  result = env.step(scripted.call(name, **arguments))
  (message,) = result.observation.messages
  return message.content


def search(env, when='early', origin='Rom', to='Oslo'):
  return act(env, 'search', **{'from': origin, 'to': to}, when=when)


def say(env, text):
  return env.step(types.Action(text)).reward


def change(**booking):
  data = world(kind='change', legs=LEGS[:1])
  return {**data, 'booking': {**data['booking'], **booking}}


@pytest.mark.parametrize(
  'options',
  [
    {},
    {'kinds': ('book',), 'legs': 3, 'notes': False},
    {'failing_tools': 0.3, 'distractors': 0.3, 'kinds': ('round', 'change')},
    {'kinds': ('cancel',), 'flights': 4, 'moving': 1.0},
  ],
)
def test_contract(options):
  contract.check_env('trips', num_tasks=4, **options)


def test_a_list_is_of_its_period_and_cheapest_first():
  env = start(world())
  rows = 'AA0003 06:00 270\nAA0001 07:00 300\nAA0002 08:00 330'
  assert search(env) == rows
  assert search(env, 'any') == 'AA0004 09:00 240\n' + rows
  assert search(env, 'evening') == 'no flights'
  assert search(env, 'evening', 'Oslo', 'Rom') == 'BB0001 18:00 500'


@pytest.mark.parametrize(
  'first, second, answer, reward',
  [
    (('AA0001', '1A'), ('BB0001', '3A'), 'K2 M3', 1.0),
    (('AA0001', '1A'), ('BB0001', '3A'), 'M3 K2', 0.0),  # out of order
    (('AA0001', '1A'), ('BB0001', '3A'), 'M3', 0.0),  # the first forgotten
    (('AA0001', '1A'), ('BB0001', '3A'), 'K2 M3 X9', 0.0),  # one too many
    (('AA0001', '2C'), ('BB0001', '3A'), 'K2 M3', 0.0),  # aisle
    (('AA0002', '2A'), ('BB0001', '3A'), 'K2 M3', 0.0),  # dearer
    (('AA0004', '1A'), ('BB0001', '3A'), 'K2 M3', 0.0),  # not early
    (('AA0001', '1A'), ('BB0002', '3A'), 'K2 M3', 0.0),  # not in the evening
  ],
)
def test_a_round_trip_is_judged_leg_by_leg(first, second, answer, reward):
  env = start(world())
  reply = act(env, 'order', flight=first[0], seat=first[1])
  assert reply == 'code K2. next: Oslo > Rom > evening'
  reply = act(env, 'order', flight=second[0], seat=second[1])
  assert reply == 'code M3. say all codes'
  assert say(env, answer) == reward


def test_half_a_trip_earns_nothing():
  env = start(world())
  act(env, 'order', flight='AA0001', seat='1A')
  assert say(env, 'K2') == 0.0


def test_seats_are_shown_and_taken_once():
  env = start(world())
  assert act(env, 'seats', flight='AA0001') == 'free 1A 2C'
  assert act(env, 'order', flight='AA0001', seat='3A') == '3A is taken'
  act(env, 'order', flight='AA0001', seat='1A')
  assert act(env, 'seats', flight='AA0001') == 'free 2C'
  assert act(env, 'seats', flight='ZZ9999') == 'no flight ZZ9999'


def test_a_fare_moves_after_its_number_of_calls_and_is_said():
  data = world(moves=[[2, 'AA0001', 900], None])
  for calls, best in ((1, 'AA0001'), (2, 'AA0002')):
    env = start(data)
    replies = [search(env) for _ in range(calls)]
    assert replies[-1].endswith(trips.MOVED) == (calls == 2)
    seat = {'AA0001': '1A', 'AA0002': '2A'}[best]
    act(env, 'order', flight=best, seat=seat)
    act(env, 'order', flight='BB0001', seat='3A')
    assert say(env, 'K2 M3') == 1.0, calls
  env = start(data)
  search(env), search(env)
  assert 'AA0001 07:00 900' in search(env)


def test_calls_are_counted_leg_by_leg():
  env = start(world(moves=[None, [2, 'BB0001', 900]]))
  search(env), search(env)
  act(env, 'order', flight='AA0001', seat='1A')
  assert trips.MOVED not in search(env, 'evening', 'Oslo', 'Rom')
  assert trips.MOVED in search(env, 'evening', 'Oslo', 'Rom')


@pytest.mark.parametrize(
  'booking, kind, how, reward',
  [
    ({'fare': 'flex'}, 'change', 'change', 1.0),
    ({'fare': 'flex'}, 'change', 'decline', 0.0),
    ({'state': 'moved'}, 'change', 'change', 1.0),
    ({}, 'change', 'change', 0.0),
    ({}, 'change', 'decline', 1.0),
    ({'fare': 'flex'}, 'change', 'cancel', 0.0),
    ({'fare': 'flex'}, 'cancel', 'cancel', 1.0),
    ({}, 'cancel', 'cancel', 0.0),
    ({}, 'cancel', 'decline', 1.0),
  ],
)
def test_the_policy(booking, kind, how, reward):
  env = start({**change(**booking), 'kind': kind})
  row = env.step(scripted.call('booking', code='X9')).observation.messages[0]
  fare, state = booking.get('fare', 'basic'), booking.get('state', 'kept')
  assert row.content == f'AA0004 {fare} {state}'
  arguments = {
    'change': {'code': 'X9', 'flight': 'AA0001', 'seat': '1A'},
    'cancel': {'code': 'X9'},
    'decline': {},
  }[how]
  result = env.step(scripted.call(how, **arguments))
  assert (result.done, result.reward) == (True, reward)


def test_a_change_to_the_wrong_flight_earns_nothing():
  env = start(change(fare='flex'))
  call = scripted.call('change', code='X9', flight='AA0002', seat='2A')
  assert env.step(call).reward == 0.0


@pytest.mark.parametrize(
  'data, name, arguments, reply',
  [
    (world(), 'booking', {'code': 'X9'}, 'no booking X9'),
    (change(), 'booking', {'code': 'K2'}, 'no booking K2'),
    (
      change(),
      'order',
      {'flight': 'AA0001', 'seat': '1A'},
      'nothing to book',
    ),
    (
      {**change(), 'kind': 'cancel'},
      'change',
      {'code': 'X9', 'flight': 'AA0001', 'seat': '1A'},
      'nothing to change',
    ),
  ],
)
def test_what_is_no_part_of_the_request_is_refused(
  data, name, arguments, reply
):
  assert act(start(data), name, **arguments) == reply


def test_declining_a_booking_request_earns_nothing():
  env = start(world())
  assert env.step(scripted.call('decline')).reward == 0.0


def test_a_note_stays_under_every_reply_until_the_next():
  env = start(world())
  assert act(env, 'note', text=' K2\n M3 ') == 'noted\nnote: K2 M3'
  assert act(env, 'seats', flight='AA0002') == 'free 2A\nnote: K2 M3'
  act(env, 'note', text='x' * 100)
  shown = act(env, 'seats', flight='AA0002').splitlines()[1]
  assert len(shown) == len('note: ') + trips.NOTE_CHARS
  assert 'xxx' in env.state_key()


def test_without_notes_there_is_no_such_tool():
  env = start(world(), notes=False)
  assert 'note' not in [tool['function']['name'] for tool in env.tools]
  assert act(env, 'note', text='K2').startswith('error:')


def test_demonstrations_note_codes_only_where_they_can():
  task = types.Task(
    'trips', 'test', 0, trips.TripsEnv.generate(1, kinds=['round'])
  )
  rates = dict.fromkeys(trips.TripsEnv.rates, 0.0)
  for notes in (True, False):
    messages, reward = trips.TripsEnv.demonstrate(
      task, seed=0, rates=rates, notes=notes
    )
    written = [m for m in messages if '"note"' in m.content]
    assert (bool(written), reward) == (notes, 1.0)


def test_failing_calls_are_repeated_and_change_nothing_else():
  data = world(moves=[[2, 'AA0001', 900], None])
  env = start(data, failing_tools=0.8)
  replies = []
  while len([r for r in replies if r != noise.BUSY]) < 2:
    replies.append(search(env))
  assert noise.BUSY in replies
  assert [r.endswith(trips.MOVED) for r in replies if r != noise.BUSY] == [
    False,
    True,
  ]


@pytest.mark.parametrize(
  'kind, wrong',
  [
    ('any_time', 'book'),
    ('first_listed', 'book'),
    ('stale', 'book'),
    ('generous', 'change'),
    ('generous', 'cancel'),
    ('forget', 'round'),
  ],
)
def test_each_mistake_costs_something(kind, wrong):
  total = 0.0
  for seed in range(40):
    data = trips.TripsEnv.generate(seed, kinds=[wrong], moving=1.0)
    task = types.Task('trips', 'test', seed, data)
    agent = trips.TripsEnv.agent(task, seed=seed, rates={kind: 1.0})
    total += scripted.play(trips.TripsEnv(), task, agent)[1]
  assert total <= 32


@pytest.mark.parametrize(
  'options, message',
  [
    ({'kinds': ('walk',)}, 'kinds'),
    ({'kinds': ()}, 'kinds'),
    ({'legs': 4}, 'legs'),
    ({'flights': 3}, 'flights'),
    ({'moving': 2}, 'moving'),
  ],
)
def test_options_out_of_range_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    trips.TripsEnv.generate(0, **options)
