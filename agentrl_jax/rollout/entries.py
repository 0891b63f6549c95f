"""What is there to be played, and how far has it come?"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

from agentrl_jax import types
from agentrl_jax.rollout.episode import Episode
from agentrl_jax.rollout.stream import Drawn


@dataclasses.dataclass(frozen=True)
class Start:
  """A state of an episode in which a turn is about to be drawn.

  Attributes:
    snapshot: of the environment.
    episode: its past; to be forked, never continued itself.
  """

  snapshot: Any
  episode: Episode


@dataclasses.dataclass(frozen=True)
class Entry:
  """A trajectory to collect: member `sample` of the group of `task`.

  Attributes:
    attempt: tells several plays of one member apart.
    start: where it goes on from, None = the beginning. The trajectory then
      holds the turns before it as well.
    past: turns that are played again before one is drawn, the last a part of
      one or an empty one; () = none. An environment answers the same actions
      alike; where one does not, the episode begins anew.
  """

  task: types.Task
  sample: int
  attempt: int = 0
  start: Start | None = None
  past: tuple[Drawn, ...] = ()

  @property
  def name(self) -> tuple[str, int, int]:
    """What its sampling keys are made of."""
    return self.task.name, self.sample, self.attempt


OnState = Callable[[Entry, Start], None]


@dataclasses.dataclass(frozen=True)
class Draws:
  """What sampling keys are made of, and how tokens are drawn.

  Attributes:
    seed: of the run.
    purpose: 'train', 'eval', ... : never share samples.
    iteration: of the run.
    temperature: 0 = greedy.
  """

  seed: int
  purpose: str
  iteration: int
  temperature: float = 1.0


@dataclasses.dataclass(eq=False)
class Player:
  """An entry while it is played.

  Attributes:
    entry, draws: what is played.
    episode: so far.
    env: its world, None before it is opened.
    slot: of the sampler, None while it has none.
    is_read: whether the slot holds what `episode` says of it.
    began: `time.monotonic()` at its opening.
    past: of the entry, what is left of it.
    done: at its end.
    away: since when its environment works on an answer, by the same clock.
    is_dropped: nobody waits for it any more.
  """

  entry: Entry
  draws: Draws
  episode: Episode
  env: Any = None
  slot: int | None = None
  is_read: bool = False
  began: float = 0.0
  past: collections.deque[Drawn] = dataclasses.field(init=False)
  done: types.Trajectory | None = None
  away: float = 0.0
  is_dropped: bool = False

  def __post_init__(self):
    self.past = collections.deque(self.entry.past)


def past(player: Player) -> tuple[Drawn, ...]:
  """Returns by what a player can be played again, see `Entry.past`."""
  episode = player.episode
  rest = player.past or (episode.part,)  # some while it is played again
  turns = (*episode.drawn, *rest)
  return turns if any(turn.tokens for turn in turns) else ()
