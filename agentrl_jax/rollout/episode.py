"""One episode while it runs: its contexts, its turns, why it ended."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from agentrl_jax import types
from agentrl_jax.text import templates, tools


@dataclasses.dataclass(frozen=True)
class Limits:
  """Budgets of an episode.

  Attributes:
    max_turns: model turns.
    max_turn_tokens: sampled tokens of a turn.
    max_context: tokens of a context.
    malformed_limit: malformed turns in a row that end the episode.
  """

  max_turns: int
  max_turn_tokens: int
  max_context: int
  malformed_limit: int


@dataclasses.dataclass(frozen=True)
class Language:
  """How messages become tokens and back: tokenizer and style."""

  tokenizer: object
  style: str


def checked_observation(
  given: types.Observation, roles: Sequence[str] = types.ROLES
) -> types.Observation:
  """Returns an environment's observation, if it is one that can be rendered.

  Raises:
    TypeError, ValueError: it is not; an infrastructure failure like any
      exception of the environment.
  """
  if not isinstance(given, types.Observation):
    raise TypeError(f'expected an Observation, got {given!r:.200}')
  for message in given.messages:
    is_text = isinstance(getattr(message, 'content', None), str)
    if not isinstance(message, types.Message) or not is_text:
      raise TypeError(f'expected a Message with text, got {message!r:.200}')
    if message.role not in roles:
      raise ValueError(f'role {message.role!r}: not one of {roles}')
  return given


def checked_result(given: types.StepResult) -> types.StepResult:
  """Returns an environment's answer to an action, if it is one.

  Raises:
    TypeError, ValueError: as `checked_observation`; no finite reward.
  """
  if not isinstance(given, types.StepResult):
    raise TypeError(f'expected a StepResult, got {given!r:.200}')
  if not math.isfinite(given.reward):
    raise ValueError(f'reward {given.reward}: must be finite')
  if not isinstance(given.stop_reason, types.StopReason | None):
    raise TypeError(f'stop_reason {given.stop_reason!r}: give a StopReason')
  dict(given.info)
  checked_observation(given.observation, ('system', 'user', 'tool'))
  return given


class Episode:
  """Builds a trajectory token by token; holds no environment and no slot.

  The one rule: sampled tokens enter the context as they were sampled, and
  after them only new tokens; nothing is ever rendered again.
  """

  def __init__(
    self,
    task: types.Task,
    sample: int,
    language: Language,
    limits: Limits,
  ):
    self.task = task
    self.sample = sample
    self.stop_reason: types.StopReason | None = None
    self.error = ''
    self._language = language
    self._limits = limits
    self._prompt: tuple[types.Message, ...] = ()
    self._turns: list[types.Turn] = []
    self._tokens: list[int] = []
    self._sampled: list[bool] = []
    self._logprobs: list[float] = []
    self._versions: list[int] = []
    self._malformed = 0
    self._state_key: str | None = None
    self._start = 0  # of the turn being answered, in the context
    self._parsed = types.ParseResult('')

  @property
  def num_turns(self) -> int:
    return len(self._turns)

  def begin(
    self,
    system: str,
    observation: types.Observation,
    state_key: str | None,
    schemas: Sequence[Mapping],
  ) -> tuple[int, ...]:
    """Opens the context and returns its tokens; may set `stop_reason`."""
    first = (types.Message('system', system),) if system else ()
    self._prompt = (*first, *observation.messages)
    self._state_key = state_key
    ids = templates.open(
      self._language.tokenizer, self._language.style, self._prompt, schemas
    ).ids
    if len(ids) >= self._limits.max_context:
      self.stop_reason = types.StopReason.CONTEXT_FULL
      self.error = f'the first prompt has {len(ids)} tokens'
      return ()
    self._append(ids, sampled=False)
    return ids

  def complete(
    self, tokens: Sequence[int], logprobs: Sequence[float], version: int
  ) -> None:
    """Appends a sampled completion."""
    self._start = len(self._tokens)
    self._append(tokens, True, logprobs, version)

  def parse(self, stopped: bool) -> types.Action | None:
    """Reads the completion as an action; None if it was cut short.

    A cut turn is recorded and ends the episode: the environment never sees
    half an action.
    """
    ids = self._tokens[self._start :]
    text = templates.completion_text(
      self._language.tokenizer, self._language.style, ids
    )
    self._parsed = tools.parse(text, self._language.style)
    if stopped:
      calls, error = self._parsed.calls, self._parsed.error
      return types.Action(text, calls, error)
    full = len(ids) < self._limits.max_turn_tokens
    self.stop_reason = (
      types.StopReason.CONTEXT_FULL if full else types.StopReason.LENGTH
    )
    self._parsed = types.ParseResult(text, (), 'cut: no end token')
    self._record(text, (), 0.0, {'valid': False})
    return None

  def answer(
    self,
    action: types.Action,
    result: types.StepResult,
    next_key: str | None,
  ) -> tuple[int, ...]:
    """Records the turn; returns the tokens that follow, () at the end."""
    messages = result.observation.messages
    self._record(action.text, messages, result.reward, result.info)
    self._state_key = next_key
    malformed = bool(action.error)
    self._malformed = self._malformed + 1 if malformed else 0
    if result.done:
      self.stop_reason = result.stop_reason or types.StopReason.DONE
    elif self._malformed >= self._limits.malformed_limit:
      self.stop_reason = types.StopReason.MALFORMED
    elif len(self._turns) >= self._limits.max_turns:
      self.stop_reason = types.StopReason.MAX_TURNS
    if self.stop_reason is not None:
      return ()
    ids = templates.extend(
      self._language.tokenizer, self._language.style, self._tokens, messages
    )
    if len(self._tokens) + len(ids) >= self._limits.max_context:
      self.stop_reason = types.StopReason.CONTEXT_FULL
      return ()
    last = self._tokens[-1]  # sampled, but not yet in the sampler's cache
    self._append(ids, sampled=False)
    return (last, *ids)

  def fail(self, reason: types.StopReason, error: str) -> None:
    """Ends the episode on an infrastructure failure; it teaches nothing."""
    self.stop_reason, self.error = reason, error

  def trajectory(self) -> types.Trajectory:
    """Returns the finished record."""
    context = types.Context(
      tokens=tuple(self._tokens),
      sampled_mask=tuple(self._sampled),
      logprobs=tuple(self._logprobs),
      versions=tuple(self._versions),
    )
    return types.Trajectory(
      task=self.task,
      sample=self.sample,
      prompt=self._prompt,
      turns=tuple(self._turns),
      contexts=(context,) if self._tokens else (),
      stop_reason=self.stop_reason or types.StopReason.ABORTED,
      info={'error': self.error} if self.error else {},
    )

  def _append(self, ids, sampled, logprobs=None, version=-1):
    n = len(ids)
    self._tokens += ids
    self._sampled += [sampled] * n
    self._logprobs += logprobs if sampled else [0.0] * n
    self._versions += [version] * n

  def _record(self, text, messages, reward, info):
    self._turns.append(
      types.Turn(
        context=0,
        start=self._start,
        end=len(self._tokens),
        text=text,
        calls=self._parsed.calls,
        error=self._parsed.error,
        state_key=self._state_key,
        observation=tuple(messages),
        reward=float(reward),
        info=dict(info),
      )
    )
