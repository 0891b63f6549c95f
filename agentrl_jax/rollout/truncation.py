"""How is a message shortened that does not fit the context?

It keeps its head and says how much is missing, so that the policy can tell a
long reply from a short one.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence

from agentrl_jax import types

_TAG = re.compile(r'<[/|!\w][^<>]*>')
_MOST = 16  # characters a token at most, where a search for the cut begins


class TooLong(ValueError):
  """A first prompt does not fit, and the config refuses to go on."""


def cut(text: str, size: int) -> str:
  """Keeps the first `size` characters and notes how many are missing.

  Fewer are kept where the cut would lie inside a tag such as `<b>` or
  `<|end|>`.
  """
  start = text.rfind('<', 0, size)
  tag = _TAG.match(text, start) if start >= 0 else None
  if tag and tag.end() > size:
    size = start
  return f'{text[:size]} [... {len(text) - size} characters cut]'


def fit(
  messages: Sequence[types.Message],
  count: Callable[[tuple[types.Message, ...]], int],
  room: int,
) -> tuple[types.Message, ...] | None:
  """Shortens messages, the longest first, until they fit.

  Args:
    messages: what came, too long.
    count: tokens that messages take, with all that stands around them.
    room: tokens there are.

  Returns:
    As many characters as fit, up to a tag; None if the heads of none do.
  """
  shown = tuple(messages)
  places = range(len(shown))
  for i in sorted(places, key=lambda i: len(shown[i].content), reverse=True):
    whole = shown[i].content
    if len(cut(whole, 0)) >= len(whole):
      return None  # the rest is shorter than a note
    low, high = 0, min(len(whole) - 1, _MOST * room)
    if count(_with(shown, i, cut(whole, 0))) > room:
      shown = _with(shown, i, cut(whole, 0))
      continue
    while low < high:
      middle = (low + high + 1) // 2
      if count(_with(shown, i, cut(whole, middle))) <= room:
        low = middle
      else:
        high = middle - 1
    return _with(shown, i, cut(whole, low))
  return None


def num_cut(
  before: Sequence[types.Message], after: Sequence[types.Message]
) -> int:
  """Returns in how many messages something is missing."""
  return sum(a.content != b.content for a, b in zip(before, after, strict=True))


def _with(messages, place, content):
  changed = dataclasses.replace(messages[place], content=content)
  return (*messages[:place], changed, *messages[place + 1 :])
