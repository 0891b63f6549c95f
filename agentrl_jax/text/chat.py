"""How does each model family lay out a conversation? One table entry a style.

A style is data: literals around the messages and around a tool call. What may
be sampled and what a template adds is decided once, in `templates`.
"""

import dataclasses
import difflib
from collections.abc import Mapping

_HERMES_TOOLS = (
  '\n\n# Tools\n\nYou may call one or more functions to assist with the user'
  ' query.\n\nYou are provided with function signatures within <tools></tools>'
  ' XML tags:\n<tools>',
  '\n</tools>\n\nFor each function call, return a json object with function'
  ' name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n'
  '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
)


@dataclasses.dataclass(frozen=True, eq=False)
class Style:
  """Layout of a conversation.

  Attributes:
    name: key in `STYLES`.
    controls: tokens that only a template (or, for `stop`, the end of a sampled
      message) may produce; the first is the padding token.
    tags: tokens that text of the policy and of the system prompt may contain.
    end: closes an assistant message; sampled.
    stop: tokens that end a turn when sampled (`end` among them).
    after_end: literal between an ended assistant message and what follows.
    headers: role -> literal before the content (system, user, assistant).
    footers: role -> literal after the content (system, user).
    tool: literals around one tool reply.
    tools: literals around a run of consecutive tool replies.
    schemas: literals around the tool schemas at the end of the system message,
      None = schemas are not shown.
    default_system: system message if the conversation has none, None = none.
    call: literals around the JSON of one call.
    call_separator: literal between prose and calls and between calls.
    arguments: key of the arguments in a rendered call.
    json_separators: as in `json.dumps`.
  """

  name: str
  controls: tuple[str, ...]
  tags: tuple[str, ...]
  end: str
  stop: tuple[str, ...]
  headers: Mapping[str, str]
  footers: Mapping[str, str]
  tool: tuple[str, str]
  tools: tuple[str, str] = ('', '')
  after_end: str = ''
  schemas: tuple[str, str] | None = None
  default_system: str | None = None
  call: tuple[str, str] = ('<tool_call>', '</tool_call>')
  call_separator: str = ''
  arguments: str = 'arguments'
  json_separators: tuple[str, str] = (', ', ': ')

  @property
  def specials(self) -> tuple[str, ...]:
    return self.controls + self.tags


STYLES = {
  # For policies trained from scratch: one token a header, nothing to spare.
  'tiny': Style(
    name='tiny',
    controls=(
      '<|pad|>',
      '<|end|>',
      '<|system|>',
      '<|user|>',
      '<|assistant|>',
      '<tool_response>',
      '</tool_response>',
    ),
    tags=('<tool_call>', '</tool_call>'),
    end='<|end|>',
    stop=('<|end|>',),
    headers={
      'system': '<|system|>',
      'user': '<|user|>',
      'assistant': '<|assistant|>',
    },
    footers={'system': '', 'user': ''},
    tool=('<tool_response>', '</tool_response>'),
    arguments='args',
    json_separators=(',', ':'),
  ),
  # Qwen2.5, and Qwen3 without thinking.
  'chatml': Style(
    name='chatml',
    controls=('<|endoftext|>', '<|im_start|>', '<|im_end|>'),
    tags=('<tool_call>', '</tool_call>'),
    end='<|im_end|>',
    stop=('<|im_end|>', '<|endoftext|>'),
    headers={
      'system': '<|im_start|>system\n',
      'user': '<|im_start|>user\n',
      'assistant': '<|im_start|>assistant\n',
    },
    footers={'system': '<|im_end|>\n', 'user': '<|im_end|>\n'},
    tool=('\n<tool_response>\n', '\n</tool_response>'),
    tools=('<|im_start|>user', '<|im_end|>\n'),
    after_end='\n',
    schemas=_HERMES_TOOLS,
    default_system=(
      'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.'
    ),
    call=('<tool_call>\n', '\n</tool_call>'),
    call_separator='\n',
  ),
}


# 'tiny' for policies that think before they act.
STYLES['tiny_think'] = dataclasses.replace(
  STYLES['tiny'],
  name='tiny_think',
  tags=(*STYLES['tiny'].tags, '<think>', '</think>'),
)


def style(name: str | Style) -> Style:
  """Returns the style of that name; a `Style` is returned as it is.

  Raises:
    ValueError: no such style; lists the known ones and the nearest.
  """
  if isinstance(name, Style):
    return name
  if name not in STYLES:
    near = difflib.get_close_matches(str(name), STYLES, n=1)
    hint = f'; did you mean {near[0]!r}?' if near else ''
    raise ValueError(f'style {name!r} is not one of {sorted(STYLES)}{hint}')
  return STYLES[name]
