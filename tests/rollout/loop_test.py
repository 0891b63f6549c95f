"""What a trajectory holds never depends on who arrived first."""

import collections
import dataclasses
import functools
import random
import threading
import time

import jax
import pytest
import rollout_fakes as made

from agentrl_jax import sharding, types
from agentrl_jax.envs import remote
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.rollout import breaker, loop
from agentrl_jax.sampler.engine import Engine
from agentrl_jax.text import templates
from agentrl_jax.text.memory import Memory

StopReason = types.StopReason
DRAWS = loop.Draws(0, 'train', 3)


def entries(num_tasks=4, size=3):
  return [
    loop.Entry(task, s) for task in made.tasks(num_tasks) for s in range(size)
  ]


def collector(engine=None, make_env=made.EchoEnv, language=None, **options):
  engine = engine or made.FakeEngine(made.draw_text)
  language = language or made.language()
  return loop.Collector(engine, make_env, language, made.limits(), **options)


def play(given=None, draws=DRAWS, on_state=None, **options):
  player = collector(**options)
  try:
    return player.collect(given or entries(), draws, on_state=on_state)
  finally:
    player.close()


def random_delays(seed):
  draw = random.Random(seed)

  def delay(*_):
    time.sleep(draw.choice((0, 0, 0.001, 0.004)))

  return functools.partial(made.EchoEnv, delay)


@functools.cache
def reference():
  return play()


@pytest.mark.parametrize('seed', range(4))
def test_order_of_arrival_changes_nothing(seed):
  for slots in (1, 5):
    engine = made.FakeEngine(made.draw_text, num_slots=slots, seed=seed)
    played = play(engine=engine, make_env=random_delays(seed), workers=4)
    assert played == reference()


def test_in_processes_of_their_own_episodes_are_the_same():
  maker = remote.Maker(made.EchoEnv, 'process', 60.0)
  played = play(entries(2, 2), make_env=maker, workers=3)
  assert played == play(entries(2, 2))


def test_every_entry_is_played_once_in_order():
  played = reference()
  assert [(t.task, t.sample) for t in played] == [
    (e.task, e.sample) for e in entries()
  ]
  for t in played:
    assert t.stop_reason is StopReason.DONE
    assert len(t.turns) == t.task.data['turns']


def test_the_sampler_was_given_exactly_the_context():
  engine = made.FakeEngine(made.draw_text, num_slots=12)
  played = play(engine=engine)
  left = collections.Counter(map(tuple, engine.contexts.values()))
  assert left == collections.Counter(t.contexts[0].tokens[:-1] for t in played)
  for t in played:
    rendered = templates.render(
      made.language().tokenizer, 'tiny', conversation(t)
    )
    assert t.contexts[0].tokens == rendered.ids
    assert t.contexts[0].sampled_mask == rendered.sampled_mask


def conversation(played):
  messages = list(played.prompt)
  for turn in played.turns:
    messages.append(types.Message('assistant', turn.text))
    messages += turn.observation
  return messages[: len(messages) - len(played.turns[-1].observation)]


def test_members_iterations_seeds_and_purposes_draw_apart():
  def texts(played):
    return [[turn.text for turn in t.turns] for t in played]

  first = texts(reference())
  assert first[0] != first[1] and len(set(map(str, first))) == len(first)
  for draws in (
    loop.Draws(0, 'train', 4),
    loop.Draws(1, 'train', 3),
    loop.Draws(0, 'eval', 3),
  ):
    assert texts(play(draws=draws)) != first
  assert texts(play(draws=loop.Draws(0, 'train', 3))) == first


def test_no_two_turns_share_a_key():
  engine = made.FakeEngine(made.draw_text)
  played = play(engine=engine, draws=loop.Draws(0, 'train', 3, 0.5))
  words = [request[0] for request in engine.requests]
  assert len(set(words)) == len(words) == sum(len(t.turns) for t in played)
  assert {request[1:] for request in engine.requests} == {(0.5, 8)}


def test_a_subset_is_played_as_among_all():
  some = entries()[4:7]
  assert play(some) == reference()[4:7]


def raises():
  raise RuntimeError('the database is gone')


def hangs():
  time.sleep(1.0)


FAULTS = {
  'raises': (raises, StopReason.ENV_ERROR, 'the database is gone'),
  'exits': (lambda: exit(3), StopReason.ENV_ERROR, 'SystemExit'),
  'garbage': (lambda: 'ok', StopReason.ENV_ERROR, 'expected'),
  'nothing': (lambda: None, StopReason.ENV_ERROR, 'expected'),
  'hangs': (hangs, StopReason.ENV_TIMEOUT, 'no result within'),
}


