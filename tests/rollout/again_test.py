"""Slots are taken back, and episodes played again: no token is lost."""

import dataclasses
import functools
import random

import pytest
import rollout_fakes as made

from agentrl_jax import types
from agentrl_jax.rollout import entries as entries_lib
from agentrl_jax.rollout import loop
from agentrl_jax.text.memory import Memory

DRAWS = loop.Draws(0, 'train', 3)


def entries():
  return [loop.Entry(task, s) for task in made.tasks(4) for s in range(3)]


def collector(engine=None, make_env=made.EchoEnv, language=None, workers=0):
  return loop.Collector(
    engine or made.FakeEngine(made.draw_text),
    make_env,
    language or made.language(),
    made.limits(),
    workers=workers,
  )


def play(given=None, **options):
  player = collector(**options)
  try:
    return player.collect(given or entries(), DRAWS)
  finally:
    player.close()


@functools.cache
def reference():
  return play()


def interrupted(seed, after, **options):
  """Plays for some steps, gives all slots back, and again; at random."""
  player, draw = collector(**options), random.Random(seed)
  ended = []
  play = loop.Play(player, ended.append)
  players = play.add(entries(), DRAWS)
  for _ in range(after):
    if draw.random() < 0.3:
      play.vacate()
      assert player.engine.num_free == player.engine.num_slots
    play.advance()
  return play, players, player


@pytest.mark.parametrize('seed', range(4))
def test_slots_that_are_taken_back_cost_no_token(seed):
  play, players, player = interrupted(seed, 0)
  draw = random.Random(seed)
  while play.num_open:
    if draw.random() < 0.3:
      play.vacate()
    play.advance()
  assert [p.done for p in players] == reference()
  assert player.engine.num_free == player.engine.num_slots
  assert play.num_restarted == 0
  masks = [c.sampled_mask for t in reference() for c in t.contexts]
  assert player.engine.num_drawn == sum(map(sum, masks))


def again(players):
  return [
    dataclasses.replace(p.entry, past=entries_lib.past(p)) for p in players
  ]


@pytest.mark.parametrize('after', [0, 3, 9, 15])
@pytest.mark.parametrize('workers', [0, 3])
@pytest.mark.parametrize(
  'memory', [Memory(), Memory(name='window', window=1)], ids=lambda m: m.name
)
def test_episodes_come_back_by_what_was_drawn_of_them(after, workers, memory):
  language = dataclasses.replace(made.language(), memory=memory)
  options = dict(language=language, workers=workers)
  whole = play(**options)
  first, players, player = interrupted(after, after, **options)
  player.engine.version = 5
  first.vacate()
  player.close()
  ended = [p.done for p in players if p.done]
  assert ended or after < 15
  left = [p for p in players if p.done is None]
  later = made.FakeEngine(made.draw_text)
  later.version = 6
  played = play(again(left), engine=later, **options)
  expected = [t for t, p in zip(whole, players) if p.done is None]
  versions = set()
  for mine, other in zip(played, expected, strict=True):
    assert [c.tokens for c in mine.contexts] == [
      c.tokens for c in other.contexts
    ]
    assert mine.turns == other.turns
    assert mine.stop_reason is other.stop_reason
    for context in mine.contexts:
      seen = [v for v, m in zip(context.versions, context.sampled_mask) if m]
      versions |= set(seen)
      assert seen == sorted(seen)  # older tokens first
  assert 6 in versions and (5 in versions or after < 9)
  # What had been drawn is not drawn again.
  had = sum(len(t.tokens) for e in again(left) for t in e.past)
  kept = sum(v == 5 for t in played for c in t.contexts for v in c.versions)
  assert kept == had


def test_an_episode_whose_world_is_another_begins_anew():
  first, players, _ = interrupted(1, 12)
  first.vacate()
  past = [e for e in again(players) if any(t.tokens for t in e.past[:-1])]
  assert past

  class Other(made.EchoEnv):
    def step(self, action):
      result = super().step(action)
      (told,) = result.observation.messages
      other = types.Message('tool', f'now {told.content}')
      return dataclasses.replace(
        result, observation=types.Observation((other,))
      )

  player = collector(make_env=Other)
  ended = []
  later = loop.Play(player, ended.append)
  made.EchoEnv.open = 0
  players = later.add(past, DRAWS)
  while later.num_open:
    later.advance()
  assert 0 < later.num_restarted <= len(past)
  assert made.EchoEnv.open == 0
  fresh = [dataclasses.replace(e, past=()) for e in past]
  assert [p.done for p in players] == play(fresh, make_env=Other)


def test_twins_share_the_sampler_and_no_environment():
  one = collector(workers=2)
  two = one.twin()
  assert two.engine is one.engine and two._pool is not one._pool
  assert two.collect(entries(), DRAWS) == reference()
  two.close()
  assert one.collect(entries(), DRAWS) == reference()
  one.close()
