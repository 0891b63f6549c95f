"""ReAct (Yao et al. 2022, arXiv:2210.03629): lines that name what is done.

    Thought: I look first.
    Action: search
    Action Input: {"city": "Xian"}

A text without an `Action:` line is an answer. Several calls follow each other.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.text import chat
from agentrl_jax.text.calls import common

_ACTION = re.compile(r'[ \t]*Action[ \t]*:[ \t]*([^\n]*)(?:\n|\Z)')
_INPUT = re.compile(r'\s*Action Input[ \t]*:')

find = common.finder(r'^[ \t]*Action(?: Input)?[ \t]*:')


def read(
  text: str,
  start: int,
  style: chat.Style,
  schemas: Sequence[Mapping[str, Any]],
) -> list[types.ToolCall]:
  """Reads all calls from `start` on.

  Raises:
    common.MalformedCall: says what is wrong with the first bad one.
  """
  del style, schemas
  calls = []
  while start < len(text):
    action = _ACTION.match(text, start)
    if action is None:
      if text.startswith('Observation', start):
        raise common.MalformedCall('an observation is not yours to write')
      if calls:
        raise common.MalformedCall('text after a call')
      raise common.MalformedCall('no "Action:" line comes first')
    name = action[1].strip()
    if not name:
      raise common.MalformedCall('the tool name is missing')
    given = _INPUT.match(text, action.end())
    if given is None:
      raise common.MalformedCall('the "Action Input:" line is missing')
    value, start = common.read_json(text, given.end())
    calls.append(types.ToolCall(name, common.as_arguments(value)))
    start = common.skip_space(text, start)
  return calls


def render(
  calls: Sequence[types.ToolCall], style: chat.Style, prose: str = ''
) -> str:
  """Writes calls, two lines each, below the prose.

  Raises:
    ValueError: arguments are not JSON, or a tool's name is no single line.
  """
  body = '\n'.join(_render(call, style) for call in calls)
  return common.joined(prose, body, '\n', style)


def usage(style: chat.Style) -> str:
  """Says how a call looks."""
  del style
  return 'Write "Action: TOOL" and "Action Input: {...}", a line each.'


def faulty(style: chat.Style) -> tuple[str, ...]:
  """Returns texts with the usual faults."""
  del style
  call = 'Action: f\nAction Input: {}'
  return (
    'Action: f',
    'Action:\nAction Input: {}',
    'Action Input: {}',
    'Action: f\nAction Input: {',
    'Action: f\nAction Input: f',
    'Action: f\nAction Input: []',
    f'{call}\nf',
    f'{call}\nObservation: f',
  )


def _render(call: types.ToolCall, style: chat.Style) -> str:
  name = call.name
  plain = name and name == name.strip() and '\n' not in name
  if not plain or any(special in name for special in style.specials):
    raise ValueError(f'{name!r} does not fit into an "Action:" line')
  arguments = common.dumps(common.checked(call), style.json_separators)
  arguments = common.escaped(arguments, style.specials)
  return f'Action: {name}\nAction Input: {arguments}'
