"""What is heard at the sampler's door, with contexts that go on or fork."""

import numpy as np
from absl.testing import absltest

from agentrl_jax.doctor import listener
from agentrl_jax.sampler.lane import Completion

WORDS = np.zeros(2, np.uint32)


class Engine:
  """Answers each request with the tokens it is told to; keeps lengths."""

  context_length = 100

  def __init__(self):
    self.length = {}
    self.answers = []

  def room(self, slot):
    return self.context_length - self.length.get(slot, 0)

  def request(self, slot, tokens, **_):
    self.length[slot] = self.length.get(slot, 0) + len(tokens)
    self.pending = slot

  def pump(self):
    tokens = self.answers.pop(0)
    self.length[self.pending] += len(tokens) - 1  # the last is not in yet
    return [Completion(self.pending, tokens, (-1.0,) * len(tokens), True)]


class ListenerTest(absltest.TestCase):
  def hear(self, *turns):
    """turns: (tokens that the cache keeps or None, request, answer)."""
    engine = Engine()
    heard = listener.Listener(engine)
    for kept, request, answer in turns:
      if kept is not None:
        engine.length[0] = kept
      engine.answers.append(answer)
      heard.request(0, request, words=WORDS)
      heard.pump()
    return [(s.tokens, s.sampled) for s in heard.heard.streams]

  def test_a_context_that_goes_on_is_one_stream(self):
    # The second request starts with 4, drawn but not in the cache.
    streams = self.hear((None, [1, 2], (3, 4)), (None, [4, 5], (6,)))
    f, t = False, True
    self.assertEqual(streams, [([1, 2, 3, 4, 5, 6], [f, f, t, t, f, t])])

  def test_a_fork_keeps_the_old_stream_and_the_shared_tokens(self):
    streams = self.hear((None, [1, 2], (3, 4)), (2, [9], (6,)))
    self.assertEqual([s[0] for s in streams], [[1, 2, 3, 4], [1, 2, 9, 6]])

  def test_an_empty_cache_starts_anew(self):
    streams = self.hear((None, [1, 2], (3, 4)), (0, [7], (8,)))
    self.assertEqual([s[0] for s in streams], [[1, 2, 3, 4], [7, 8]])


if __name__ == '__main__':
  absltest.main()
