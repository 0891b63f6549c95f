"""The mission's trajectories A and B, literally, and three actions at B's T2.

A fixed world of 200 flights around Beijing and Shanghai. What the numbers mean
is in the docstring of `flight_world.mission`.
"""

import pytest

from agentrl_jax import types
from agentrl_jax.envs import flight, flight_db, flight_world
from agentrl_jax.text import tools

TASK = types.Task('flight', 'mission', 0, flight_world.mission())
GAMMA = 0.95


def action(name, **arguments):
  """A call, through the text that a policy writes."""
  call = types.ToolCall(name, arguments)
  text = tools.render_call(call)
  return types.Action(text, tools.parse(text).calls)


def play(env, *actions):
  """Steps; returns observations and the last result."""
  results = [env.step(each) for each in actions]
  return [r.observation.messages[0].content for r in results], results[-1]


@pytest.fixture
def env():
  made = flight.FlightEnv()
  made.reset(TASK)
  yield made
  made.close()


A = (
  action('search', query='Beijing Shanghai early morning cheap flight'),
  action('filter', dep='<9:00', sort='price'),
  action('check_seat', flight='CA1501'),
  action('order', flight='CA1501', seat='window'),
)
B = (
  action('search', query='Beijing Shanghai flight'),
  action('pick_first'),
  action('order', flight='MU5101'),
)


def test_trajectory_a_is_issued_and_earns_1(env):
  seen, last = play(env, *A)
  assert seen[0].startswith('12 flights\n')
  assert 'CA1501 06:30 760' in seen[1].splitlines()
  # CA1831 is cheaper; that it is sold out is why the seat check matters.
  assert seen[1].splitlines()[1] == 'CA1831 07:00 690'
  assert seen[2] == 'CA1501 seats available'
  assert seen[3] == 'ticket issued. done'
  assert (last.reward, last.done) == (1.0, True)
  assert last.stop_reason is types.StopReason.DONE


def test_trajectory_b_is_placed_and_earns_0(env):
  seen, last = play(env, *B)
  assert seen[0].startswith('200 flights\nMU5101 09:30 1280\n')
  assert seen[1] == 'MU5101 09:30 1280'
  assert seen[2] == 'order placed. done'
  assert (last.reward, last.done) == (0.0, True)


def test_the_cheapest_early_flight_is_a_trap(env):
  seen, last = play(env, *A[:2], action('order', flight='CA1831'))
  assert seen[2] == 'sold out, order failed. done'
  assert last.reward == 0.0


def test_three_actions_at_t2_of_b_have_signs_plus_minus_plus(env):
  """1, 0 and 1 later: centred discounted returns are +, -, + in this order.

  γ = 0.95; success n turns after T2 is worth γ^n: compare needs 3 more turns
  (0.857), skip fails (0), paging and searching again takes 5 more (0.774).
  Mean 0.544: +0.314, -0.544, +0.230. The mission's 1.00, 0.00, 0.65 have the
  same signs: +0.45, -0.55, +0.10.
  """
  env.step(B[0])
  snapshot, key = env.snapshot(), env.state_key()
  check = action('check_seat', flight='CA1831')
  compare = (A[1], check, *A[2:])
  skip = B[1:]
  slow = (action('page'), A[0], A[1], check, *A[2:])
  returns = []
  for actions in (compare, skip, slow):
    env.restore(snapshot)
    assert env.state_key() == key  # the anchor that the three share
    _, last = play(env, *actions)
    assert last.done
    returns.append(last.reward * GAMMA ** (len(actions) - 1))
  assert returns == pytest.approx([0.857375, 0.0, 0.773781], abs=1e-6)
  mean = sum(returns) / 3
  centred = [value - mean for value in returns]
  assert centred == pytest.approx([0.313656, -0.543719, 0.230062], abs=1e-5)
  assert centred[0] > centred[2] > 0 > centred[1]


def test_the_world_is_as_the_mission_tells():
  data = flight_world.mission()
  assert flight_world.is_well_posed(data)
  database = flight_db.create(data['flights'])
  assert flight_db.best(database, 0, 'Beijing', 'Shanghai') == 'CA1501'
  database.close()
