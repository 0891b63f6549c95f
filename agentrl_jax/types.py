"""What flows on the host: tasks, messages, turns, contexts, trajectories.

Plain frozen dataclasses without jax. One word, one meaning: a *task* is a
problem, a *group* the trajectories of one task, a *trajectory* one episode, a
*turn* one model message with its tool calls and the reply, a *context* one
token stream that the policy saw.
"""

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any


class StopReason(enum.StrEnum):
  """Why an episode ended. `trainable` says whether it may teach anything."""

  DONE = 'done'  # the environment ended the episode, or a final answer came
  MAX_TURNS = 'max_turns'  # the turn budget is spent
  LENGTH = 'length'  # a turn hit its token budget without an end token
  CONTEXT_FULL = 'context_full'  # the next prompt does not fit the context
  MALFORMED = 'malformed'  # too many malformed turns in a row
  ENV_ERROR = 'env_error'  # the environment raised (infrastructure)
  ENV_TIMEOUT = 'env_timeout'  # a call outlived its deadline (infrastructure)
  REWARD_ERROR = 'reward_error'  # a verifier failed (infrastructure)
  JUDGE_ERROR = 'judge_error'  # a judge gave no usable scores (infrastructure)
  ABORTED = 'aborted'  # the run was interrupted (infrastructure)

  @property
  def trainable(self) -> bool:
    """False for infrastructure failures: left out of group statistics."""
    return self not in (
      StopReason.ENV_ERROR,
      StopReason.ENV_TIMEOUT,
      StopReason.REWARD_ERROR,
      StopReason.JUDGE_ERROR,
      StopReason.ABORTED,
    )


ROLES = ('system', 'user', 'assistant', 'tool')


@dataclasses.dataclass(frozen=True)
class ToolCall:
  """A parsed call: tool name and JSON arguments."""

  name: str
  arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Message:
  """One chat message; `role` is one of `ROLES`."""

  role: str
  content: str
  calls: tuple[ToolCall, ...] = ()


@dataclasses.dataclass(frozen=True)
class Task:
  """A problem: `data` is JSON that the environment's `reset` understands."""

  env: str
  split: str
  index: int
  data: Mapping[str, Any]

  @property
  def name(self) -> str:
    return f'{self.env}/{self.split}/{self.index}'


@dataclasses.dataclass(frozen=True)
class Observation:
  """What the agent sees next."""

  messages: tuple[Message, ...]


@dataclasses.dataclass(frozen=True)
class Action:
  """What the agent did: its text, the parsed calls, or why parsing failed."""

  text: str
  calls: tuple[ToolCall, ...] = ()
  error: str = ''


@dataclasses.dataclass(frozen=True)
class StepResult:
  """What the world answered to one action."""

  observation: Observation
  reward: float
  done: bool
  stop_reason: StopReason | None = None
  info: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ParseResult:
  """Model text split into prose, calls and, if malformed, an error."""

  content: str
  calls: tuple[ToolCall, ...] = ()
  error: str = ''


@dataclasses.dataclass(frozen=True)
class Tokens:
  """Token ids with their birth mark: True where the policy sampled them."""

  ids: tuple[int, ...]
  sampled_mask: tuple[bool, ...]


@dataclasses.dataclass(frozen=True)
class Turn:
  """One model message and the reply to it.

  `start:end` is the completion inside `contexts[context]`: sampled tokens only,
  end token included when it was sampled. It is shorter, or empty, where
  `rollout.drift='mask'` rewrote what was sampled.
  """

  context: int
  start: int
  end: int
  text: str
  calls: tuple[ToolCall, ...]
  error: str
  state_key: str | None
  observation: tuple[Message, ...]
  reward: float
  info: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Routes:
  """Experts that a context's tokens used when it was sampled.

  `data` are the bytes of an array of `shape` (tokens, layers, choices) and
  `dtype`, a NumPy name; -1 where a token was never the model's input.
  """

  shape: tuple[int, int, int]
  dtype: str
  data: bytes


@dataclasses.dataclass(frozen=True)
class Context:
  """One token stream; all fields have the same length.

  `logprobs` and `versions` are those at sampling, 0 and -1 where not sampled.
  `routes` is None where the sampler recorded none.
  """

  tokens: tuple[int, ...]
  sampled_mask: tuple[bool, ...]
  logprobs: tuple[float, ...]
  versions: tuple[int, ...]
  routes: Routes | None = None


@dataclasses.dataclass(frozen=True)
class Trajectory:
  """One episode of one task. `rewards` holds the parts, each logged apart."""

  task: Task
  sample: int
  prompt: tuple[Message, ...]
  turns: tuple[Turn, ...]
  contexts: tuple[Context, ...]
  stop_reason: StopReason
  rewards: Mapping[str, Sequence[float]] = dataclasses.field(
    default_factory=dict
  )
  info: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def outcome(self) -> float:
    """Undiscounted sum of what the environment paid."""
    return float(sum(turn.reward for turn in self.turns))

  @property
  def worth(self) -> float:
    """Undiscounted sum of all its rewards; the outcome before it is scored."""
    return math.fsum(self.rewards.get('total', (self.outcome,)))


@dataclasses.dataclass(frozen=True)
class Group:
  """The trajectories of one task."""

  task: Task
  trajectories: tuple[Trajectory, ...]
