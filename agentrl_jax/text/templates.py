"""Which tokens does a conversation become, and which of them were sampled?

History is never rendered again: `open` writes the first prompt, the sampler
appends a completion, `extend` returns only what follows it. `render` writes a
whole demonstration at once, for supervised fine-tuning, and agrees with the
other two token for token.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.text import chat, listing
from agentrl_jax.text import tools as tool_calls
from agentrl_jax.text.tokenizer import Tokenizer

Message = types.Message | Mapping[str, Any]
Pieces = list[int | str]
STYLES = chat.STYLES


def open(  # noqa: A001 - the name that API.md fixes
  tokenizer: Tokenizer,
  style: str | chat.Style,
  messages: Sequence[Message],
  tools: Sequence[Mapping[str, Any]] = (),
) -> types.Tokens:
  """Renders a prompt, up to and including the assistant header.

  Args:
    tokenizer: knows the special tokens of the style.
    style: a name in `STYLES` or a style.
    messages: records or {role, content, calls} mappings; assistant messages
      among them are history: nothing in a prompt counts as sampled, and a style
      that `strips` leaves their reasoning out.
    tools: JSON schemas of the tools; shown if the style shows them.

  Raises:
    ValueError: unknown style or role, schemas without a message to hold them.
  """
  style = chat.style(style)
  messages = _without_old_reasoning(style, messages)
  pieces, sampled = _conversation(tokenizer, style, messages, tools)
  pieces += _between(tokenizer, style, messages)
  pieces += tokenizer.split(style.headers['assistant'])
  ids, _ = _tokens(tokenizer, pieces, sampled)
  return types.Tokens(tuple(ids), (False,) * len(ids))


def extend(
  tokenizer: Tokenizer,
  style: str | chat.Style,
  tokens: types.Tokens | types.Context | Sequence[int],
  new_messages: Sequence[Message],
) -> tuple[int, ...]:
  """Returns the ids that follow a sampled completion; none were sampled.

  Closes the turn if the completion did not end by itself (cut by length), then
  the new messages, then the assistant header.

  Args:
    tokenizer: as in `open`.
    style: as in `open`.
    tokens: what `open` gave plus the completion; only the last id is read.
    new_messages: tool replies or user messages, no assistant messages.

  Raises:
    ValueError: an assistant message among the new ones, unknown role.
  """
  style = chat.style(style)
  for message in new_messages:
    if _role(message) == 'assistant':
      raise ValueError(
        'extend takes what followed a completion, not assistant messages: '
        'those are sampled, or rendered by open and render'
      )
  ids = getattr(tokens, 'ids', getattr(tokens, 'tokens', tokens))
  ended = len(ids) > 0 and ids[-1] in stop_ids(tokenizer, style)
  literal = style.after_end if ended else style.end + style.after_end
  pieces = list(tokenizer.split(literal))
  pieces += _messages(tokenizer, style, new_messages)[0]
  pieces += tokenizer.split(style.headers['assistant'])
  return tuple(_encode(tokenizer, pieces))


def render(
  tokenizer: Tokenizer,
  style: str | chat.Style,
  messages: Sequence[Message],
  tools: Sequence[Mapping[str, Any]] = (),
) -> types.Tokens:
  """Renders a whole conversation, for supervised fine-tuning only.

  `sampled_mask` is True exactly on the content of assistant messages and the
  end token of each. Every reasoning stays: it was sampled where it stands.

  Args:
    tokenizer: as in `open`.
    style: as in `open`.
    messages: as in `open`.
    tools: as in `open`.
  """
  style = chat.style(style)
  pieces, sampled = _conversation(tokenizer, style, messages, tools)
  ids, mask = _tokens(tokenizer, pieces, sampled)
  return types.Tokens(tuple(ids), tuple(mask))


def stop_ids(tokenizer: Tokenizer, style: str | chat.Style) -> tuple[int, ...]:
  """Returns the ids that end a turn when sampled.

  Raises:
    ValueError: the tokenizer lacks the style's end token.
  """
  style = chat.style(style)
  known = tokenizer.special_ids
  if style.end not in known:
    raise ValueError(
      f'the tokenizer has no {style.end!r}, which style {style.name!r} ends '
      f'turns with; its special tokens are {sorted(known)}'
    )
  return tuple(known[name] for name in style.stop if name in known)


def completion_text(
  tokenizer: Tokenizer, style: str | chat.Style, ids: Sequence[int]
) -> str:
  """Returns the text of a completion without its end token.

  Other control tokens stay visible: a policy that samples a header inside its
  message has written something malformed, and should be told.
  """
  if len(ids) and ids[-1] in stop_ids(tokenizer, style):
    ids = ids[:-1]
  return tokenizer.decode(ids)


def completion_ids(
  tokenizer: Tokenizer, style: str | chat.Style, message: Message
) -> tuple[int, ...]:
  """Returns the ids that `render` marks as sampled for an assistant message."""
  style = chat.style(style)
  return tuple(_encode(tokenizer, _completion(tokenizer, style, message)))


def translated(
  style: str | chat.Style, messages: Sequence[Message]
) -> Sequence[Message]:
  """Returns a demonstration with its calls in the notation of the style.

  Environments write them in that of 'tiny', as {role, content} mappings.
  Styles of the same notation get the messages as they are.
  """
  style = chat.style(style)
  if style.calls == STYLES['tiny'].calls:
    return messages
  return [
    {
      'role': 'assistant',
      'content': tool_calls.translated(_content(message, style), style),
    }
    if _role(message) == 'assistant' and not _calls(message)
    else message
    for message in messages
  ]


def _conversation(
  tokenizer: Tokenizer,
  style: chat.Style,
  messages: Sequence[Message],
  schemas: Sequence[Mapping[str, Any]],
) -> tuple[Pieces, list[tuple[int, int]]]:
  """Pieces from the first message on, and where the sampled ones lie."""
  listed = shown(style, schemas)
  system = style.default_system
  if listed and style.tools_system is not None:
    system = style.tools_system
  if len(messages) and _role(messages[0]) == 'system':
    system, messages = _content(messages[0], style), messages[1:]
  pieces: Pieces = list(tokenizer.split(style.begin))
  if system is not None or (listed and style.schemas_role == 'system'):
    always, with_tools = style.preambles
    text = (with_tools if listed else '') + always + (system or '')
    if style.schemas_role == 'system':
      # A blank line parts the schemas from a prompt, if there is one.
      text += listed if system is not None else listed.lstrip('\n')
    pieces += tokenizer.split(style.headers['system'])
    pieces += tokenizer.split(text, style.tags)
    pieces += tokenizer.split(style.footers['system'])
  if listed and style.schemas_role == 'user':
    if not len(messages) or _role(messages[0]) != 'user':
      raise ValueError(
        f'style {style.name!r} shows tools in the first user message: let the '
        'conversation begin with one, after the system message'
      )
    pieces += tokenizer.split(style.headers['user'])
    pieces += tokenizer.split(listed, style.tags)
    pieces.append(_content(messages[0], style))
    pieces += tokenizer.split(style.footers['user'])
    messages = messages[1:]
  body, sampled = _messages(tokenizer, style, messages)
  shift = len(pieces)
  return pieces + body, [(a + shift, b + shift) for a, b in sampled]


def shown(style: str | chat.Style, schemas: Sequence[Mapping[str, Any]]) -> str:
  """Returns how a prompt lists tools, '' if there are none to list."""
  style = chat.style(style)
  if style.schemas is None or not len(schemas):
    return ''
  before, after = style.schemas
  left, right = style.schema
  written = listing.LISTINGS[style.listing]
  texts = [written(schema, style.schema_indent) for schema in schemas]
  return before + ''.join(left + text + right for text in texts) + after


def _without_old_reasoning(
  style: chat.Style, messages: Sequence[Message]
) -> Sequence[Message]:
  """Leaves out the reasoning of turns before the last user message."""
  if not style.strips:
    return messages
  asked = [i for i, m in enumerate(messages) if _role(m) == 'user']
  last = asked[-1] if asked else len(messages) - 1
  closing = style.think[1].strip()
  out = []
  for i, message in enumerate(messages):
    content = _content(message, style)
    if i <= last and _role(message) == 'assistant' and closing in content:
      message = types.Message(
        'assistant',
        content.rpartition(closing)[2].lstrip('\n'),
        tuple(_calls(message)),
      )
    out.append(message)
  return out


def _messages(
  tokenizer: Tokenizer, style: chat.Style, messages: Sequence[Message]
) -> tuple[Pieces, list[tuple[int, int]]]:
  pieces: Pieces = []
  sampled: list[tuple[int, int]] = []
  literal = tokenizer.split
  previous = ''
  for i, message in enumerate(messages):
    role = _role(message)
    if previous == 'assistant':
      pieces += literal(style.after_end)
    if role == 'assistant':
      pieces += literal(style.headers[role])
      start = len(pieces)
      pieces += _completion(tokenizer, style, message)
      sampled.append((start, len(pieces)))
    elif role == 'tool':
      if previous != 'tool':
        pieces += literal(style.tools[0])
      pieces += literal(style.tool[0])
      pieces.append(_reply(message, style))
      pieces += literal(style.tool[1])
      if i + 1 == len(messages) or _role(messages[i + 1]) != 'tool':
        pieces += literal(style.tools[1])
    elif role in style.headers:
      pieces += literal(style.headers[role])
      content = _content(message, style)
      pieces += literal(content, style.tags) if role == 'system' else [content]
      pieces += literal(style.footers[role])
    else:
      raise ValueError(
        f'role {role!r}: style {style.name!r} has {sorted(style.headers)} and '
        "'tool'"
      )
    previous = role
  return pieces, sampled


def _between(
  tokenizer: Tokenizer, style: chat.Style, messages: Sequence[Message]
) -> Pieces:
  if len(messages) and _role(messages[-1]) == 'assistant':
    return tokenizer.split(style.after_end)
  return []


def _completion(
  tokenizer: Tokenizer, style: chat.Style, message: Message
) -> Pieces:
  content = tool_calls.written(_content(message, style), _calls(message), style)
  return [*tokenizer.split(content, style.tags), *tokenizer.split(style.end)]


def _tokens(
  tokenizer: Tokenizer, pieces: Pieces, sampled: Sequence[tuple[int, int]]
) -> tuple[list[int], list[bool]]:
  """Encodes what was sampled apart from what stands around it.

  A policy cannot draw a token that begins in its header: no token of history
  may do so either.
  """
  ids: list[int] = []
  mask: list[bool] = []
  start = 0
  for first, last in [*sampled, (len(pieces), len(pieces))]:
    for value, part in enumerate((pieces[start:first], pieces[first:last])):
      part_ids = _encode(tokenizer, part)
      ids += part_ids
      mask += [bool(value)] * len(part_ids)
    start = last
  return ids, mask


def _encode(tokenizer: Tokenizer, pieces: Pieces) -> list[int]:
  """Neighbouring strings are one run of text, and none of it is special."""
  ids: list[int] = []
  run = ''
  for piece in pieces:
    if isinstance(piece, str):
      run += piece
    else:
      if run:
        ids += tokenizer.encode(run)
        run = ''
      ids.append(piece)
  if run:
    ids += tokenizer.encode(run)
  return ids


def _role(message: Message) -> str:
  return message['role'] if isinstance(message, Mapping) else message.role


def _content(message: Message, style: chat.Style) -> str:
  if isinstance(message, Mapping):
    content = message.get('content') or ''
  else:
    content = message.content
  return content.strip() if style.trim else content


def _reply(message: Message, style: chat.Style) -> str:
  if not style.json_replies:
    return _content(message, style)
  if isinstance(message, Mapping):
    return json.dumps(message.get('content') or '', ensure_ascii=False)
  return json.dumps(message.content, ensure_ascii=False)


def _calls(message: Message) -> Sequence[types.ToolCall]:
  if not isinstance(message, Mapping):
    return message.calls
  calls = message.get('calls') or message.get('tool_calls') or ()
  return [tool_calls.as_call(call) for call in calls]
