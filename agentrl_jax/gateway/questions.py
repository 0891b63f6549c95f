"""What does a client of a served policy ask for, and can it be had?"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax.text import chat, conversations, templates
from agentrl_jax.text.tokenizer import Tokenizer

# Fields that would change the answer -> values that change nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
  'stream': (False,),
  'frequency_penalty': (0,),
  'presence_penalty': (0,),
  'logit_bias': ({},),
  'top_logprobs': (0,),
  'response_format': ({'type': 'text'},),
  'tool_choice': ('auto', 'none'),
  'parallel_tool_calls': (True,),
  'functions': ([],),
  'min_p': (0,),
  'repetition_penalty': (1,),
}
# Fields that are read below, and those that change no answer.
_READ = {'model', 'messages', 'tools', 'temperature', 'top_p', 'top_k', 'n'}
_READ |= {'max_tokens', 'max_completion_tokens', 'seed', 'stop', 'logprobs'}
_INERT = {'user', 'metadata', 'store', 'service_tier', 'safety_identifier'}
_INERT |= {'prompt_cache_key', 'stream_options'}
_MOST_SAMPLES, _MOST_STOPS = 128, 4
_HOTTEST = 100.0  # temperature


class Refused(Exception):
  """A request that is not answered, as the protocol says so.

  Args:
    status: of HTTP.
    message: for a person.
    param: the field at fault.
    code: for a program.
  """

  def __init__(
    self,
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
  ):
    super().__init__(message)
    self.status, self.message = status, message
    self.param, self.code = param, code

  def body(self) -> dict[str, Any]:
    """Returns the protocol's error object."""
    kind = 'server_error' if self.status >= 500 else 'invalid_request_error'
    error = {'message': self.message, 'type': kind}
    return {'error': {**error, 'param': self.param, 'code': self.code}}


@dataclasses.dataclass(frozen=True)
class Limits:
  """What the server can do.

  Attributes:
    model: name of the model.
    context_length: tokens of prompt and answer together.
    max_tokens: of an answer.
    top_p, top_k: the sampler's, for everybody.
  """

  model: str
  context_length: int
  max_tokens: int
  top_p: float = 1.0
  top_k: int = 0


@dataclasses.dataclass(frozen=True)
class Question:
  """A request that can be answered.

  Attributes:
    prompt: tokens.
    samples: answers asked for.
    temperature: 0 = greedy.
    budget: tokens of an answer.
    seed: of the draws; None = the server's.
    stop: texts that end an answer and are not in it.
    logprobs: whether they are wanted.
    schemas: of tools.
  """

  prompt: tuple[int, ...]
  samples: int
  temperature: float
  budget: int
  seed: int | None
  stop: tuple[str, ...]
  logprobs: bool
  schemas: Sequence[Mapping[str, Any]]


def read(
  body: Any, tokenizer: Tokenizer, style: str | chat.Style, limits: Limits
) -> Question:
  """Reads the body of POST /v1/chat/completions.

  Raises:
    Refused: malformed, too long, or something that the server does not do.
  """
  if not isinstance(body, Mapping):
    raise Refused(400, f'the body is {body!r:.60}, not an object')
  if body.get('model', limits.model) != limits.model:
    raise Refused(
      404,
      f'no model {body["model"]!r:.60}; this server has {limits.model!r}',
      param='model',
      code='model_not_found',
    )
  for field in body.keys() - _READ - _INERT:
    if body[field] is not None and body[field] not in _NEUTRAL.get(field, ()):
      raise _bad(field, f'{body[field]!r:.60} is not offered')
  if body.get('tool_choice') == 'none' and body.get('tools'):
    raise _bad('tool_choice', "'none' is not offered; leave the tools out")
  for field in ('top_p', 'top_k'):
    fixed = getattr(limits, field)
    if body.get(field) is not None and body[field] != fixed:
      raise _bad(
        field, f'{body[field]!r:.60}: the sampler was started with {fixed}'
      )
  prompt, schemas = _prompt(body, tokenizer, style)
  room = limits.context_length - len(prompt)
  if room < 1:
    raise Refused(
      400,
      f'the prompt has {len(prompt)} tokens, a context {limits.context_length} '
      'with the answer',
      param='messages',
      code='context_length_exceeded',
    )
  name = 'max_tokens'
  if body.get('max_completion_tokens') is not None:
    name = 'max_completion_tokens'
  wanted = _integer(body, name, limits.max_tokens, 1, limits.max_tokens)
  return Question(
    prompt=prompt,
    samples=_integer(body, 'n', 1, 1, _MOST_SAMPLES),
    temperature=_temperature(body),
    budget=min(wanted, room),
    seed=_integer(body, 'seed', None, -(2**63), 2**63 - 1),
    stop=_stops(body),
    logprobs=_flag(body, 'logprobs'),
    schemas=schemas,
  )


