"""Locks when a lane extends and when it decodes, on a device that is played."""

import threading
import time
from concurrent import futures

import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.sampler import decode, lane

TINY = ModelConfig(vocab_size=13, **PRESETS['tiny'])
WIDTH, ROWS, CHUNK, STEPS, STOP = 4, 2, 4, 3, 12
LONG = 99.0  # decode steps that an extend call takes as long as


class Device:
  """Writes down what is asked; ends the turns of slots that a test names."""

  def __init__(self):
    self.extended, self.limits, self.ending = [], [], set()

  def extend(self, params, state, batch):
    self.extended.append(batch)
    live, count, length, tokens = _host(state)
    for row in np.flatnonzero(batch.count):
      slot = batch.slots[row]
      length[slot] = batch.start[row] + batch.count[row]
      if batch.final[row]:
        live[slot], count[slot], tokens[slot, 0] = True, 1, 7
    return _put(state, live, count, length, tokens)

  def decode(self, params, state, steps, stop_below):
    self.limits.append((int(steps), int(stop_below)))
    live, count, length, tokens = _host(state)
    playing = np.flatnonzero(live)
    for slot in playing:
      ends = int(slot) in self.ending
      tokens[slot, count[slot]] = STOP if ends else 8
      live[slot] = not ends
    count[playing] += 1
    length[playing] += 1
    state = _put(state, live, count, length, tokens)
    return state, np.int32([1, len(playing)])


def _host(state):
  names = ('live', 'count', 'length', 'tokens')
  return [np.array(state[name]) for name in names]


def _put(state, live, count, length, tokens):
  arrays = dict(live=live, count=count, length=length, tokens=tokens)
  return state.replace(**{k: jnp.asarray(v) for k, v in arrays.items()})


@pytest.fixture
def device():
  return Device()


def made(device, rows=ROWS, extend_steps=LONG):
  programs = lane.Programs(
    extend=device.extend,
    decode=device.decode,
    stop_ids=(STOP,),
    shape=lane.Shape(rows, CHUNK, STEPS, extend_steps),
  )
  thread = futures.ThreadPoolExecutor(1)
  return lane.Lane(programs, decode.init(TINY, WIDTH, 64, 8), WIDTH, thread)


@pytest.fixture
def one(device):
  out = made(device)
  yield out
  out._thread.shutdown()


def ask(one, slot, size):
  words = np.array([slot, 9], np.uint32)
  tokens = list(range(1, size + 1))
  one.queue.append(lane.Request(slot, tokens, words, 0.5, 6))


def step(one, counters=None, expecting=False):
  counters = counters or lane.Counters()
  one.launch(None, counters, expecting)
  return one.finish(counters)


def test_a_long_prompt_goes_in_chunks_and_starts_its_turn_at_the_end(
  one, device
):
  counters = lane.Counters()
  ask(one, 2, 10)
  for _ in range(3):
    assert step(one, counters) == []
  rows = [
    (b.slots[0], b.start[0], b.count[0], bool(b.final[0]))
    for b in device.extended
  ]
  assert rows == [(2, 0, 4, False), (2, 4, 4, False), (2, 8, 2, True)]
  np.testing.assert_array_equal(device.extended[1].tokens[0], [5, 6, 7, 8])
  np.testing.assert_array_equal(device.extended[2].words[0], [2, 9])
  assert device.extended[2].temperature[0] == 0.5
  assert device.extended[2].budget[0] == 6
  assert counters.extend_tokens == 10 and counters.extend_calls == 3
  assert len(device.limits) == 1  # there was nothing to decode before


def test_idle_rows_name_no_slot(one, device):
  ask(one, 0, 2)
  step(one)
  (batch,) = device.extended
  assert batch.slots.tolist() == [0, WIDTH] and batch.count.tolist() == [2, 0]


def test_a_prompt_waits_for_another_while_turns_are_drawn(one, device):
  ask(one, 0, 2)
  step(one)
  ask(one, 1, 2)
  step(one)
  assert len(device.extended) == 1  # half an extend call is not worth it
  ask(one, 3, 2)
  step(one)
  assert device.extended[1].slots.tolist() == [1, 3]


def test_a_prompt_waits_no_longer_than_it_would_make_others_wait(device):
  """An extend call is as long as 2 steps: 2 x 2 live slots stand still."""
  one = made(device, rows=3, extend_steps=2.0)
  for slot in (0, 1):
    ask(one, slot, 1)
  step(one)
  ask(one, 2, 1)
  for _ in range(4):  # one waits, a step a call
    step(one)
    assert len(device.extended) == 1
  step(one)
  assert len(device.extended) == 2
  # At most 3 steps a call, of the 4 that it waits; then of what is left.
  assert [steps for steps, _ in device.limits[1:5]] == [3, 3, 2, 1]
  one._thread.shutdown()


