"""Conversations that the tests of `text` share, and the other renderer."""

import pytest

from agentrl_jax import types
from agentrl_jax.text import tools

CALL = types.ToolCall('search', {'from': 'Xian', 'to': 'Zürich 漢'})
CALLS = (CALL, types.ToolCall('check_seat', {'flight': 'CA1501'}))


def check_seat(flight: str) -> str:
  """Says whether "seats" are left <here>."""
  return flight


SCHEMAS = [tools.schema_from_function(check_seat)] * 2
SYSTEM = {'role': 'system', 'content': 'You book flights.'}
USER = {'role': 'user', 'content': 'Xian > Zürich, please  \n'}
DONE = {'role': 'assistant', 'content': 'Booked.'}


def reply(text):
  return {'role': 'tool', 'content': text}


def calling(*calls, content=''):
  return types.Message('assistant', content, calls)


def as_hugging_face(message):
  if isinstance(message, dict):
    return message
  calls = [
    {'function': {'name': call.name, 'arguments': dict(call.arguments)}}
    for call in message.calls
  ]
  return {
    'role': message.role,
    'content': message.content,
    'tool_calls': calls,
  }


def hugging_face_ids(tok, directory, messages, tools_, template, **kwargs):
  transformers = pytest.importorskip('transformers')
  pytest.importorskip('jinja2')
  tok.save(directory)
  other = transformers.AutoTokenizer.from_pretrained(directory)
  return other.apply_chat_template(
    [as_hugging_face(message) for message in messages],
    tools=tools_ or None,
    chat_template=template,
    return_dict=False,
    **kwargs,
  )
