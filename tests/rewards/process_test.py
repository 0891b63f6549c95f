"""Scores of steps in the flight world: the mission's three, and no farming."""

import pytest
import reward_fakes as made

from agentrl_jax import envs, types
from agentrl_jax.envs import flight, flight_agent, flight_world
from agentrl_jax.rewards import process

MISSION = types.Task('flight', 'mission', 0, flight_world.mission())


def play(*actions, task=MISSION, **options):
  return made.play(envs.make('flight', **options), task, *actions)


act = made.action
SEARCH = act('search', query='Beijing Shanghai early morning cheap flight')
FILTER = act('filter', dep='<9:00', sort='price')


def test_right_wrong_and_detour_are_the_missions_three_scores():
  """A right search, a filter that cannot be read, a page nobody needs."""
  episode = play(SEARCH, act('filter', dep='soon'), act('page'))
  assert process.process(episode) == [1.0, -0.5, 0.3]


def test_trajectories_a_and_b():
  a = play(
    SEARCH,
    FILTER,
    act('check_seat', flight='CA1501'),
    act('order', flight='CA1501', seat='window'),
  )
  assert process.flight(a) == ['right'] * 4
  b = play(
    act('search', query='Beijing Shanghai flight'),
    act('pick_first'),
    act('order', flight='MU5101'),
  )
  assert process.flight(b) == ['detour', 'nothing', 'wrong']


def test_the_oracle_is_right_at_every_step():
  for index in range(20):
    data = flight.FlightEnv.generate(index)
    task = types.Task('flight', 'test', index, data)
    env, agent, actions = envs.make('flight'), flight.FlightEnv.oracle(task), []
    new, done = env.reset(task).messages, False
    while not done:
      actions.append(agent.act(new))
      result = env.step(actions[-1])
      new, done = result.observation.messages, result.done
    env.close()
    verdicts = process.flight(play(*actions, task=task))
    allowed = {'right', 'detour', 'nothing'}  # a page where the list is long
    assert set(verdicts) <= allowed and verdicts[-1] == 'right'
    assert verdicts.count('right') >= 8


def test_nothing_is_gained_by_doing_it_again():
  """Every flight asked for, every list shown twice: one detour is paid."""
  asks = [act('check_seat', flight=row[0]) for row in MISSION.data['flights']]
  more = [SEARCH, FILTER, act('page'), act('pick_first')] * 3
  farmed = sum(process.process(play(SEARCH, FILTER, *asks, *more)))
  # Search, filter, two seats (CA1831, CA1501), one detour.
  assert farmed == pytest.approx(4.3)


def test_a_new_search_forgets_the_filter():
  early, by_price = act('filter', dep='<9:00'), act('filter', sort='price')
  episode = play(SEARCH, early, SEARCH, by_price, early)
  want = ['right', 'detour', 'nothing', 'nothing', 'right']
  assert process.flight(episode) == want


def test_faults_are_wrong_whoever_made_them():
  broken = types.Action('{', (), 'not valid JSON')
  episode = play(
    broken,
    types.Action('I am done thinking'),
  )
  assert process.flight(episode) == ['wrong', 'wrong']
  unknown = play(act('order', flight='XX0000'), act('fly'), act('page'))
  assert process.flight(unknown) == ['wrong'] * 3
  sold_out = play(act('order', flight='CA1831'))
  assert process.flight(sold_out) == ['wrong']
  busy = play(SEARCH, failing_tools=1.0)
  assert process.flight(busy) == ['nothing']


def test_a_turn_of_several_calls_is_as_good_as_its_worst():
  both = types.Action('', SEARCH.calls + act('order', flight='CA1831').calls)
  assert process.flight(play(both)) == ['wrong']


def test_the_next_leg_begins_anew():
  data = flight.FlightEnv.generate(3)
  task = types.Task('flight', 'test', 3, data)
  (a, b), (c, d) = data['legs']
  wrong = max(data['flights'], key=lambda row: row[4])[0]
  episode = play(
    act('search', **{'from': a, 'to': b}),
    act('order', flight=wrong),
    act('search', **{'from': a, 'to': b}),  # the leg before
    act('search', **{'from': c, 'to': d}),
    task=task,
  )
  assert process.flight(episode) == ['right', 'wrong', 'detour', 'right']


def test_what_it_cannot_judge_it_says():
  with pytest.raises(ValueError, match="cannot judge a task of 'x'"):
    process.process(made.trajectory(0))
  with pytest.raises(ValueError, match=r"gave \['odd'\]; known: \['right'"):
    process.process(made.trajectory(0), rule='reward_fakes:odd')


def test_the_agents_mistakes_cost():
  """Scripted agents in the order of their skill."""
  sums = {}
  for name in ('oracle', 'demonstrations', 'random'):
    total = 0.0
    for index in range(12):
      task = types.Task('flight', 't', index, flight.FlightEnv.generate(index))
      agent = flight_agent.AGENTS[name](index)
      env = envs.make('flight')
      new, actions, done = env.reset(task).messages, [], False
      while not done and len(actions) < 16:
        actions.append(agent.act(new))
        result = env.step(actions[-1])
        new, done = result.observation.messages, result.done
      env.close()
      total += sum(process.process(play(*actions, task=task)))
    sums[name] = total / 12
  assert sums['oracle'] > sums['demonstrations'] > sums['random']
