"""How are conversations exchanged? In the chat JSON lines that TRL reads.

Fine-tuning: `messages`, and `tools` if there are any. Preferences: `prompt`,
`chosen` and `rejected`. A call is written apart from the text where the style
gives the same text back, and stays in the text otherwise. What a policy sampled
may be other tokens than its text becomes when it is read again: `contexts` has
them, for who reads with the same tokenizer.
"""

import hashlib
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.text import chat, tools
from agentrl_jax.text.tokenizer import Tokenizer


def dump_messages(
  messages: Sequence[types.Message | Mapping[str, Any]],
  style: str | chat.Style = 'tiny',
) -> list[dict[str, Any]]:
  """Writes messages as TRL and chat templates take them.

  Args:
    messages: records, or {role, content} mappings; calls of the assistant stand
      in its content.
    style: in which those calls are written.
  """
  out: list[dict[str, Any]] = []
  waiting: list[str] = []  # tools whose replies come next
  for message in messages:
    role, content = _field(message, 'role'), _field(message, 'content')
    made = {'role': role, 'content': content}
    if role == 'assistant':
      told = tools.parse(content, style)
      waiting = [call.name for call in told.calls]
      again = tools.written(told.content, told.calls, style)
      if told.calls and again == content:
        made['content'] = told.content
        made['tool_calls'] = [_call(call) for call in told.calls]
    elif role == 'tool' and waiting:
      made['name'] = waiting.pop(0)
    out.append(made)
  return out


def dump(
  messages: Sequence[types.Message | Mapping[str, Any]],
  style: str | chat.Style = 'tiny',
  schemas: Sequence[Mapping[str, Any]] = (),
  contexts: Sequence[types.Context | types.Tokens] = (),
  tokenizer: Tokenizer | None = None,
) -> dict[str, Any]:
  """Writes a conversation to fine-tune on.

  Args:
    messages, style: as of `dump_messages`.
    schemas: JSON schemas of the tools.
    contexts: what was seen and sampled, if that shall be kept.
    tokenizer: of the contexts.
  """
  record: dict[str, Any] = {'messages': dump_messages(messages, style)}
  if len(schemas):
    record['tools'] = list(schemas)
  if len(contexts):
    record['tokenizer'] = name(tokenizer)
    record['contexts'] = [
      {
        'tokens': list(getattr(context, 'tokens', getattr(context, 'ids', ()))),
        'sampled_mask': list(context.sampled_mask),
      }
      for context in contexts
    ]
  return record


