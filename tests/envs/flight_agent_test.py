"""The oracle is right, the demonstrations are wrong in every known way."""

import collections
import dataclasses

import pytest

from agentrl_jax import types
from agentrl_jax.envs import flight, flight_agent, flight_world
from agentrl_jax.text import memory


def task(seed, **options):
  data = flight_world.generate(seed, **options)
  return types.Task('flight', 'test', seed, data)


@pytest.mark.parametrize(
  'world, env',
  [
    ({}, {}),
    ({'legs': 1}, {'instructions': 'none'}),
    ({'legs': 3}, {'instructions': 'task+hints', 'distractors': 0.5}),
    ({'sold_out': (0, 0, 0, 1)}, {}),  # the right one is on the second page
    ({}, {'failing_tools': 0.2}),
  ],
)
def test_oracle_always_succeeds(world, env):
  for seed in range(40):
    agent = flight_agent.AGENTS['oracle'](seed)
    _, reward = flight_agent.play(task(seed, **world), agent, **env)
    assert reward == 1.0


def test_oracle_pages_when_the_first_page_is_sold_out():
  agent = flight_agent.AGENTS['oracle'](0)
  messages, _ = flight_agent.play(task(0, sold_out=(0, 0, 0, 1)), agent)
  assert any('"page"' in message.content for message in messages)


def test_one_oracle_episode_to_the_letter():
  data = {
    'legs': [['Beijing', 'Xian']],
    'flights': [
      ['CA1501', 'Beijing', 'Xian', '07:00', 600, 1],
      ['MU5101', 'Beijing', 'Xian', '12:00', 300, 5],
      ['CZ1501', 'Beijing', 'Xian', '06:00', 510, 0],
    ],
    'seed': 0,
  }
  agent = flight_agent.AGENTS['oracle'](0)
  messages, reward = flight_agent.play(
    types.Task('flight', 'test', 0, data), agent
  )
  assert reward == 1.0
  assert [(m.role, m.content) for m in messages] == [
    ('system', 'You book flights with tools.'),
    ('user', 'Book cheapest early-morning flights: Beijing > Xian.'),
    (
      'assistant',
      '<tool_call>{"name":"search","args":{"from":"Beijing","to":"Xian"}}'
      '</tool_call>',
    ),
    (
      'tool',
      '3 flights\nCA1501 07:00 600\nMU5101 12:00 300\nCZ1501 06:00 510',
    ),
    (
      'assistant',
      '<tool_call>{"name":"filter","args":{"dep":"<09:00","sort":"price"}}'
      '</tool_call>',
    ),
    ('tool', '2 flights\nCZ1501 06:00 510\nCA1501 07:00 600'),
    (
      'assistant',
      '<tool_call>{"name":"check_seat","args":{"flight":"CZ1501"}}</tool_call>',
    ),
    ('tool', 'CZ1501 sold out'),
    (
      'assistant',
      '<tool_call>{"name":"check_seat","args":{"flight":"CA1501"}}</tool_call>',
    ),
    ('tool', 'CA1501 seats available'),
    (
      'assistant',
      '<tool_call>{"name":"order","args":{"flight":"CA1501"}}</tool_call>',
    ),
    ('tool', 'order placed. done'),
  ]


def test_demonstrations_succeed_seldom_and_err_in_every_way():
  mistakes, total = collections.Counter(), 0.0
  for seed in range(600):
    agent = flight_agent.AGENTS['demonstrations'](seed)
    total += flight_agent.play(task(seed), agent)[1]
    mistakes.update(set(agent.mistakes))
  assert 0.12 < total / 600 < 0.22
  for kind, rate in dataclasses.asdict(flight_agent.Rates()).items():
    if rate:
      assert mistakes[kind] > 600 * 0.02, kind


def test_an_agent_sees_only_text():
  """Seats that nobody asked for change nothing: the same calls come."""
  first = task(3)
  second = dataclasses.replace(first, data=flight_world.hide(first.data))
  calls = [
    flight_agent.play(each, flight_agent.AGENTS['no_seat_check'](0))[0]
    for each in (first, second)
  ]
  assert [m for m in calls[0] if m.role == 'assistant'] == [
    m for m in calls[1] if m.role == 'assistant'
  ]


def test_a_malformed_call_is_told_and_repeated():
  rates = dataclasses.replace(flight_agent.ORACLE, malformed=0.5)
  agent = flight_agent.Agent(seed=1, rates=rates)
  messages, reward = flight_agent.play(task(1), agent)
  assert reward == 1.0
  assert any(
    message.content.startswith('error: malformed call') for message in messages
  )


def test_a_trace_goes_before_every_call_and_changes_none():
  for seed in range(30):
    plain, thought = (
      flight.FlightEnv.demonstrate(
        task(seed), seed=seed, traces=traces, rates={'broad_query': 0.3}
      )
      for traces in (False, True)
    )
    assert plain[1] == thought[1] and len(plain[0]) == len(thought[0])
    for one, other in zip(plain[0][1:], thought[0][1:]):
      if one.role == 'assistant':
        assert other.content.startswith('<think>') and other.calls == one.calls
        assert memory.spoken(other.content) == one.content
      else:
        assert one == other


def test_one_thoughtful_call_to_the_letter():
  messages, _ = flight.FlightEnv.demonstrate(task(0), seed=0, traces=True)
  assert messages[0].content == 'You book flights with tools. Think first.'
  legs = ' > '.join(task(0).data['legs'][0])
  first = f'<think>find {legs}</think><tool_call>{{"name":"search"'
  assert messages[2].content.startswith(first)


def test_baselines_are_where_the_difficulty_table_needs_them():
  rates = {
    name: flight_agent.baseline_success(name, 200)
    for name in ('random', 'no_seat_check')
  }
  assert rates['random'] < 0.05
  assert 0.15 < rates['no_seat_check'] < 0.35  # 0.5 a leg, two legs
