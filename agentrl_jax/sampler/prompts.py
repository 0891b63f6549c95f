"""Which slots of a lane hold a prompt that others want as well?

Members of a group begin with the same tokens: one slot reads them, the others
copy what it holds. A prompt can be copied until its slot is written anew, also
while its turn is drawn and after it was given back.
"""

from collections.abc import Sequence
from typing import Any


class Prompts:
  """Prompts by their tokens, and the turns that wait for them."""

  def __init__(self):
    self.waiting: list[Any] = []  # requests, in order of arrival
    self._slots: dict[tuple[int, ...], int] = {}  # who reads or holds it
    self._held: dict[int, tuple[int, ...]] = {}  # the reverse
    self._complete: set[int] = set()  # slots that have read it all

  def holds(self, request: Any) -> bool:
    """Whether the request's own slot has read its prompt."""
    held = self._held.get(request.slot)
    return held == tuple(request.tokens) and request.slot in self._complete

  def follows(self, request: Any) -> bool:
    """Whether the request for an empty slot can wait for a copy.

    If not, its own slot is the one that reads the prompt.
    """
    tokens = tuple(request.tokens)
    if tokens in self._slots:
      self.waiting.append(request)
      return True
    self._slots[tokens], self._held[request.slot] = request.slot, tokens
    return False

  def read(self, slot: int) -> None:
    """Notes that a slot has read its prompt to the end, if it has one."""
    if slot in self._held:
      self._complete.add(slot)

  def take(self, most: int) -> Sequence[tuple[Any, int]]:
    """Returns (request, slot to copy) of those that can start now."""
    taken, left = [], []
    for request in self.waiting:
      source = self._slots[tuple(request.tokens)]
      if source in self._complete and len(taken) < most:
        taken.append((request, source))
      else:
        left.append(request)
    self.waiting = left
    return taken

  def overwrite(self, slot: int) -> Sequence[Any]:
    """Notes that a slot is about to be written.

    Returns:
      Requests that waited for its prompt and have to be asked again.
    """
    tokens = self._held.pop(slot, None)
    if tokens is None:
      return []
    del self._slots[tokens]
    self._complete.discard(slot)
    moved = [x for x in self.waiting if tuple(x.tokens) == tokens]
    self.waiting = [x for x in self.waiting if tuple(x.tokens) != tokens]
    return moved
