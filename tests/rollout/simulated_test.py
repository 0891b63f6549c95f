"""Locks what a simulated device takes, and that time is simulated rightly."""

import numpy as np
import pytest

from agentrl_jax import types
from agentrl_jax.rollout import simulated
from agentrl_jax.sampler import lane

END, LETTERS, MOST = 9, (1, 2, 3), 64


def device(clock, **options):
  return simulated.Device(
    clock, letters=LETTERS, end=END, max_turn_tokens=MOST, **options
  )


def engine(clock, one, slots=4, rows=2):
  return simulated.Engine(
    one,
    simulated.Inline(),
    num_slots=slots,
    context_length=512,
    max_turn_tokens=MOST,
    shape=lane.Shape(rows, 8, 5, extend_steps=1.0),
    stop_ids=(END,),
  )


def ask(sampler, slot, number, tokens=(7, 7), had=0):
  words = np.array([number, 1], np.uint32)
  sampler.request(slot, tokens, words=words, temperature=1.0, budget=MOST - had)
  return words


def drain(sampler):
  done = []
  while sampler.busy:
    done += sampler.pump()
  return done


def test_a_turn_takes_an_extension_and_a_step_for_each_token_but_the_first():
  clock = simulated.Clock()
  one = device(clock, median=20.0)
  sampler = engine(clock, one)
  words = ask(sampler, sampler.acquire(), 3)
  (done,) = drain(sampler)
  assert done.tokens == tuple(one.turn(words)) and done.stopped
  assert len(done.tokens) > 2
  # 1 at the beginning; 0.04 s to extend, 0.04 s a step.
  assert clock() == pytest.approx(1 + 0.04 * len(done.tokens))


def test_slots_draw_side_by_side():
  clock = simulated.Clock()
  sampler = engine(clock, device(clock))
  for number in range(2):
    ask(sampler, sampler.acquire(), number, (number, 5))
  done = drain(sampler)
  longest = max(len(d.tokens) for d in done)
  assert clock() == pytest.approx(1 + 0.04 * longest)
  counted = sampler.counters
  assert counted.decode_steps == longest - 1
  assert counted.live_slot_steps == sum(len(d.tokens) - 1 for d in done)


def test_a_turn_that_was_withdrawn_goes_on_as_it_would_have():
  clock = simulated.Clock()
  one = device(clock, median=40.0)
  sampler = engine(clock, one)
  slot = sampler.acquire()
  words = ask(sampler, slot, 5)
  sampler.pump()
  (part,) = sampler.withdraw()
  assert not part.whole and 0 < len(part.tokens) < len(one.turn(words))
  assert sampler.publish(None, 1)
  had = len(part.tokens)
  ask(sampler, slot, 5, (7, 7, *part.tokens), had)
  (rest,) = drain(sampler)
  assert part.tokens + rest.tokens == tuple(one.turn(words))
  assert rest.version == 1


def test_lengths_are_lognormal():
  one = simulated.Device(
    simulated.Clock(), letters=LETTERS, end=END, max_turn_tokens=10**6
  )
  lengths = [len(one.turn(np.array([i, 0], np.uint32))) for i in range(2000)]
  logs = np.log(lengths)
  # Of 2,000 the median is within 60 x exp(+-3 x 1.25 / sqrt(2000)).
  assert 55 < np.median(lengths) < 66
  assert np.std(logs) == pytest.approx(1.0, abs=0.06)


def test_tools_work_beside_each_other_and_come_in_the_order_of_their_ends():
  clock = simulated.Clock()
  pool = simulated.Pool(clock)
  for name, seconds in (('slow', 3.0), ('fast', 1.0), ('same', 1.0)):
    pool.submit(name, lambda s=seconds: clock.sleep(s))
  assert clock() == 1.0 and pool.ready(block=False) == []
  assert pool.ready(timeout=0.5) == [] and clock() == 1.5
  assert [key for key, _ in pool.ready()] == ['fast', 'same']
  assert clock() == 2.0
  assert [key for key, _ in pool.ready()] == ['slow'] and clock() == 4.0
  assert pool.ready() == []


def test_turns_of_an_episode_are_geometric():
  turns = [simulated.num_turns('t', i, most=10**6) for i in range(4000)]
  assert min(turns) == 1
  # 1 + 0.8 / 0.2 on average, with a deviation of sqrt(0.8) / 0.2 = 4.5.
  assert np.mean(turns) == pytest.approx(5.0, abs=0.25)
  assert max(simulated.num_turns('t', i) for i in range(500)) == 20


def test_members_are_alike_as_far_as_they_should_be():
  def table(alike):
    return np.array(
      [
        [simulated.num_turns(f't{i}', j, alike=alike) for j in range(4)]
        for i in range(300)
      ]
    )

  assert np.ptp(table(1.0), axis=1).max() == 0
  apart, alike = (np.corrcoef(table(a).T)[0, 1] for a in (0.0, 0.8))
  assert abs(apart) < 0.2 and alike > 0.6
  assert table(0.8).mean() == pytest.approx(4.94, abs=0.6)


def test_the_world_sleeps_as_long_as_it_says():
  clock = simulated.Clock()
  world = simulated.World(clock, 0.5)
  task = types.Task('load', 'train', 3, {})
  world.reset(task, sample=2)
  turns, done = 0, False
  while not done:
    done = world.step(types.Action('', (), '')).done
    turns += 1
  assert turns == simulated.num_turns(task.name, 2)
  told = simulated.tool_seconds(0.5, task.name, 2, turns)
  assert clock() == pytest.approx(1 + told) and told > 0
