"""What of the past does a turn see, and does its prompt continue the last one?

A memory chooses messages. `advance` compares the prompt that they become with
the tokens that the policy saw and drew. Demonstrations are cut by the same
functions, so that the format that is learnt is the format that is used.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

from agentrl_jax import tables, types
from agentrl_jax.text import chat, templates
from agentrl_jax.text import tools as tool_calls
from agentrl_jax.text.tokenizer import Tokenizer

# What the policy said and what came back.
Exchange = tuple[types.Message, Sequence[types.Message]]

DRIFTS = ('split', 'mask', 'raise')
_TRACE = re.compile(r'<think>.*?</think>\s*', re.DOTALL)
_SHOWN = 12  # tokens of each text in an error


class Drift(ValueError):
  """A prompt rewrites what was sampled, and the config forbids it."""


def everything(
  prompt: Sequence[types.Message], exchanges: Sequence[Exchange], window: int
) -> list[types.Message]:
  """Shows all turns."""
  del window
  turns = [m for said, replies in exchanges for m in (said, *replies)]
  return [*prompt, *turns]


def latest(
  prompt: Sequence[types.Message], exchanges: Sequence[Exchange], window: int
) -> list[types.Message]:
  """Shows the last `window` turns."""
  return everything(prompt, exchanges[-window:], window)


# Name -> (prompt, exchanges so far, window) -> messages that a turn sees.
MEMORIES = {'append': everything, 'window': latest}


@dataclasses.dataclass(frozen=True)
class Memory:
  """What of the past a turn sees.

  Attributes:
    name: a key of `MEMORIES` or 'package.module:name' of such a function.
    window: turns that 'window' shows.
    thinking: 'keep' or 'strip' the traces of earlier turns.
    drift: what to do with a prompt that does not extend what was sampled, as
      in `advance`.
  """

  name: str = 'append'
  window: int = 2
  thinking: str = 'keep'
  drift: str = 'split'

  @property
  def appends(self) -> bool:
    """Whether a prompt extends what was sampled by construction."""
    return self.name == 'append' and self.thinking == 'keep'

  @property
  def policy(self) -> str:
    """As `advance` takes it: a window is a context of its own every turn."""
    return 'fresh' if self.name == 'window' else self.drift

  def messages(
    self, prompt: Sequence[types.Message], exchanges: Sequence[Exchange]
  ) -> list[types.Message]:
    """Returns what the next turn sees.

    Args:
      prompt: system prompt and task.
      exchanges: earlier turns, in order.
    """
    if self.thinking == 'strip':
      exchanges = [
        (dataclasses.replace(said, content=spoken(said.content)), replies)
        for said, replies in exchanges
      ]
    choose = tables.resolve(MEMORIES, self.name)
    return choose(prompt, exchanges, self.window)


def spoken(text: str) -> str:
  """Returns what the policy said, without its `<think>` traces."""
  return _TRACE.sub('', text) if '<think>' in text else text


def advance(
  context: Sequence[int],
  prompt: Sequence[int],
  policy: str,
  *,
  text: Callable[[Sequence[int]], str] = str,
) -> tuple[int, bool]:
  """Decides how a context goes on under the next prompt.

      prompt = context + new   extension: nothing drifts
      split                    a new context; what was sampled keeps its
                               gradient in the context where it was sampled
      mask                     the same context, rewritten from the first
                               difference on; what was sampled there is lost
      raise                    an error
      fresh                    a new context in any case

  Args:
    context: tokens of the context, the last completion included.
    prompt: all tokens of the next prompt.
    policy: 'split', 'mask', 'raise' or 'fresh'.
    text: decodes tokens, for the error.

  Returns:
    (number of leading tokens that the two share, whether a context begins).

  Raises:
    Drift: the prompt is no extension and the policy is 'raise'.
    ValueError: unknown policy.
  """
  size = len(context)
  if list(prompt[:size]) == list(context):
    shared = size
  else:
    pairs = enumerate(zip(context, prompt))
    differ = (i for i, (a, b) in pairs if a != b)
    shared = next(differ, min(size, len(prompt)))
  if policy == 'fresh':
    return shared, True
  if policy not in DRIFTS:
    raise ValueError(f'drift {policy!r}: allowed are {", ".join(DRIFTS)}')
  if shared == size:
    return shared, False
  if policy == 'raise':
    was, now = (
      text(list(ids[shared : shared + _SHOWN])) for ids in (context, prompt)
    )
    raise Drift(
      f'the next prompt rewrites token {shared} of {size} that were seen or '
      f'sampled: there was {was!r}, now it is {now!r}. Set '
      "config.rollout.drift='split' to train each part where it was sampled, "
      'or keep the history as it was'
    )
  return shared, policy == 'split'


def contexts(
  tokenizer: Tokenizer,
  style: str | chat.Style,
  messages: Sequence[Any],
  memory: Memory,
  tools: Sequence[Any] = (),
) -> list[types.Tokens]:
  """Cuts a demonstration into the contexts that a rollout would have seen.

  Args:
    tokenizer, style, messages, tools: as of `templates.render`.
    memory: of the rollout.

  Returns:
    One context for each part; each assistant message counts as sampled where
    it is said, and nowhere as history. Append-only memory gives what `render`
    gives, with replies after the last assistant message; others end there.

  Raises:
    Drift: as `advance`.
  """
  if memory.appends:
    return [templates.render(tokenizer, style, messages, tools)]
  prompt, exchanges = _parted(messages)
  parts: list[tuple[list[int], list[bool]]] = []
  for turn, (said, _) in enumerate(exchanges):
    seen = memory.messages(prompt, exchanges[:turn])
    ids = templates.open(tokenizer, style, seen, tools).ids
    shared, fresh = 0, True
    if parts:
      shared, fresh = advance(
        parts[-1][0], ids, memory.policy, text=tokenizer.decode
      )
    if fresh:
      parts.append(([], []))
      shared = 0
    tokens, mask = parts[-1]
    del tokens[shared:], mask[shared:]
    completion = templates.completion_ids(tokenizer, style, said)
    tokens += (*ids[shared:], *completion)
    mask += [False] * (len(ids) - shared) + [True] * len(completion)
  return [types.Tokens(tuple(ids), tuple(mask)) for ids, mask in parts]


def _parted(
  messages: Sequence[Any],
) -> tuple[list[types.Message], list[Exchange]]:
  """Parts a conversation before each assistant message."""
  prompt: list[types.Message] = []
  exchanges: list[tuple[types.Message, list[types.Message]]] = []
  for message in messages:
    record = _record(message)
    if record.role == 'assistant':
      exchanges.append((record, []))
    else:
      (exchanges[-1][1] if exchanges else prompt).append(record)
  return prompt, exchanges


def _record(message: Any) -> types.Message:
  if isinstance(message, types.Message):
    return message
  calls = message.get('calls') or message.get('tool_calls') or ()
  return types.Message(
    message['role'],
    message.get('content') or '',
    tuple(tool_calls.as_call(call) for call in calls),
  )
