"""Made-up trajectories and a scripted sampler for the tests of the rollout."""

import dataclasses
import functools
import random

from agentrl_jax import types
from agentrl_jax.rollout import episode
from agentrl_jax.sampler import engine
from agentrl_jax.text import templates, tokenizer

TASK = types.Task('flight', 'train', 0, {})


def context(*spans, version=3, first=10):
  """spans: (length, sampled); token values count up from `first`."""
  mask = [sampled for length, sampled in spans for _ in range(length)]
  return types.Context(
    tokens=tuple(range(first, first + len(mask))),
    sampled_mask=tuple(mask),
    logprobs=tuple(-0.5 - i / 8 if m else 0.0 for i, m in enumerate(mask)),
    versions=tuple(version if m else -1 for m in mask),
  )


def turn(start, end, *, context=0, reward=0.0, text='', **fields):
  return types.Turn(
    context=context,
    start=start,
    end=end,
    text=text or f'turn {start}',
    calls=fields.pop('calls', ()),
    error=fields.pop('error', ''),
    state_key=fields.pop('state_key', None),
    observation=fields.pop('observation', ()),
    reward=reward,
    info={'valid': fields.pop('valid', True)},
  )


def trajectory(turns, contexts, *, total=None, task=TASK, **fields):
  total = [t.reward for t in turns] if total is None else total
  return types.Trajectory(
    task=task,
    sample=fields.pop('sample', 0),
    prompt=fields.pop('prompt', (types.Message('user', 'Book.'),)),
    turns=tuple(turns),
    contexts=tuple(contexts),
    stop_reason=fields.pop('stop_reason', types.StopReason.DONE),
    rewards={'total': tuple(total)},
    info=fields.pop('info', {}),
  )


def append_only(lengths, *, reward=0.0, prompt=2, reply=1, **fields):
  """One context: a prompt, then completions with replies between them."""
  spans, turns, at = [(prompt, False)], [], prompt
  for index, length in enumerate(lengths):
    last = index == len(lengths) - 1
    turns.append(turn(at, at + length, reward=reward if last else 0.0))
    spans.append((length, True))
    at += length
    if not last:
      spans.append((reply, False))
      at += reply
  return trajectory(turns, [context(*spans)], **fields)


def with_first(played, token):
  """The same trajectory, its first context beginning with another token."""
  first, *rest = played.contexts
  tokens = (token, *first.tokens[1:])
  contexts = (dataclasses.replace(first, tokens=tokens), *rest)
  return dataclasses.replace(played, contexts=contexts)


@functools.cache
def language():
  """A small tokenizer of the 'tiny' style."""
  texts = ['search flights', 'error: malformed call', 'CA1501 06:30 760'] * 9
  trained = tokenizer.train(texts, vocab_size=330, style='tiny')
  return episode.Language(trained, 'tiny')


def limits(**changes):
  fields = dict(
    max_turns=4, max_turn_tokens=8, max_context=128, malformed_limit=2
  )
  return episode.Limits(**{**fields, **changes})


def tasks(num, env='echo'):
  return [types.Task(env, 'train', i, {'turns': 1 + i % 3}) for i in range(num)]


