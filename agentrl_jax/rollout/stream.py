"""How does a context grow, and what of it did the policy draw?"""

import dataclasses
import zlib
from collections.abc import Sequence

import numpy as np

from agentrl_jax import types


@dataclasses.dataclass(frozen=True)
class Drawn:
  """What the policy drew of one turn, token by token.

  Attributes:
    tokens, logprobs, versions: as of a context, of the same length.
    stopped: by an end token; where a turn is not over it is False.
    after: checksum of the context that it follows.
  """

  tokens: tuple[int, ...] = ()
  logprobs: tuple[float, ...] = ()
  versions: tuple[int, ...] = ()
  stopped: bool = False
  after: int = 0

  def and_then(
    self, tokens: Sequence[int], logprobs: Sequence[float], version: int
  ) -> 'Drawn':
    """Returns the turn with what a version of the policy drew after it."""
    return dataclasses.replace(
      self,
      tokens=(*self.tokens, *tokens),
      logprobs=(*self.logprobs, *logprobs),
      versions=(*self.versions, *[version] * len(tokens)),
    )


class Stream:
  """A context while it grows."""

  def __init__(self):
    self.tokens: list[int] = []
    self._sampled: list[bool] = []
    self._logprobs: list[float] = []
    self._versions: list[int] = []
    self._routes: np.ndarray | None = None

  def append(
    self,
    ids: Sequence[int],
    sampled: bool,
    logprobs: Sequence[float] | None = None,
    versions: Sequence[int] | None = None,
  ) -> None:
    """Adds tokens with their birth marks."""
    n = len(ids)
    self.tokens += ids
    self._sampled += [sampled] * n
    self._logprobs += logprobs if sampled else [0.0] * n
    self._versions += versions if sampled else [-1] * n

  def checksum(self) -> int:
    """Returns a number that other tokens hardly have."""
    return zlib.crc32(np.array(self.tokens, np.int32).tobytes())

  def note_routes(self, routes: np.ndarray | None) -> None:
    """Keeps the experts that the first tokens used, [n, L, k]; all anew."""
    self._routes = routes

  def cut(self, length: int) -> None:
    """Forgets all but the first `length` tokens."""
    columns = self.tokens, self._sampled, self._logprobs, self._versions
    for column in columns:
      del column[length:]
    if self._routes is not None:
      self._routes = self._routes[:length]

  def copy(self) -> 'Stream':
    """Returns another stream with the same past."""
    other = Stream()
    other.tokens, other._sampled = list(self.tokens), list(self._sampled)
    other._logprobs = list(self._logprobs)
    other._versions = list(self._versions)
    other._routes = self._routes
    return other

  def context(self) -> types.Context:
    """Returns the finished record."""
    return types.Context(
      tokens=tuple(self.tokens),
      sampled_mask=tuple(self._sampled),
      logprobs=tuple(self._logprobs),
      versions=tuple(self._versions),
      routes=self._all_routes(),
    )

  def _all_routes(self) -> types.Routes | None:
    if self._routes is None:
      return None
    # The last token sampled was never an input; nor what came after it.
    missing = [(0, len(self.tokens) - len(self._routes)), (0, 0), (0, 0)]
    routes = np.pad(self._routes, missing, constant_values=-1)
    return types.Routes(routes.shape, routes.dtype.name, routes.tobytes())