def test_more_that_wait_wait_shorter(device):
  """2 slot-steps a step: of 3 x 2 none is left after three steps."""
  one = made(device, rows=3, extend_steps=3.0)
  for slot in (0, 1):
    ask(one, slot, 1)
  step(one)
  for slot in (2, 3):
    ask(one, slot, 1)
  for _ in range(3):
    step(one)
    assert len(device.extended) == 1
  step(one)
  assert device.extended[1].slots.tolist() == [2, 3, WIDTH]
  one._thread.shutdown()


def test_unfinished_prompts_stay_in_front(one, device):
  for slot, size in ((0, 6), (1, 7), (2, 1), (3, 1)):
    ask(one, slot, size)
  for _ in range(3):
    step(one)
  assert [b.slots.tolist() for b in device.extended] == [[0, 1], [0, 1], [2, 3]]


@pytest.mark.parametrize(
  'num_live, queued, stop_below',
  [
    (1, 0, 1),  # to the end
    (3, 0, 2),  # until two have ended: they fill an extend call
    (3, 1, 3),  # one waits already: until one has ended
  ],
)
def test_decoding_returns_when_an_extend_call_is_full(
  one, device, num_live, queued, stop_below
):
  ask(one, 0, 1)
  step(one)
  for slot in range(1, num_live):
    ask(one, slot, 1)
  step(one)
  for slot in range(num_live, num_live + queued):
    ask(one, slot, 1)
  step(one)
  assert device.limits[-1] == (STEPS, stop_below)
  step(one, expecting=True)
  assert device.limits[-1][0] == 1  # environments are about to answer


def test_a_finished_turn_is_told_once_in_slot_order(one, device):
  ask(one, 3, 2)
  ask(one, 1, 2)
  device.ending = {1, 3}
  counters = lane.Counters()
  first, second = step(one, counters)
  assert (first.slot, second.slot) == (1, 3)
  assert first.tokens == (7, STOP) and first.stopped
  assert len(first.logprobs) == 2
  assert counters.sampled_tokens == 4
  assert (counters.decode_steps, counters.live_slot_steps) == (1, 2)
  assert counters.slot_steps == WIDTH
  assert not one.busy and one.length.tolist() == [0, 3, 0, 3]


def test_the_next_turn_of_a_slot_goes_on_where_it_stopped(one, device):
  ask(one, 0, 5)
  device.ending = {0}
  while not step(one):
    pass
  ask(one, 0, 2)
  step(one)
  # 5 tokens and one decoded (the last sampled is not in the cache).
  assert device.extended[-1].start[0] == 6


def test_one_call_at_a_time(one, device):
  ask(one, 0, 1)
  one.launch(None, lane.Counters(), False)
  call = one.call
  ask(one, 1, 1)
  one.launch(None, lane.Counters(), False)
  assert one.call is call and len(one.queue) == 1
  one.finish(lane.Counters())
  assert one.call is None


def test_without_work_nothing_is_called(one):
  one.launch(None, lane.Counters(), False)
  assert one.call is None and not one.busy


def test_reset_forgets_everything(one, device):
  ask(one, 0, 1)
  ask(one, 1, 9)
  one.free.clear()
  one.launch(None, lane.Counters(), False)
  one.reset()
  assert one.call is None and not one.busy
  assert one.free == [3, 2, 1, 0]
  assert not np.any(one._state.live)
  ask(one, 0, 1)
  device.ending = {0}
  assert [c.slot for c in step(one)] == [0]


def test_a_program_is_compiled_by_one_thread_and_then_run_by_all():
  running, most = [], []
  everyone = threading.Barrier(3, timeout=5)

  def program(n):
    running.append(n)
    most.append(len(running))
    if len(most) == 1:
      time.sleep(0.05)  # compiling
    elif len(most) > 3:
      everyone.wait()  # passes only if all three are inside
    running.remove(n)
    return n

  guarded = lane.Program(program)
  with futures.ThreadPoolExecutor(3) as pool:
    assert list(pool.map(guarded, range(3))) == [0, 1, 2]
    assert most == [1, 1, 1]
    assert list(pool.map(guarded, range(3))) == [0, 1, 2]
