"""What did the model ask for, and what exactly was wrong if nobody can tell?

Whatever the model wrote, `parse` returns: a malformed call is an error text
that goes back to the model as its observation, never an exception. How calls
are written is the style's notation, one of `calls.CALLS`.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.text import arguments, chat, schemas
from agentrl_jax.text.calls import CALLS, common

schema_from_function = schemas.from_function
validate_call = arguments.validate_call


def parse(
  text: str,
  style: str | chat.Style = 'tiny',
  schemas: Sequence[Mapping[str, Any]] = (),
) -> types.ParseResult:
  """Splits a completion into prose and calls.

  Args:
    text: completion without its end token.
    style: a name that `chat.style` knows, or a style.
    schemas: of the tools, as of `templates.open`; notations without types
      ('xml') read values by them.

  Returns:
    `content` (reasoning and prose before the first call), `calls` in order, and
    `error`: '' or one line that says what was wrong and how a call looks. With
    an error there are no calls: nothing is executed by halves. What is inside a
    reasoning is no call. Never raises on account of the text.
  """
  style = chat.style(style)
  notation = _notation(style)
  content, said = text, text
  try:
    if style.think is not None:
      said = _after_reasoning(text, style)
    start = notation.find(said, style)
    if start < 0:
      return types.ParseResult(text)
    content = text[: len(text) - len(said) + start]
    found = notation.read(said, start, style, schemas)
    if '\\' in said:  # an escape may hide what no file or database takes
      common.refuse_surrogates(found)
  except common.MalformedCall as e:
    error = f'malformed call: {e}. {notation.usage(style)}'
    return types.ParseResult(content, (), error)
  return types.ParseResult(content.rstrip(), tuple(found))


def render_call(call: types.ToolCall, style: str | chat.Style = 'tiny') -> str:
  """Returns the call as the model would write it, tags included.

  `parse` gives the same call back. A `<` inside an argument is escaped where
  it could be read as a tag.

  Raises:
    ValueError: the arguments are not JSON, or the notation has no way to write
      the name.
  """
  style = chat.style(style)
  return _notation(style).render((call,), style)


def written(
  content: str,
  made: Sequence[types.ToolCall],
  style: str | chat.Style = 'tiny',
) -> str:
  """Returns a message of the model as the style writes it.

  Args:
    content: prose, or the message as it was said: calls that stand in it stay
      as they are.
    made: the calls of the message.
    style: as in `parse`.

  Raises:
    ValueError: as `render_call`.
  """
  style = chat.style(style)
  if not made or parse(content, style).calls:
    return content
  return _notation(style).render(made, style, content)


def translated(text: str, style: str | chat.Style) -> str:
  """Returns a message in the notation of 'tiny' as the style writes it.

  What holds no well-formed call stays as it is.
  """
  style = chat.style(style)
  told = parse(text)
  if not told.calls:
    return text
  return _notation(style).render(told.calls, style, told.content)


def error_texts(style: str | chat.Style = 'tiny') -> tuple[str, ...]:
  """Returns what `parse` says of the usual faults.

  A tokenizer that has seen these a few times spends few tokens on them.
  """
  style = chat.style(style)
  texts = _notation(style).faulty(style)
  return tuple(parse(text, style).error for text in texts)


def as_call(call: types.ToolCall | Mapping[str, Any]) -> types.ToolCall:
  """Returns a call record from a record, {name, arguments} or OpenAI's form."""
  if isinstance(call, types.ToolCall):
    return call
  call = call.get('function', call)
  given = call.get('arguments', call.get('args', {}))
  if isinstance(given, str):
    given = json.loads(given)
  return types.ToolCall(call['name'], given)


def _notation(style: chat.Style) -> Any:
  found = CALLS.get(style.calls)
  if found is None:
    near = difflib.get_close_matches(str(style.calls), CALLS, n=1)
    hint = f'; did you mean {near[0]!r}?' if near else ''
    raise ValueError(
      f'notation of calls {style.calls!r} is not one of {sorted(CALLS)}{hint}'
    )
  return found


def _after_reasoning(text: str, style: chat.Style) -> str:
  opening, closing = (mark.strip() for mark in style.think)
  _, ends, said = text.partition(closing)
  if ends:
    return said
  if opening in text:
    raise common.MalformedCall('the reasoning never ends')
  return text
