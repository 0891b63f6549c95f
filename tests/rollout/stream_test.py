"""A turn that is drawn by several versions; a context's birth marks."""

from agentrl_jax.rollout.stream import Drawn, Stream


def test_a_turn_grows_by_what_each_version_draws():
  turn = Drawn().and_then((5, 6), (-1.0, -2.0), 3).and_then((7,), (-3.0,), 4)
  assert turn == Drawn((5, 6, 7), (-1.0, -2.0, -3.0), (3, 3, 4))


def test_tokens_keep_their_birth_marks_also_when_they_are_cut():
  stream = Stream()
  stream.append((1, 2), sampled=False)
  stream.append((5, 6), True, (-1.0, -2.0), (3, 4))
  forked = stream.copy()
  stream.cut(3)
  context = stream.context()
  assert context.tokens == (1, 2, 5)
  assert context.sampled_mask == (False, False, True)
  assert context.logprobs == (0.0, 0.0, -1.0)
  assert context.versions == (-1, -1, 3)
  assert forked.context().versions == (-1, -1, 3, 4)


def test_a_checksum_tells_contexts_apart():
  some = [(), (1,), (2,), (1, 2), (2, 1), (1, 2, 0)]
  sums = []
  for tokens in some:
    stream = Stream()
    stream.append(tokens, sampled=False)
    sums.append(stream.checksum())
  assert len(set(sums)) == len(some)