@pytest.mark.parametrize('name', FAULTS)
@pytest.mark.parametrize('turn', [0, 1])
def test_a_fault_is_recorded_and_the_rest_unaffected(name, turn):
  function, reason, words = FAULTS[name]
  make_env = functools.partial(made.EchoEnv, fault={(1, turn): function})
  played = play(make_env=make_env, workers=5, deadline_s=0.4)
  for mine, other in zip(played, reference()):
    if mine.task.index == 1:
      assert mine.stop_reason is reason and words in mine.info['error']
      assert not mine.stop_reason.trainable
      assert len(mine.turns) == 0
    else:
      assert mine == other


def test_a_fault_inline_is_recorded_too():
  make_env = functools.partial(made.EchoEnv, fault={(1, 1): raises})
  played = play(make_env=make_env)
  reasons = {t.task.index: t.stop_reason for t in played}
  assert reasons.pop(1) is StopReason.ENV_ERROR
  assert set(reasons.values()) == {StopReason.DONE}


def test_an_episode_that_outlives_its_deadline_is_a_timeout():
  def delay(task, _, turn):
    time.sleep(6.0 if (task.index, turn) == (2, 1) else 0.0)

  start = time.monotonic()
  played = play(
    make_env=functools.partial(made.EchoEnv, delay),
    workers=5,
    deadline_s=9.0,
    episode_deadline_s=1.0,
  )
  assert time.monotonic() - start < 5.0  # nobody waited for the call
  for mine, other in zip(played, reference()):
    if mine.task.index == 2:
      assert mine.stop_reason is StopReason.ENV_TIMEOUT
      assert mine.info['error'].startswith('not over within 1 s')
    else:
      assert mine == other


def test_time_that_the_sampler_took_counts_for_the_episode():
  def draw(words, context):
    time.sleep(0.02)
    return made.draw_text(words, context)

  made.EchoEnv.open = 0
  engine = made.FakeEngine(draw)
  played = play(engine=engine, episode_deadline_s=0.01)
  assert {t.stop_reason for t in played} == {StopReason.ENV_TIMEOUT}
  assert made.EchoEnv.open == 0 and engine.num_free == engine.num_slots


def test_too_many_failures_stop_it_while_it_plays():
  calls, engine = [], made.FakeEngine(made.draw_text)

  def make_env():
    calls.append(0)
    raise OSError('no disk')

  player = collector(engine, make_env, breaker=breaker.Breaker(0.25))
  with pytest.raises(breaker.TooManyFailures, match='4 of 12 .* no disk'):
    player.collect(entries(), DRAWS)
  assert len(calls) < 12 and engine.num_free == engine.num_slots
  player.close()


def test_as_many_failures_as_allowed_do_not():
  make_env = functools.partial(made.EchoEnv, fault={(1, 0): raises})
  played = play(make_env=make_env, breaker=breaker.Breaker(0.25))
  assert [t.stop_reason for t in played].count(StopReason.ENV_ERROR) == 3


def test_an_environment_that_cannot_be_made_is_a_failure():
  def make_env():
    raise OSError('no disk')

  played = play(make_env=make_env)
  assert {t.stop_reason for t in played} == {StopReason.ENV_ERROR}
  assert all('no disk' in t.info['error'] for t in played)


def test_a_fault_on_closing_costs_nothing():
  class Sticky(made.EchoEnv):
    def close(self):
      super().close()
      raise OSError('cannot close')

  assert play(make_env=Sticky) == reference()


def test_environments_are_closed_and_slots_free():
  made.EchoEnv.open = 0
  engine = made.FakeEngine(made.draw_text)
  play(engine=engine, workers=2)
  assert made.EchoEnv.open == 0 and engine.num_free == engine.num_slots


@pytest.mark.parametrize('workers', [0, 3])
@pytest.mark.parametrize('after', [0, 1, 5, 17])
def test_a_stop_frees_everything_and_the_next_collection_is_the_same(
  workers, after
):
  asked = []
  made.EchoEnv.open = 0

  def should_stop():
    asked.append(0)
    return len(asked) == after + 1

  engine = made.FakeEngine(made.draw_text)
  player = collector(
    engine, random_delays(0), workers=workers, should_stop=should_stop
  )
  with pytest.raises(loop.Interrupted):
    player.collect(entries(), DRAWS)
  assert engine.num_free == engine.num_slots
  if not workers:
    assert made.EchoEnv.open == 0
  # Late results of the first are not taken for those of the second.
  assert player.collect(entries(), DRAWS) == reference()
  player.close()


def test_endings_are_told_as_they_happen():
  ended = []
  player = collector()
  played = player.collect(entries(), DRAWS, ended.append)
  assert sorted(map(id, ended)) == sorted(map(id, played))


