"""What did the sampler really see? Streams of tokens, heard at its door."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass
class Stream:
  """One context as the sampler saw it: tokens, which of them it drew."""

  tokens: list[int] = dataclasses.field(default_factory=list)
  sampled: list[bool] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Heard:
  """What passed the sampler's door.

  Attributes:
    streams: contexts, in order of their first request.
    keys: of every turn, in order.
  """

  streams: list[Stream] = dataclasses.field(default_factory=list)
  keys: list[tuple[int, ...]] = dataclasses.field(default_factory=list)


class Listener:
  """An engine that notes what it is asked and what it answers.

  Args:
    engine: to which everything is passed on.
  """

  def __init__(self, engine: Any):
    self.heard = Heard()
    self._engine = engine
    self._streams: dict[int, Stream] = {}

  def __getattr__(self, name: str) -> Any:
    return getattr(self._engine, name)

  def request(self, slot: int, tokens: Any, **fields: Any) -> None:
    """Notes new tokens of the slot's context, after those in its cache."""
    new = list(tokens)
    cached = self._engine.context_length - self._engine.room(slot)
    stream = self._streams.get(slot)
    # The last token drawn is not in the cache yet: it comes again.
    if (
      stream is not None
      and 0 < cached == len(stream.tokens) - 1
      and new[:1] == stream.tokens[-1:]
    ):
      new = new[1:]
    else:
      old = stream if cached else None
      self._streams[slot] = stream = Stream(
        old.tokens[:cached] if old else [], old.sampled[:cached] if old else []
      )
      self.heard.streams.append(stream)
    stream.tokens += new
    stream.sampled += [False] * len(new)
    self.heard.keys.append(tuple(int(word) for word in fields['words']))
    self._engine.request(slot, tokens, **fields)

  def pump(self, **fields: Any) -> list[Any]:
    """Notes what was drawn."""
    completions = self._engine.pump(**fields)
    for completion in completions:
      stream = self._streams[completion.slot]
      stream.tokens += completion.tokens
      stream.sampled += [True] * len(completion.tokens)
    return completions


@contextlib.contextmanager
def listening(collector: Any) -> Iterator[Heard]:
  """Notes what the collector's engine sees while the block runs."""
  engine = collector.engine
  listener = Listener(engine)
  collector.engine = listener
  try:
    yield listener.heard
  finally:
    collector.engine = engine
