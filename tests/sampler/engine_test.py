"""Locks the sampler: what is drawn, whatever slots, order and neighbours."""

import dataclasses
import threading
import time
from concurrent import futures

import jax
import jax.monitoring
import numpy as np
import pytest

from agentrl_jax import sharding
from agentrl_jax.learner import objective
from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.rollout import collate
from agentrl_jax.sampler import engine as engine_lib
from agentrl_jax.sampler import lane as lane_lib

TINY = ModelConfig(vocab_size=13, embedding_std=0.5, **PRESETS['tiny'])
STOP, OTHER_STOP = 12, 5
CONTEXT, TURN = 32, 8


@dataclasses.dataclass(frozen=True)
class Ask:
  """A turn that a test wants."""

  tokens: tuple[int, ...]
  key: int
  temperature: float = 1.0
  budget: int = TURN

  @property
  def options(self):
    return dict(
      words=np.array([self.key, 7], np.uint32),
      temperature=self.temperature,
      budget=self.budget,
    )


ASKS = tuple(
  Ask(tuple(np.random.default_rng(i).integers(0, 12, 1 + 3 * i).tolist()), i)
  for i in range(7)
)


def build(**options):
  sizes = dict(data=1, fsdp=1, tensor=1)
  defaults = dict(
    num_slots=4,
    context_length=CONTEXT,
    max_turn_tokens=TURN,
    extend_rows=2,
    extend_chunk=4,
    decode_chunk=3,
    stop_ids=(STOP, OTHER_STOP),
  )
  return engine_lib.Engine(
    TINY, sharding.make_mesh(sizes), **{**defaults, **options}
  )


@pytest.fixture(scope='module')
def weights(draw_params):
  return draw_params(TINY)


@pytest.fixture(scope='module')
def engine(weights):
  built = build()
  built.publish(weights, 5)
  return built


@pytest.fixture(autouse=True)
def _free_slots(request):
  yield
  if 'engine' in request.fixturenames:
    request.getfixturevalue('engine').reset()


def play(engine, asks, slots=None):
  """Plays asks in the order given, refilling slots; {ask: Completion}."""
  waiting, playing, done = list(asks), {}, {}
  if slots is not None:
    engine._lanes[0].free = list(slots)[::-1]
  while len(done) < len(asks):
    while waiting and (slot := engine.acquire()) is not None:
      ask = waiting.pop(0)
      engine.request(slot, ask.tokens, **ask.options)
      playing[slot] = ask
    for completion in engine.pump(expecting=len(done) % 2 == 1):
      done[playing.pop(completion.slot)] = completion
      engine.release(completion.slot)
  assert not engine.busy
  return done


def drawn(completions):
  return {a: (c.tokens, c.logprobs) for a, c in completions.items()}


@pytest.fixture(scope='module')
def expected(engine):
  return drawn(play(engine, ASKS))


def test_the_asks_tell_something(expected):
  lengths = {len(tokens) for tokens, _ in expected.values()}
  assert len(lengths) > 2 and TURN in lengths
  assert len({tokens for tokens, _ in expected.values()}) == len(ASKS)


@pytest.mark.parametrize('seed', range(3))
def test_order_of_arrival_and_slot_change_no_bit(engine, expected, seed):
  draws = np.random.default_rng(seed)
  order = [ASKS[i] for i in draws.permutation(len(ASKS))]
  assert drawn(play(engine, order, draws.permutation(4).tolist())) == expected


@pytest.mark.parametrize('slot', [0, 3])
def test_alone_changes_no_bit(engine, expected, slot):
  for ask in ASKS[1:4]:
    alone = play(engine, [ask], [slot])
    assert alone[ask].slot == slot
    assert drawn(alone)[ask] == expected[ask]
    engine.reset()


def one_turn(engine, slot, ask):
  engine.request(slot, ask.tokens, **ask.options)
  while True:
    for completion in engine.pump():
      return completion


