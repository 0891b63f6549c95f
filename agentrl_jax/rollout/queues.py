"""Who gets a slot next? What a trajectory holds never depends on it.

Whoever was given a slot before goes first, and the groups of an earlier
iteration before those of a later one.
"""

import collections
import math
from collections.abc import Iterator

from agentrl_jax.rollout.entries import Player


class Given:
  """In the order in which they came."""

  def __init__(self):
    self._players: collections.deque[Player] = collections.deque()

  def __bool__(self) -> bool:
    return bool(self._players)

  def __iter__(self) -> Iterator[Player]:
    return iter(self._players)

  def append(self, player: Player) -> None:
    """Lets a player wait behind the others."""
    self._players.append(player)

  def put_back(self, player: Player) -> None:
    """Lets one that was given a slot before wait in front of the others."""
    self._players.appendleft(player)

  def remove(self, player: Player) -> None:
    """Forgets one that waits."""
    self._players.remove(player)

  def learn(self, player: Player) -> None:
    """Is told of one that has ended."""

  def pop(self) -> Player:
    """Takes the next; there must be one."""
    return self._players.popleft()


class Longest(Given):
  """The longest first, by what has ended of its group (Seer, Qin et al. 2025).

  One member of each group goes first, to tell how long the others may be; a
  group is taken for as long as its longest, and for endless before one ends.
  So the last to end are short, and slots idle less.
  """

  def __init__(self):
    super().__init__()
    self._begun: set[tuple[int, str]] = set()
    self._lengths: dict[tuple[int, str], int] = {}

  def learn(self, player: Player) -> None:
    """Notes how many tokens an episode had."""
    length = sum(len(turn.tokens) for turn in player.episode.drawn)
    key = _group(player)
    self._lengths[key] = max(self._lengths.get(key, 0), length)

  def pop(self) -> Player:
    """Takes the one that will need most, as far as is known."""
    best = max(self._players, key=self._urgency)
    self._players.remove(best)
    self._begun.add(_group(best))
    return best

  def _urgency(self, player):
    key = _group(player)
    first = key not in self._begun
    length = self._lengths.get(key, math.inf)
    return player.began > 0, -player.draws.iteration, first, length


def _group(player):
  return player.draws.iteration, player.entry.task.name


# `config.rollout.order` -> who goes first.
ORDERS = {'given': Given, 'longest': Longest}