def preference(
  prompt: Sequence[types.Message],
  chosen: Sequence[types.Message],
  rejected: Sequence[types.Message],
  style: str | chat.Style = 'tiny',
  schemas: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
  """Writes a pair: how two episodes go on from one prompt."""
  record = {
    'prompt': dump_messages(prompt, style),
    'chosen': dump_messages(chosen, style),
    'rejected': dump_messages(rejected, style),
  }
  return record | ({'tools': list(schemas)} if len(schemas) else {})


def said(trajectory: types.Trajectory) -> list[types.Message]:
  """Messages of an episode after its prompt."""
  return [
    message
    for turn in trajectory.turns
    for message in (types.Message('assistant', turn.text), *turn.observation)
  ]


def name(tokenizer: Tokenizer) -> str:
  """Names a tokenizer by its content."""
  text = json.dumps(tokenizer.files(), sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def write(
  path: str | pathlib.Path, records: Iterable[Mapping[str, Any]]
) -> int:
  """Writes JSON lines; returns how many."""
  lines = [json.dumps(record, ensure_ascii=False) for record in records]
  text = ''.join(f'{line}\n' for line in lines)
  # Half a surrogate pair, which a world may hand on, is written as \ud83d.
  pathlib.Path(path).write_text(
    text, encoding='utf-8', errors='backslashreplace'
  )
  return len(lines)


def load(record: Any) -> dict[str, Any]:
  """Reads a conversation to fine-tune on.

  Returns:
    `messages`, {role, content} with `calls` (records) where there are any;
    `tools`, `contexts` (records of `types.Tokens`) and `tokenizer` where they
    are given.

  Raises:
    ValueError: it is none; says at which message.
  """
  if not isinstance(record, Mapping) or not isinstance(
    record.get('messages'), list
  ):
    given = sorted(record) if isinstance(record, Mapping) else type(record)
    raise ValueError(f'needs a list of messages; got {given}')
  out: dict[str, Any] = {'messages': load_messages(record['messages'])}
  if not any(m['role'] == 'assistant' for m in out['messages']):
    raise ValueError('no message of the assistant: nothing to learn')
  if record.get('tools'):
    out['tools'] = load_schemas(record['tools'])
  if record.get('contexts'):
    out['contexts'] = [_context(each) for each in record['contexts']]
    out['tokenizer'] = record.get('tokenizer')
  return out


def read(path: str | pathlib.Path) -> list[dict[str, Any]]:
  """Reads JSON lines as `load` does; empty lines are passed over.

  Raises:
    ValueError: no such file, nothing in it, or a line that is no conversation;
      says which.
  """
  try:
    text = pathlib.Path(path).read_text(encoding='utf-8')
  except (OSError, UnicodeDecodeError) as error:
    raise ValueError(f'{path}: {error}') from error
  out = []
  for number, line in enumerate(text.split('\n'), 1):
    if not line.strip():
      continue
    try:
      out.append(load(json.loads(line)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
      raise ValueError(f'{path}, line {number}: {error}') from error
  if not out:
    raise ValueError(f'{path}: no conversation in it')
  return out


def load_messages(given: Sequence[Any]) -> list[dict[str, Any]]:
  """Reads messages as `dump_messages` or OpenAI's protocol writes them.

  Returns:
    {role, content, calls} each, `calls` only where there are any.

  Raises:
    ValueError: one is no message; says which.
  """
  return [_message(message, place) for place, message in enumerate(given)]


def load_schemas(given: Any) -> list[Mapping[str, Any]]:
  """Reads JSON schemas of tools, a list or its JSON.

  Raises:
    ValueError: they are none.
  """
  found = json.loads(given) if isinstance(given, str) else given
  if not isinstance(found, list) or not all(
    isinstance(each, Mapping) and isinstance(each.get('function'), Mapping)
    for each in found
  ):
    raise ValueError(f'tools {given!r:.80}: a list of JSON schemas')
  for each in found:
    if not isinstance(each['function'].get('name'), str):
      raise ValueError(f'tools: one without a name: {each!r:.80}')
  return found


def _field(message: types.Message | Mapping[str, Any], key: str) -> str:
  return message[key] if isinstance(message, Mapping) else getattr(message, key)


def _call(call: types.ToolCall) -> dict[str, Any]:
  function = {'name': call.name, 'arguments': dict(call.arguments)}
  return {'type': 'function', 'function': function}


def _message(given: Any, place: int) -> dict[str, Any]:
  where = f'messages[{place}]'
  if not isinstance(given, Mapping):
    raise ValueError(f'{where} is {given!r:.60}, not a mapping')
  role, content = given.get('role'), given.get('content')
  if role not in types.ROLES:
    raise ValueError(f'{where}: role {role!r}; allowed: {types.ROLES}')
  calls = given.get('tool_calls') or ()
  if content is None and calls:
    content = ''
  if not isinstance(content, str):
    raise ValueError(f'{where}: content {content!r:.60}; needs text')
  if calls and role != 'assistant':
    raise ValueError(f'{where}: tool_calls of a message of role {role!r}')
  try:
    made = tuple(tools.as_call(call) for call in calls)
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise ValueError(
      f'{where}: tool_calls {calls!r:.80}: {type(error).__name__}: {error}'
    ) from error
  if not all(
    isinstance(c.name, str) and isinstance(c.arguments, Mapping) for c in made
  ):
    raise ValueError(
      f'{where}: tool_calls {calls!r:.80}: a name and arguments, a mapping'
    )
  return {'role': role, 'content': content} | ({'calls': made} if made else {})


def _context(given: Any) -> types.Tokens:
  ids, mask = given['tokens'], given['sampled_mask']
  if len(ids) != len(mask):
    raise ValueError(f'contexts: {len(mask)} masks for {len(ids)} tokens')
  return types.Tokens(tuple(map(int, ids)), tuple(map(bool, mask)))