@pytest.mark.parametrize('kept', [0, 2, 10])
def test_a_rewound_slot_goes_on_as_one_that_never_held_more(engine, kept):
  slot = engine.acquire()
  first, then = ASKS[3], Ask((1, 2, 3), 40)
  assert kept <= len(first.tokens)
  one_turn(engine, slot, first)
  engine.rewind(slot, kept)
  assert engine.room(slot) == CONTEXT - kept
  again = one_turn(engine, slot, then)
  whole = Ask((*first.tokens[:kept], *then.tokens), 40)
  fresh = one_turn(engine, engine.acquire(), whole)
  assert again.tokens == fresh.tokens
  np.testing.assert_allclose(again.logprobs, fresh.logprobs, atol=1e-5)
  for length in (-1, CONTEXT):
    with pytest.raises(ValueError, match=f'tokens, not {length}'):
      engine.rewind(slot, length)


@pytest.mark.parametrize('steps', [1, 50])
def test_length_of_a_decode_call_changes_no_bit(weights, expected, steps):
  other = build(decode_chunk=steps)
  other.publish(weights, 0)
  assert drawn(play(other, ASKS)) == expected


@pytest.mark.parametrize('lanes', [2, 3])
def test_lanes_change_no_bit(weights, expected, lanes):
  other = build(num_slots=4 * lanes, num_lanes=lanes)
  other.publish(weights, 0)
  assert drawn(play(other, ASKS[::-1])) == expected
  used = {other.acquire() for _ in range(lanes)}
  assert len({slot // 4 for slot in used}) == lanes  # spread over the lanes


def test_lanes_compute_side_by_side(weights):
  other = build(num_slots=8, num_lanes=2)
  other.publish(weights, 0)
  programs = other._lanes[0]._programs
  extend, meeting = programs.extend, threading.Barrier(2, timeout=20)

  def meet(*arguments):
    meeting.wait()  # broken unless both lanes are in a call at once
    return extend(*arguments)

  programs = dataclasses.replace(programs, extend=meet)
  for lane in other._lanes:
    lane._programs = programs
  for ask in ASKS[:2]:
    other.request(other.acquire(), ask.tokens, **ask.options)
  while not all(lane._in_turn.any() for lane in other._lanes):
    other.pump()
  assert not meeting.broken
  other.reset()


def test_a_program_is_compiled_once_by_threads_that_race():
  traced = []

  def slow(x):
    traced.append(threading.get_ident())
    time.sleep(0.2)
    return x + 1

  program = lane_lib.Program(jax.jit(slow))
  with futures.ThreadPoolExecutor(4) as threads:
    out = list(threads.map(program, np.arange(4.0, dtype=np.float32)))
  assert out == [1, 2, 3, 4] and len(traced) == 1


def test_a_call_that_fails_is_told_and_forgotten(weights, expected):
  other = build()
  other.publish(weights, 0)
  lane = other._lanes[0]
  programs = lane._programs

  def broken(*_):
    raise RuntimeError('out of memory')

  lane._programs = dataclasses.replace(programs, extend=broken)
  other.request(other.acquire(), (1, 2), **ASKS[0].options)
  with pytest.raises(RuntimeError, match='out of memory'):
    other.pump()
  other.reset()
  lane._programs = programs
  assert drawn(play(other, ASKS)) == expected


def test_lanes_that_do_not_divide_are_refused():
  with pytest.raises(ValueError, match='4 slots .* 3 lanes.*sampler.lanes'):
    build(num_lanes=3)


def score(weights, sequences, temperature):
  """The learner's log-probs of each sequence."""
  batch = collate.empty_rows(len(sequences), CONTEXT)
  for row, tokens in enumerate(sequences):
    batch.tokens[row, : len(tokens)] = tokens
    batch.segment_ids[row, : len(tokens)] = 1
    batch.positions[row, : len(tokens)] = np.arange(len(tokens))
  run = jax.jit(objective.logprobs_and_entropy, static_argnums=(0, 3))
  return np.asarray(run(TINY, weights, batch, temperature)[0])


@pytest.mark.parametrize('temperature', [0.7, 1.0])
def test_recorded_logprobs_are_the_learners(engine, weights, temperature):
  asks = [dataclasses.replace(a, temperature=temperature) for a in ASKS]
  done = play(engine, asks)
  sequences = [a.tokens + done[a].tokens for a in asks]
  learnt = score(weights, sequences, temperature)
  for row, ask in zip(learnt, asks):
    start, own = len(ask.tokens), done[ask].logprobs
    np.testing.assert_allclose(row[start : start + len(own)], own, atol=1e-5)


def test_greedy_takes_the_best_and_records_temperature_one(engine, weights):
  ask = dataclasses.replace(ASKS[2], temperature=0.0)
  done = play(engine, [ask])[ask]
  other = dataclasses.replace(ask, key=99)
  assert play(engine, [other])[other].tokens == done.tokens
  row = score(weights, [ask.tokens + done.tokens], 1.0)[0]
  start = len(ask.tokens)
  np.testing.assert_allclose(
    row[start : start + len(done.tokens)], done.logprobs, atol=1e-5
  )


def test_extending_a_slot_equals_prefilling_the_whole_history(engine):
  """Three turns in one slot; each again in a fresh slot from the whole text."""
  slot = engine.acquire()
  history, new = [], [1, 2, 3]
  for turn in range(3):
    history += new
    ask = Ask(tuple(new), key=40 + turn, budget=4)
    engine.request(slot, pending(history, new, turn), **ask.options)
    kept = finish(engine)
    fresh = dataclasses.replace(ask, tokens=tuple(history))
    again = play(engine, [fresh])[fresh]
    assert again.slot != kept.slot == slot
    assert again.tokens == kept.tokens
    np.testing.assert_allclose(again.logprobs, kept.logprobs, atol=1e-4)
    history += kept.tokens
    new = [4 + turn, 5, 6, 7, 8]


def pending(history, new, turn):
  """What the cache lacks: the last sampled token, then the observation."""
  return new if turn == 0 else history[-len(new) - 1 :]


def finish(engine):
  done = []
  while engine.busy:
    done += engine.pump()
  (only,) = done
  return only


def forced(weights, token):
  """Weights that draw `token` whatever stands before it."""
  table = np.zeros((13, TINY.d_model), np.float32)
  head = np.zeros((TINY.d_model, 13), np.float32)
  table[:, 0], head[0, token] = 1.0, 50.0
  layers = jax.tree.map(np.zeros_like, weights['layers'])
  return {**weights, 'embed': {'table': table}, 'head': head, 'layers': layers}


def test_end_token_first_is_a_turn_of_one_token(weights):
  engine = build()
  engine.publish(forced(weights, STOP), 0)
  for completion in play(engine, ASKS).values():
    assert completion.tokens == (STOP,)
    assert completion.stopped
    np.testing.assert_allclose(completion.logprobs, [0.0], atol=1e-6)


@pytest.mark.parametrize('budget', [1, 3, TURN])
def test_budget_ends_a_turn(weights, budget):
  engine = build()
  engine.publish(forced(weights, 4), 0)
  ask = Ask((1, 2), key=0, budget=budget)
  completion = play(engine, [ask])[ask]
  assert completion.tokens == (4,) * budget
  assert len(completion.logprobs) == budget
  assert not completion.stopped


@pytest.mark.parametrize('room', [0, 1, 3])
def test_a_full_context_ends_a_turn(weights, room):
  engine = build()
  engine.publish(forced(weights, 4), 0)
  slot = engine.acquire()
  engine.request(slot, (1,) * (CONTEXT - room), **Ask((), 0).options)
  completion = finish(engine)
  # One is drawn for every prompt; else the context has CONTEXT tokens, of which
  # the last needs no column: nothing is drawn after it.
  assert completion.tokens == (4,) * max(room, 1)
  assert not completion.stopped
  assert engine.room(slot) == min(room, 1)
  with pytest.raises(ValueError, match='2 token.* room for [01]'):
    engine.request(slot, (1, 1), **Ask((), 0).options)


def test_requests_that_cannot_be_are_refused(engine):
  slot = engine.acquire()
  for tokens, match in (((), '0 token'), ((1,) * 33, '33 token.*room for 32')):
    with pytest.raises(ValueError, match=match):
      engine.request(slot, tokens, **Ask((), 0).options)
  for budget in (0, TURN + 1):
    with pytest.raises(ValueError, match=f'budget {budget}.*1..8'):
      engine.request(slot, (1,), **Ask((), 0, budget=budget).options)
  assert not engine.busy


def test_acquire_gives_each_slot_once(engine):
  taken = [engine.acquire() for _ in range(4)]
  assert sorted(taken) == [0, 1, 2, 3]
  assert engine.acquire() is None
  engine.release(2)
  assert engine.acquire() == 2


def test_publish_needs_free_slots(engine, weights):
  slot = engine.acquire()
  one_turn(engine, slot, ASKS[0])
  with pytest.raises(RuntimeError, match='slots free'):
    engine.publish(weights, 9)
  assert engine.version == 5


def test_publish_proves_the_hand_over(weights):
  engine = build()
  assert engine.publish(weights, 3)
  ask = ASKS[1]
  assert play(engine, [ask])[ask].version == 3
  whole = engine._publish

  def tampered(params):
    copy, before = whole(params)
    copy['layers'][1]['q'] = copy['layers'][1]['q'].at[0, 0, 0].add(1e-3)
    return copy, before

  engine._publish = tampered
  assert not engine.publish(weights, 4)


def test_new_weights_change_what_is_drawn(weights, expected):
  engine = build()
  engine.publish(weights, 0)
  play(engine, ASKS[:2])
  engine.publish(jax.tree.map(lambda x: 1.3 * x, weights), 1)
  assert drawn(play(engine, ASKS)) != expected
  engine.publish(weights, 2)
  assert drawn(play(engine, ASKS)) == expected


def test_published_weights_outlive_the_learners(weights):
  engine = build()
  mine = jax.tree.map(jax.numpy.copy, weights)
  engine.publish(mine, 0)
  jax.tree.map(lambda x: x.delete(), mine)  # as a donating update does
  assert len(play(engine, ASKS)) == len(ASKS)


def test_no_program_is_compiled_after_the_first_round(engine, weights):
  def round_():
    engine.publish(weights, 1)
    play(engine, ASKS)
    engine.reset()
    engine.reset_counters()

  round_()
  compiled = []

  def listen(event, *_, **__):
    if 'backend_compile' in event:
      compiled.append(event)

  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    jax.jit(lambda x: x * 3 + 11)(np.float32(len(compiled)))
    assert len(compiled) == 1  # the listener hears
    round_()
    play(engine, ASKS[::-1])
    assert len(compiled) == 1
  finally:
    jax.monitoring.unregister_event_duration_listener(listen)


def test_counters_count(engine):
  engine.reset_counters()
  done = play(engine, ASKS)
  n = engine.reset_counters()
  assert n.extend_tokens == sum(len(a.tokens) for a in ASKS)
  assert n.sampled_tokens == sum(len(c.tokens) for c in done.values())
  # The first token of a turn is drawn by the extend call.
  assert n.live_slot_steps == n.sampled_tokens - len(ASKS)
  assert n.slot_steps == n.decode_steps * engine.num_slots
  assert n.slot_steps >= n.live_slot_steps
  assert engine.counters == engine_lib.Counters()


@pytest.mark.parametrize('top_p, top_k', [(0.5, 0), (1.0, 2)])
def test_truncation_reaches_both_programs(weights, top_p, top_k):
  engine = build(top_p=top_p, top_k=top_k)
  engine.publish(weights, 0)
  for ask, completion in play(engine, ASKS).items():
    sequence = ask.tokens + completion.tokens
    for i, token in enumerate(completion.tokens):
      at = len(ask.tokens) + i
      assert token in allowed(weights, sequence[:at], top_p, top_k)


def allowed(weights, prefix, top_p, top_k):
  """What truncation leaves of the next token, scored by the learner."""
  options = [(*prefix, token) for token in range(13)]
  p = np.exp(score(weights, options, 1.0)[:, len(prefix)])
  order = np.argsort(-p)[: top_k or None]
  before = np.cumsum(p[order]) - p[order]
  return order[before < top_p * p[order].sum() + 1e-5].tolist()


@pytest.mark.parametrize('after', [1, 2, 4])
def test_a_withdrawn_turn_goes_on_as_it_would_have(engine, expected, after):
  asks = {engine.acquire(): ask for ask in ASKS[:4]}
  for slot, ask in asks.items():
    engine.request(slot, ask.tokens, **ask.options)
  told = [c for _ in range(after) for c in engine.pump(expecting=True)]
  told += engine.withdraw()
  assert not engine.busy and engine.acquire() is None
  assert all(engine.room(slot) == CONTEXT for slot in asks)
  whole = {c.slot: c for c in told if c.whole}
  parts = {c.slot: c for c in told if not c.whole}
  for slot in asks.keys() - whole.keys():
    ask, had = asks[slot], parts[slot].tokens if slot in parts else ()
    rest = dict(budget=ask.budget - len(had), temperature=ask.temperature)
    engine.request(slot, ask.tokens + had, words=ask.options['words'], **rest)
  rest = {}
  while engine.busy:
    rest |= {c.slot: c for c in engine.pump()}
  for slot, ask in asks.items():
    pieces = [x[slot] for x in (whole, parts, rest) if slot in x]
    tokens, logprobs = expected[ask]
    assert sum((c.tokens for c in pieces), ()) == tokens
    got = sum((c.logprobs for c in pieces), ())
    np.testing.assert_allclose(got, logprobs, atol=1e-5)
  assert len(parts) or after == 1


def test_weights_are_handed_over_between_the_chunks_of_a_turn(weights):
  engine = build(decode_chunk=1)
  engine.publish(forced(weights, 4), 0)
  slot, ask = engine.acquire(), Ask((1, 2), 0, budget=TURN)
  engine.request(slot, ask.tokens, **ask.options)
  for _ in range(3):
    assert engine.pump() == []
  with pytest.raises(RuntimeError, match='free or withdrawn'):
    engine.publish(forced(weights, 3), 1)
  (part,) = engine.withdraw()
  assert not part.whole and part.version == 0 and set(part.tokens) == {4}
  assert engine.publish(forced(weights, 3), 1)
  left = TURN - len(part.tokens)
  rest = dataclasses.replace(ask, budget=left)
  engine.request(slot, (1, 2, *part.tokens), **rest.options)
  then = finish(engine)
  assert then.whole and then.version == 1
  assert then.tokens == (3,) * left and 0 < left < TURN


GROUP = [
  Ask(tokens, seed)
  for seed, tokens in enumerate([(1, 2, 3, 4, 5, 6)] * 5 + [(7, 8)] * 3)
]


@pytest.mark.parametrize('options', [{}, {'num_lanes': 2}])
def test_a_group_reads_its_prompt_once_and_draws_the_same(
  engine, weights, options
):
  """Late members copy it from a slot that plays or was given back."""
  alone = {}
  for ask in GROUP:
    alone |= drawn(play(engine, [ask]))
    engine.reset()
  built = build(**options)
  built.publish(weights, 0)
  assert drawn(play(built, GROUP)) == alone
  n = built.counters
  assert n.extend_tokens + n.forked_tokens == 5 * 6 + 3 * 2
  if options:  # which lane a member comes to depends on who ends first
    assert n.forked_tokens > 0
  else:
    assert n.extend_tokens == 6 + 2


def test_new_weights_copy_no_old_prompt(engine, weights):
  older = jax.tree.map(lambda x: x * 1.5, weights)
  built = build()
  built.publish(older, 0)
  assert drawn(play(built, GROUP[:1])) != drawn(play(engine, GROUP[:1]))
  built.publish(weights, 1)
  engine.reset()
  assert drawn(play(built, GROUP[:1])) == drawn(play(engine, GROUP[:1]))


def test_a_prompt_that_is_overwritten_is_read_again(engine):
  """The reader is asked for something else while others wait for it."""
  first, *others = GROUP[:3]
  expected = drawn(play(engine, [GROUP[1]])), drawn(play(engine, [GROUP[2]]))
  engine.reset()
  slots = [engine.acquire() for _ in range(3)]
  engine.request(slots[0], first.tokens, **first.options)
  engine.pump()
  while not engine.pump():
    pass  # its turn has ended
  for slot, ask in zip(slots[1:], others, strict=True):
    engine.request(slot, ask.tokens, **ask.options)
  engine.rewind(slots[0], 0)
  engine.request(slots[0], (9,), **first.options)
  done = {}
  while engine.busy:
    done |= {c.slot: (c.tokens, c.logprobs) for c in engine.pump()}
  for slot, ask, told in zip(slots[1:], others, expected, strict=True):
    assert done[slot] == told[ask]