def _bad(field: str, message: str) -> Refused:
  return Refused(400, f'{field}: {message}', param=field)


def _prompt(body, tokenizer, style):
  """The prompt's tokens, and the schemas of tools."""
  given = body.get('messages')
  if not isinstance(given, list) or not given:
    raise _bad('messages', 'a list of at least one message is needed')
  try:
    schemas = conversations.load_schemas(body.get('tools') or [])
    for schema in schemas:
      _check_tool(schema['function'])
  except (ValueError, RecursionError) as error:
    raise Refused(400, str(error), param='tools') from error
  try:
    plain = _in_order([_plain(message) for message in given])
    messages = conversations.load_messages(plain)
    opened = templates.open(tokenizer, style, messages, schemas)
  except ValueError as error:
    raise Refused(400, str(error), param='messages') from error
  return opened.ids, schemas


def _check_tool(function: Mapping[str, Any]) -> None:
  if not isinstance(function.get('parameters', {}), Mapping):
    raise ValueError(f'tool {function["name"]!r}: parameters are no schema')


def _in_order(messages: list[Any]) -> list[Any]:
  """Replies of tools in the order of the calls that they answer, by id."""
  out, ids = [], []
  for message in messages:
    role = message.get('role') if isinstance(message, Mapping) else None
    if role == 'assistant':
      calls = message.get('tool_calls') or ()
      ids = [c.get('id') for c in calls if isinstance(c, Mapping)]
    elif role == 'tool' and message.get('tool_call_id') is not None:
      name = message['tool_call_id']
      if name not in ids:
        raise ValueError(f'tool_call_id {name!r:.60}: no call before has it')
      at = len(out)  # behind those of earlier calls
      while at and ids.index(name) < _place(out[at - 1], ids):
        at -= 1
      out.insert(at, message)
      continue
    out.append(message)
  return out


def _place(message: Any, ids: list[Any]) -> int:
  """Which call a reply answers; -1 if it is none."""
  if not isinstance(message, Mapping) or message.get('role') != 'tool':
    return -1
  name = message.get('tool_call_id')
  return ids.index(name) if name in ids else -1


def _plain(message: Any) -> Any:
  """A message whose content is text, where it came as a list of texts."""
  if not isinstance(message, Mapping):
    return message
  content = message.get('content')
  if isinstance(content, list) and all(
    isinstance(p, Mapping)
    and p.get('type') == 'text'
    and isinstance(p.get('text'), str)
    for p in content
  ):
    content = ''.join(p['text'] for p in content)
  role = message.get('role')
  role = 'system' if role == 'developer' else role
  return {**message, 'role': role, 'content': content}


def _integer(body, field, default, low, high):
  value = body.get(field)
  if value is None:
    return default
  if isinstance(value, bool) or not isinstance(value, int):
    raise _bad(field, f'{value!r:.60} is no integer')
  if not low <= value <= high:
    raise _bad(field, f'{value} is not in {low}..{high} of this server')
  return value


def _temperature(body) -> float:
  value = body.get('temperature')
  if value is None:
    return 1.0
  if isinstance(value, bool) or not isinstance(value, int | float):
    raise _bad('temperature', f'{value!r:.60} is no number')
  if not 0 <= value <= _HOTTEST:  # no NaN is
    raise _bad('temperature', f'{value!r:.60} is not in 0..{_HOTTEST:g}')
  return float(value)


def _flag(body, field) -> bool:
  value = body.get(field)
  if value not in (None, True, False):
    raise _bad(field, f'{value!r:.60} is neither true nor false')
  return bool(value)


def _stops(body) -> tuple[str, ...]:
  value = body.get('stop')
  value = [] if value is None else [value] if isinstance(value, str) else value
  if (
    not isinstance(value, list)
    or len(value) > _MOST_STOPS
    or not all(isinstance(s, str) and s for s in value)
  ):
    raise _bad('stop', f'{value!r:.60}: up to {_MOST_STOPS} texts, none empty')
  return tuple(value)