def test_environments_work_while_others_wait():
  inside, most, lock = [0], [0], threading.Lock()

  def delay(*_):
    with lock:
      inside[0] += 1
      most[0] = max(most[0], inside[0])
    time.sleep(0.01)
    with lock:
      inside[0] -= 1

  play(
    engine=made.FakeEngine(made.draw_text, num_slots=8),
    make_env=functools.partial(made.EchoEnv, delay),
    workers=4,
  )
  assert most[0] > 1


# The real sampler: same bits whatever the order, the slots and the neighbours.


@functools.cache
def real_engine():
  config = ModelConfig(
    vocab_size=made.language().tokenizer.vocab_size, **PRESETS['tiny']
  )
  mesh = sharding.make_mesh({'data': 1, 'fsdp': 1, 'tensor': 1})
  engine = Engine(
    config,
    mesh,
    num_slots=4,
    context_length=128,
    max_turn_tokens=8,
    extend_rows=2,
    extend_chunk=16,
    decode_chunk=4,
    stop_ids=range(0, config.vocab_size, 4),  # an untrained policy ends, too
  )
  params = jax.jit(functools.partial(params_lib.init, config))(
    jax.random.key(0)
  )
  assert engine.publish(params, 7)
  return engine


@functools.cache
def real_reference():
  return play(engine=real_engine())


def test_the_real_sampler_plays_several_turns():
  played = real_reference()
  reasons = collections.Counter(t.stop_reason for t in played)
  assert reasons[StopReason.DONE] > 0 and sum(len(t.turns) for t in played) > 16
  for t in played:
    versions = set(t.contexts[0].versions)
    assert versions == {7, -1}


@pytest.mark.parametrize('seed', range(3))
def test_real_trajectories_are_bitwise_those_of_the_inline_loop(seed):
  played = play(engine=real_engine(), make_env=random_delays(seed), workers=4)
  assert played == real_reference()


def test_real_entries_alone_are_bitwise_as_among_all():
  assert play(entries()[5:8], engine=real_engine()) == real_reference()[5:8]


def test_after_a_stop_the_real_sampler_goes_on_bitwise():
  asked = []

  def should_stop():
    asked.append(0)
    return len(asked) == 6

  player = collector(real_engine(), should_stop=should_stop)
  with pytest.raises(loop.Interrupted):
    player.collect(entries(), DRAWS)
  assert player.collect(entries(), DRAWS) == real_reference()


def test_equal_entries_are_refused_and_attempts_differ():
  task = made.tasks(1)[0]
  with pytest.raises(ValueError, match=r"\('echo/train/0', 0, 0\).* 2 times"):
    play([loop.Entry(task, 0)] * 2)
  once, again = play([loop.Entry(task, 0), loop.Entry(task, 0, attempt=1)])
  assert once.contexts != again.contexts
  assert once.contexts == play([loop.Entry(task, 0)])[0].contexts


def states(items=None, **options):
  """The states of a collection, in the order of entries and turns."""
  found = []
  play(items, on_state=lambda e, s: found.append((e, s)), **options)
  return sorted(found, key=lambda x: (*x[0].name, x[1].episode.num_turns))


@pytest.mark.parametrize('workers', [0, 3])
@pytest.mark.parametrize(
  'memory',
  [Memory(), Memory(name='window', window=1), Memory(thinking='strip')],
  ids=lambda m: f'{m.name}-{m.thinking}',
)
def test_a_policy_without_chance_comes_from_a_state_where_it_came(
  memory, workers
):
  def draw(words, context):
    return made.draw_text((len(context), sum(context)), context)

  options = dict(
    engine=made.FakeEngine(draw),
    language=dataclasses.replace(made.language(), memory=memory),
    workers=workers,
  )
  plain = {t.task.name: t for t in play(entries(4, 1), **options)}
  found = states(entries(4, 1), **options)
  assert len(found) == sum(len(t.turns) for t in plain.values()) > 6
  made.EchoEnv.open = 0
  branches = [loop.Entry(e.task, s.episode.num_turns, 7, s) for e, s in found]
  for entry, played in zip(branches, play(branches, **options)):
    want = dataclasses.replace(plain[entry.task.name], sample=entry.sample)
    assert played == want
  assert made.EchoEnv.open == 0


def test_a_policy_by_chance_keeps_its_past_and_draws_its_future():
  (task,) = [t for t in made.tasks(3) if t.data['turns'] == 3]
  (plain,) = play([loop.Entry(task, 0)])
  first, second, third = (s for _, s in states([loop.Entry(task, 0)]))
  again = play([loop.Entry(task, 0, k, second) for k in range(8)])
  # Member and attempt 0 in another play: the keys of the turn are the same.
  assert again[0] == plain
  assert all(t.turns[0] == plain.turns[0] for t in again)
  assert len({t.turns[1].text for t in again}) > 2
  size = plain.turns[1].start
  assert all(
    t.contexts[0].tokens[:size] == second.episode.tokens for t in again
  )
  assert len(first.episode.tokens) < size < len(third.episode.tokens)
