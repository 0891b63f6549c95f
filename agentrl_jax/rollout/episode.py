"""One episode while it runs: its contexts, its turns, why it ended."""

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from agentrl_jax import types
from agentrl_jax.rollout import truncation
from agentrl_jax.rollout.stream import Drawn, Stream
from agentrl_jax.text import memory as memory_lib
from agentrl_jax.text import templates, tools


@dataclasses.dataclass(frozen=True)
class Limits:
  """Budgets of an episode.

  Attributes:
    max_turns: model turns.
    max_turn_tokens: sampled tokens of a turn.
    max_context: tokens of a context.
    malformed_limit: malformed turns in a row that end the episode.
    long_prompt: what becomes of a first prompt that does not fit: 'refuse' (an
      error), 'drop' (the episode ends there) or 'truncate', so that a whole
      turn fits behind it.
    long_observation: 'stop' (the episode ends there) or 'truncate' likewise.
  """

  max_turns: int
  max_turn_tokens: int
  max_context: int
  malformed_limit: int
  long_prompt: str = 'drop'
  long_observation: str = 'stop'


@dataclasses.dataclass(frozen=True)
class Language:
  """How messages become tokens and back: tokenizer, style, what is shown."""

  tokenizer: object
  style: str
  memory: memory_lib.Memory = memory_lib.Memory()


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

  The one rule: sampled tokens enter their context as they were sampled. With
  append-only memory only new tokens follow and nothing is rendered again; any
  other memory renders the next prompt, and where that is no extension of the
  context, `memory.advance` says what becomes of it.

  Attributes:
    kept: tokens at the head of the sampler's cache that the prompt returned
      last goes on from.
    part: of the turn that is being drawn, what the sampler gave back before its
      end.
    drawn: all turns that ended. With the task they say what the episode is: by
      them it can be played again, see `loop.Entry`.
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
    self.kept = 0
    self.part = Drawn()
    self.drawn: list[Drawn] = []
    self._language = language
    self._limits = limits
    self._prompt: tuple[types.Message, ...] = ()
    self._schemas: Sequence[Mapping] = ()
    self._turns: list[types.Turn] = []
    self._streams: list[Stream] = []
    self._malformed = 0
    self._num_cut = 0  # messages that were shortened
    self._state_key: str | None = None
    self._start = 0  # of the turn being answered, in its context
    self._text = ''  # of that turn
    self._parsed = types.ParseResult('')

  @property
  def num_turns(self) -> int:
    return len(self._turns)

  @property
  def tokens(self) -> tuple[int, ...]:
    """All tokens of the context that grows, a part of a turn included."""
    return (*self._streams[-1].tokens, *self.part.tokens)

  def fork(self, sample: int) -> 'Episode':
    """Returns another episode with the same past and a future of its own.

    Args:
      sample: its member of the group.
    """
    other = copy.copy(self)
    other.sample, other.kept = sample, 0
    other.drawn, other._turns = list(self.drawn), list(self._turns)
    other._streams = [stream.copy() for stream in self._streams]
    return other

  def begin(
    self,
    system: str,
    observation: types.Observation,
    state_key: str | None,
    schemas: Sequence[Mapping],
  ) -> tuple[int, ...]:
    """Opens the first context and returns its tokens; may set `stop_reason`.

    Raises:
      truncation.TooLong: the prompt does not fit, and the limits refuse it.
    """
    first = (types.Message('system', system),) if system else ()
    self._prompt = (*first, *observation.messages)
    self._state_key, self._schemas = state_key, schemas
    ids = self._rendered(self._prompt)
    if len(ids) > self._most(self._limits.long_prompt):
      ids = self._shorter_prompt(first, observation.messages, ids)
    if len(ids) >= self._limits.max_context:
      self.stop_reason = types.StopReason.CONTEXT_FULL
      self.error = f'the first prompt has {len(ids)} tokens'
      return ()
    self._streams.append(Stream())
    self._streams[-1].append(ids, sampled=False)
    return ids

  def note_part(
    self, tokens: Sequence[int], logprobs: Sequence[float], version: int
  ) -> None:
    """Keeps more of the turn that is being drawn; it is not over."""
    part = self.part.and_then(tokens, logprobs, version)
    after = self._streams[-1].checksum()
    self.part = dataclasses.replace(part, after=after)

  def take_up(self, turn: Drawn) -> bool:
    """Goes on with what was drawn of a turn when the episode was played before.

    Returns:
      Whether it was drawn in this very context; else nothing is done.
    """
    if turn.tokens and turn.after != self._streams[-1].checksum():
      return False
    self.part = turn
    return True

  def complete(
    self,
    tokens: Sequence[int],
    logprobs: Sequence[float],
    version: int,
    routes: np.ndarray | None = None,
  ) -> None:
    """Appends a sampled completion: what there is of it in `part`, and this.

    Args:
      tokens, logprobs, version: of what was drawn last.
      routes: [n, L, k], experts that the whole context used but for the last
        token, which the sampler has not read yet.
    """
    self.note_part(tokens, logprobs, version)
    stream, turn = self._streams[-1], self.part
    self.part = Drawn()
    self.drawn.append(turn)
    self._start = len(stream.tokens)
    stream.append(turn.tokens, True, turn.logprobs, turn.versions)
    stream.note_routes(routes)

  def parse(self, stopped: bool) -> types.Action | None:
    """Reads the completion as an action; None if it was cut short.

    A cut turn is recorded and ends the episode: the environment never sees
    half an action. It never sees a `<think>` trace either.
    """
    ids = self._streams[-1].tokens[self._start :]
    self.drawn[-1] = dataclasses.replace(self.drawn[-1], stopped=stopped)
    self._text = templates.completion_text(
      self._language.tokenizer, self._language.style, ids
    )
    spoken = memory_lib.spoken(self._text)
    self._parsed = tools.parse(spoken, self._language.style, self._schemas)
    if stopped:
      calls, error = self._parsed.calls, self._parsed.error
      return types.Action(spoken, calls, error)
    full = len(ids) < self._limits.max_turn_tokens
    self.stop_reason = (
      types.StopReason.CONTEXT_FULL if full else types.StopReason.LENGTH
    )
    self._parsed = types.ParseResult(spoken, (), 'cut: no end token')
    self._record((), 0.0, {'valid': False})
    return None

  def answer(
    self,
    action: types.Action,
    result: types.StepResult,
    next_key: str | None,
  ) -> tuple[int, ...]:
    """Records the turn.

    Returns:
      Tokens that follow the first `kept` ones in the sampler's cache, () at the
      end.

    Raises:
      memory.Drift: the prompt rewrites history and the policy is 'raise'.
    """
    messages = result.observation.messages
    self._record(messages, result.reward, result.info)
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
    prompt = self._next_prompt(messages)
    if len(prompt) > self._most(self._limits.long_observation):
      prompt = self._shorter_reply(messages, prompt)
    return self._go_on(prompt)

  def fail(self, reason: types.StopReason, error: str) -> None:
    """Ends the episode on an infrastructure failure; it teaches nothing."""
    self.stop_reason, self.error = reason, error

  def trajectory(self) -> types.Trajectory:
    """Returns the finished record."""
    return types.Trajectory(
      task=self.task,
      sample=self.sample,
      prompt=self._prompt,
      turns=tuple(self._turns),
      contexts=tuple(stream.context() for stream in self._streams),
      stop_reason=self.stop_reason or types.StopReason.ABORTED,
      info=self._info(),
    )

  def _info(self):
    info = {'error': self.error} if self.error else {}
    return info | ({'num_cut': self._num_cut} if self._num_cut else {})

  @property
  def _room(self) -> int:
    """Tokens of a prompt that leaves room for a whole turn."""
    return self._limits.max_context - self._limits.max_turn_tokens

  def _most(self, policy: str) -> int:
    """Tokens above which a prompt is treated as `policy` says."""
    return self._room if policy == 'truncate' else self._limits.max_context - 1

  def _shorter_prompt(self, system, messages, ids) -> Sequence[int]:
    """The tokens of a first prompt that fits, or of this one."""
    if self._limits.long_prompt == 'refuse':
      raise truncation.TooLong(
        f'{self.task.name}: the first prompt has {len(ids)} tokens, above '
        f'config.rollout.max_context={self._limits.max_context}. Raise it, or '
        "set config.rollout.long_prompt to 'truncate' or 'drop'"
      )
    shown = None
    if self._limits.long_prompt == 'truncate':
      shown = truncation.fit(
        messages, lambda m: len(self._rendered((*system, *m))), self._room
      )
    if shown is None:
      return ids
    self._num_cut += truncation.num_cut(messages, shown)
    self._prompt = (*system, *shown)
    return self._rendered(self._prompt)

  def _shorter_reply(self, messages, prompt) -> Sequence[int]:
    """The next prompt with a last observation that fits, or this one."""
    if self._limits.long_observation != 'truncate':
      return prompt

    def shown(reply):
      last = dataclasses.replace(self._turns[-1], observation=tuple(reply))
      self._turns[-1] = last
      return self._next_prompt(reply)

    shorter = truncation.fit(messages, lambda m: len(shown(m)), self._room)
    if shorter is None:
      return shown(messages)
    self._num_cut += truncation.num_cut(messages, shorter)
    return shown(shorter)

  def _rendered(self, messages: Sequence[types.Message]) -> Sequence[int]:
    language = self._language
    return templates.open(
      language.tokenizer, language.style, messages, self._schemas
    ).ids

  def _next_prompt(self, new: Sequence[types.Message]) -> Sequence[int]:
    """All tokens of the next prompt; `new` came after the last completion."""
    language = self._language
    if language.memory.appends:
      tokens = self._streams[-1].tokens
      ids = templates.extend(language.tokenizer, language.style, tokens, new)
      return [*tokens, *ids]
    exchanges = [
      (types.Message('assistant', turn.text), turn.observation)
      for turn in self._turns
    ]
    return self._rendered(language.memory.messages(self._prompt, exchanges))

  def _go_on(self, prompt: Sequence[int]) -> tuple[int, ...]:
    """Continues the context or opens one; returns what the sampler lacks."""
    if len(prompt) >= self._limits.max_context:
      self.stop_reason = types.StopReason.CONTEXT_FULL
      return ()
    before = self._streams[-1].tokens
    shared, fresh = memory_lib.advance(
      before,
      prompt,
      self._language.memory.policy,
      text=self._language.tokenizer.decode,
    )
    # The last sampled token is not yet in the cache; one token has to follow.
    self.kept = min(shared, len(before) - 1, len(prompt) - 1)
    if fresh:
      self._streams.append(Stream())
      shared = 0
    elif shared < len(before):
      self._forget(shared)
    self._streams[-1].append(prompt[shared:], sampled=False)
    return tuple(prompt[self.kept :])

  def _forget(self, length: int) -> None:
    """Cuts the context; its turns keep the tokens that are left of them."""
    context = len(self._streams) - 1
    self._streams[-1].cut(length)
    self._turns = [
      dataclasses.replace(
        turn, start=min(turn.start, length), end=min(turn.end, length)
      )
      if turn.context == context
      else turn
      for turn in self._turns
    ]

  def _record(self, messages, reward, info):
    self._turns.append(
      types.Turn(
        context=len(self._streams) - 1,
        start=self._start,
        end=len(self._streams[-1].tokens),
        text=self._text,
        calls=self._parsed.calls,
        error=self._parsed.error,
        state_key=self._state_key,
        observation=tuple(messages),
        reward=float(reward),
        info=dict(info),
      )
    )
