"""Who gets a slot next; by no order does a trajectory change."""

import functools
import time

import pytest
import rollout_fakes as made

from agentrl_jax.rollout import entries, loop, queues
from agentrl_jax.rollout.stream import Drawn


def player(task, sample, iteration=0, length=0, began=0.0):
  entry = loop.Entry(made.tasks(9)[task], sample)
  episode = loop.Episode(entry.task, sample, made.language(), made.limits())
  episode.drawn = [Drawn(tokens=(1,) * length)]
  draws = loop.Draws(0, 'train', iteration)
  return entries.Player(entry, draws, episode, began=began)


def names(queue):
  out = []
  while queue:
    one = queue.pop()
    out.append((one.draws.iteration, one.entry.task.index, one.entry.sample))
  return out


def filled(kind, players):
  queue = queues.ORDERS[kind]()
  for one in players:
    queue.append(one)
  return queue


def test_given_is_the_order_of_coming_and_of_coming_back():
  some = [player(0, 0), player(0, 1), player(1, 0)]
  queue = filled('given', some)
  queue.put_back(player(5, 0))
  queue.remove(some[1])
  assert names(queue) == [(0, 5, 0), (0, 0, 0), (0, 1, 0)]


def test_one_of_each_group_goes_first_then_those_that_nobody_knows():
  queue = filled(
    'longest', [player(t, s) for t in (0, 1, 2) for s in (0, 1, 2)]
  )
  first = [queue.pop() for _ in range(3)]
  assert [p.entry.task.index for p in first] == [0, 1, 2]
  # Group 0 ended after 5 tokens, group 2 after 9; of group 1 nothing is known.
  queue.learn(player(0, 0, length=5))
  queue.learn(player(2, 0, length=9))
  queue.learn(player(0, 7, length=3))  # its longest counts
  assert [t for _, t, _ in names(queue)] == [1, 1, 2, 2, 0, 0]


def test_who_has_begun_and_who_is_needed_first_go_before_all():
  some = [player(0, 0, iteration=1), player(1, 0), player(2, 0, 1, began=3.0)]
  assert names(filled('longest', some)) == [(1, 2, 0), (0, 1, 0), (1, 0, 0)]


def test_a_pause_makes_nobody_begin():
  collector = loop.Collector(
    made.FakeEngine(made.draw_text, 1), made.EchoEnv, made.language(),
    made.limits(), order='longest',
  )  # fmt: skip
  play = loop.Play(collector, lambda player: None)
  given = [loop.Entry(made.tasks(3)[2], sample) for sample in range(3)]
  players = play.add(given, loop.Draws(0, 'train', 0))
  play.advance()  # one slot
  (before,) = (p.began for p in players if p.began)
  play.prolong(5.0)
  assert sorted(p.began for p in players) == [0.0, 0.0, before + 5.0]


@pytest.mark.parametrize('order', queues.ORDERS)
def test_trajectories_are_the_same_by_any_order(order):
  given = [loop.Entry(t, s) for t in made.tasks(5) for s in range(3)]
  draws = loop.Draws(0, 'train', 3)

  def play(**options):
    collector = loop.Collector(
      made.FakeEngine(made.draw_text), made.EchoEnv, made.language(),
      made.limits(), **options,
    )  # fmt: skip
    return collector.collect(given, draws)

  assert play(order=order) == play()


def test_the_longest_first_keeps_slots_busy():
  """Group 2 takes three turns of 0.1 s, the others one: slots 2."""
  slow = functools.partial(
    made.EchoEnv, lambda t, s, n: time.sleep(0.1 * (n > 0))
  )
  given = [loop.Entry(made.tasks(3)[t], s) for t in (0, 2) for s in range(4)]
  ends = {}
  for order in queues.ORDERS:
    collector = loop.Collector(
      made.FakeEngine(made.draw_text, 2), slow, made.language(),
      made.limits(), workers=2, order=order,
    )  # fmt: skip
    last = []
    collector.collect(given, loop.Draws(0, 'train', 0), last.append)
    ends[order] = [t.task.index for t in last]
    collector.close()
  assert ends['given'][-1] == 2 and ends['longest'][-1] == 0


@pytest.mark.parametrize('yield_s', [0.0, 0.02])
def test_a_slot_is_given_to_others_while_a_tool_works(yield_s):
  """One slot, two episodes of a step of 0.3 s: side by side or in line."""
  begun = []

  def delay(task, sample, turn):
    begun.append((turn, task.index, time.monotonic()))
    time.sleep(0.3 * (turn > 0))

  collector = loop.Collector(
    made.FakeEngine(made.draw_text, 1), lambda: made.EchoEnv(delay),
    made.language(), made.limits(), workers=2, yield_s=yield_s,
  )  # fmt: skip
  given = [loop.Entry(made.tasks(4)[i], 0) for i in (0, 3)]  # of one turn
  draws = loop.Draws(0, 'train', 3)
  start = time.monotonic()
  played = collector.collect(given, draws)
  collector.close()
  first, second = (at for turn, _, at in begun if turn == 1)
  assert (second - first < 0.3) == bool(yield_s), time.monotonic() - start
  inline = loop.Collector(
    made.FakeEngine(made.draw_text), made.EchoEnv, made.language(),
    made.limits(),
  )  # fmt: skip
  assert played == inline.collect(given, draws)


def test_who_gave_its_slot_away_goes_on_in_another():
  """Five episodes in two slots, tools of 20 ms, slots for 1 ms at most."""
  slow = functools.partial(made.EchoEnv, lambda *_: time.sleep(0.02))
  given = [loop.Entry(t, s) for t in made.tasks(5) for s in range(2)]
  draws = loop.Draws(0, 'train', 3)
  engine, before = made.FakeEngine(made.draw_text, 2), made.EchoEnv.open
  collector = loop.Collector(
    engine, slow, made.language(), made.limits(), workers=4, yield_s=1e-3
  )
  played = collector.collect(given, draws)
  collector.close()
  inline = loop.Collector(
    made.FakeEngine(made.draw_text), made.EchoEnv, made.language(),
    made.limits(),
  )  # fmt: skip
  assert played == inline.collect(given, draws)
  assert engine.num_free == 2 and made.EchoEnv.open == before