class EchoEnv:
  """Quotes what it was told, for as many turns as the task says.

  Args:
    delay: called with (task, sample, turn) before each answer.
    fault: (task index, turn) -> a function to call instead of answering.
  """

  tools = ()
  system = 'Echo.'
  open = 0  # environments not closed yet

  def __init__(self, delay=lambda *_: None, fault=None):
    self._delay, self._fault = delay, fault or {}
    self._turn, self._last = 0, ''
    self._is_open = False

  def reset(self, task, *, sample=0):
    self._task, self._sample = task, sample
    self._is_open = True
    EchoEnv.open += 1
    self._delay(task, sample, 0)
    if (task.index, 0) in self._fault:
      return self._fault[task.index, 0]()
    return types.Observation((types.Message('user', f'task {task.index}'),))

  def step(self, action):
    self._turn += 1
    self._delay(self._task, self._sample, self._turn)
    if (self._task.index, self._turn) in self._fault:
      return self._fault[self._task.index, self._turn]()
    done = self._turn >= self._task.data['turns']
    self._last = action.text[:8]
    reply = types.Message('tool', f'{self._turn} {self._last}')
    reward = float(len(action.text) % 2) if done else 0.0
    return types.StepResult(
      types.Observation((reply,)), reward, done, None, {'valid': True}
    )

  def state_key(self):
    return f'{self._turn} {self._last}'

  def snapshot(self):
    return self._task, self._sample, self._turn, self._last

  def restore(self, snapshot):
    self._task, self._sample, self._turn, self._last = snapshot
    self._is_open = True
    EchoEnv.open += 1

  def close(self):
    if self._is_open:
      EchoEnv.open -= 1
    self._is_open = False


class FakeEngine:
  """Draws what a function of the key says; ends turns in a shuffled order.

  Args:
    draw: (words, context tokens) -> completion tokens, stopped.
    num_slots: contexts side by side.
    seed: of the order in which turns end.
  """

  def __init__(self, draw, num_slots=3, seed=0):
    self.num_slots, self.version = num_slots, 5
    self.contexts = {}  # slot -> tokens that its cache holds
    self.requests = []
    self.num_drawn = 0  # tokens
    self._draw = draw
    self._free = list(range(num_slots))
    self._queue = []
    self._order = random.Random(seed)

  def acquire(self):
    if not self._free:
      return None
    slot = self._free.pop()
    self.contexts[slot] = []
    return slot

  def release(self, slot):
    assert slot not in self._free
    self._free.append(slot)

  def rewind(self, slot, length):
    assert 0 <= length <= len(self.contexts[slot])
    del self.contexts[slot][length:]

  @property
  def num_free(self):
    return len(self._free)

  @property
  def busy(self):
    return bool(self._queue)

  def request(self, slot, tokens, *, words, temperature, budget):
    assert len(tokens) and slot not in self._free
    self.contexts[slot] += tokens
    self.requests.append((tuple(words.tolist()), temperature, budget))
    had = limits().max_turn_tokens - budget
    self._queue.append((slot, words, had))

  def pump(self, *, expecting=False):
    if not self._queue:
      return []
    at = self._order.randrange(len(self._queue))
    slot, words, had = self._queue.pop(at)
    tokens, stopped = self._draw(words, list(self.contexts[slot]))
    self.contexts[slot] += tokens[had:-1]  # the last is not in the cache yet
    return [self._told(slot, tokens[had:], stopped)]

  def publish(self, params, version):
    assert not self.busy
    taken = self.contexts.keys() - set(self._free)
    assert not any(self.contexts[slot] for slot in taken)
    self.version = version
    return True

  def withdraw(self):
    out = []
    for slot, words, had in self._queue:
      tokens, _ = self._draw(words, list(self.contexts[slot]))
      drawn = tokens[had : self._order.randrange(had, len(tokens))]
      if drawn:
        told = self._told(slot, drawn, False)
        out.append(dataclasses.replace(told, whole=False))
    self._queue.clear()
    for slot in self.contexts:
      self.contexts[slot] = []
    return out

  def _told(self, slot, tokens, stopped):
    self.num_drawn += len(tokens)
    logprobs = tuple(-1 / (1 + token) for token in tokens)
    return engine.Completion(
      slot, tuple(tokens), logprobs, stopped, self.version
    )

  def reset(self):
    self._free = list(range(self.num_slots))
    self._queue.clear()


def draw_text(words, context):
  """A few letters that depend on the key and on the context, then the end."""
  del context
  letter = chr(97 + int(words[0]) % 26)
  text = letter * (1 + int(words[1]) % 4)
  ids = language().tokenizer.encode(text)
  end = templates.stop_ids(language().tokenizer, 'tiny')[0]
  return [*ids, end], True
