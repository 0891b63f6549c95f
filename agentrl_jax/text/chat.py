"""How does each model family lay out a conversation? One table entry a style.

A style is data: literals around the messages and the name of a notation of
calls. What may be sampled and what a template adds is decided once, in
`templates`.
"""

import dataclasses
import difflib
import functools
from collections.abc import Mapping

# What a system prompt says of each notation, after the schemas.
_INSTRUCTIONS = {
  'hermes': (
    'For each function call, return a json object with function name and'
    ' arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n'
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
  ),
  'xml': (
    'Write each call as\n<tool_call>\n<function=NAME>\n<parameter=PARAMETER>\n'
    'VALUE\n</parameter>\n</function>\n</tool_call>\nand nothing after the last'
    ' one.'
  ),
  'llama': (
    'To call functions, write {"name": NAME, "parameters": {...}} and nothing'
    ' after it; several are parted by "; ".'
  ),
  'python': (
    'To call functions, write [NAME(PARAMETER=VALUE, ...), ...] with literal'
    ' values and nothing after it.'
  ),
  'react': (
    'To call a function, write a line "Action: NAME" and below it "Action'
    ' Input: {...}", its arguments as a json object.'
  ),
}

_TOOLS = (
  '\n\n# Tools\n\nYou may call one or more functions to assist with the user'
  ' query.\n\nYou are provided with function signatures within <tools></tools>'
  ' XML tags:\n<tools>'
)
_TOOLS_END = '\n</tools>\n\n'
# The words that Qwen3-Coder was trained on.
_CODER_TOOLS = (
  '\n\n# Tools\n\nYou have access to the following functions:\n\n<tools>'
)
_CODER_INSTRUCTIONS = (
  'If you choose to call a function ONLY reply in the following format with NO'
  ' suffix:\n\n<tool_call>\n<function=example_function_name>\n'
  '<parameter=example_parameter_1>\nvalue_1\n</parameter>\n'
  '<parameter=example_parameter_2>\nThis is the value for the second parameter'
  '\nthat can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n'
  '<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format:'
  ' an inner <function=...></function> block must be nested within'
  ' <tool_call></tool_call> XML tags\n- Required parameters MUST be specified\n'
  '- You may provide optional reasoning for your function call in natural'
  ' language BEFORE the function call, but NOT after\n- If there is no function'
  ' call available, answer the question like normal with your current knowledge'
  ' and do not tell the user about function calls\n</IMPORTANT>'
)
_LLAMA_TOOLS = (
  'Given the following functions, please respond with a JSON for a function'
  ' call with its proper arguments that best answers the given prompt.\n\n'
  'Respond in the format {"name": function name, "parameters": dictionary of'
  ' argument name and its value}.Do not use variables.\n\n'
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
    begin: literal before everything.
    after_end: literal between an ended assistant message and what follows.
    headers: role -> literal before the content (system, user, assistant).
    footers: role -> literal after the content (system, user).
    trim: whether contents lose the white space around them.
    tool: literals around one tool reply.
    tools: literals around a run of consecutive tool replies.
    json_replies: whether a tool reply is shown as a JSON string.
    schemas: literals before and after the tool schemas, None = schemas are not
      shown.
    schemas_role: 'system' = at the end of the system message, 'user' = at the
      head of the first user message.
    listing: how a schema is written, a key in `listing.LISTINGS`.
    schema: literals around one schema.
    schema_indent: spaces of an indented JSON schema, None = one line.
    default_system: system message if the conversation has none, None = none.
    tools_system: the same where schemas are shown, None = `default_system`.
    preambles: literals before every system message, and before that one more
      where schemas are shown.
    think: literals around a reasoning, None = the style knows none.
    strips: whether `open` leaves out the reasoning of turns before the last
      user message.
    calls: notation of calls, a key in `calls.CALLS`.
    call: literals around one call, for notations with tags.
    call_separator: literal between prose and calls and between calls.
    prose_separator: literal between prose, without the white space around it,
      and calls; None = `call_separator`, and the prose as it is.
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
  json_replies: bool = False
  begin: str = ''
  after_end: str = ''
  trim: bool = False
  schemas: tuple[str, str] | None = None
  schemas_role: str = 'system'
  listing: str = 'json'
  schema: tuple[str, str] = ('\n', '')
  schema_indent: int | None = None
  default_system: str | None = None
  tools_system: str | None = None
  preambles: tuple[str, str] = ('', '')
  think: tuple[str, str] | None = None
  strips: bool = False
  calls: str = 'hermes'
  call: tuple[str, str] = ('<tool_call>', '</tool_call>')
  call_separator: str = ''
  prose_separator: str | None = None
  arguments: str = 'arguments'
  json_separators: tuple[str, str] = (', ', ': ')

  @property
  def specials(self) -> tuple[str, ...]:
    return self.controls + self.tags


# For policies trained from scratch: one token a header, nothing to spare.
_TINY = Style(
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
)

_CHATML = Style(
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
  schemas=(_TOOLS, _TOOLS_END + _INSTRUCTIONS['hermes']),
  default_system=(
    'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.'
  ),
  call=('<tool_call>\n', '\n</tool_call>'),
  call_separator='\n',
)

_QWEN3 = dataclasses.replace(
  _CHATML,
  name='qwen3',
  controls=(*_CHATML.controls, '<tool_response>', '</tool_response>'),
  tags=(*_CHATML.tags, '<think>', '</think>'),
  default_system=None,
  think=('<think>\n', '\n</think>\n\n'),
)

_QWEN3_CODER = dataclasses.replace(
  _CHATML,
  name='qwen3_coder',
  controls=_QWEN3.controls,
  tool=('<tool_response>\n', '\n</tool_response>\n'),
  tools=('<|im_start|>user\n', '<|im_end|>\n'),
  schemas=(_CODER_TOOLS, _TOOLS_END + _CODER_INSTRUCTIONS),
  listing='tags',
  default_system=None,
  tools_system=(
    'You are Qwen, a helpful AI assistant that can interact with a computer to'
    ' solve tasks.'
  ),
  calls='xml',
  prose_separator='\n\n',
)

_LLAMA3 = Style(
  name='llama3',
  controls=(
    '<|finetune_right_pad_id|>',
    '<|begin_of_text|>',
    '<|end_of_text|>',
    '<|start_header_id|>',
    '<|end_header_id|>',
    '<|eom_id|>',
    '<|eot_id|>',
  ),
  tags=('<|python_tag|>',),
  end='<|eot_id|>',
  stop=('<|eot_id|>', '<|eom_id|>', '<|end_of_text|>'),
  begin='<|begin_of_text|>',
  headers={
    role: f'<|start_header_id|>{role}<|end_header_id|>\n\n'
    for role in ('system', 'user', 'assistant')
  },
  footers={'system': '<|eot_id|>', 'user': '<|eot_id|>'},
  trim=True,
  tool=('<|start_header_id|>ipython<|end_header_id|>\n\n', '<|eot_id|>'),
  json_replies=True,
  schemas=(_LLAMA_TOOLS, ''),
  schemas_role='user',
  schema=('', '\n\n'),
  schema_indent=4,
  default_system='',
  # The date is that of Llama 3.1's template; 3.2 puts today's there, and a
  # prompt that changes with the day is another task.
  preambles=(
    'Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n',
    'Environment: ipython\n',
  ),
  calls='llama',
)

# Its template shows no schemas; they stand where Qwen2.5 has them.
_SMOLLM2 = dataclasses.replace(
  _CHATML,
  name='smollm2',
  tool=('<|im_start|>tool\n', '<|im_end|>\n'),
  tools=('', ''),
  default_system=(
    'You are a helpful AI assistant named SmolLM, trained by Hugging Face'
  ),
)

STYLES = {
  'tiny': _TINY,
  # 'tiny' for policies that think before they act.
  'tiny_think': dataclasses.replace(
    _TINY,
    name='tiny_think',
    tags=(*_TINY.tags, '<think>', '</think>'),
    think=('<think>', '</think>'),
  ),
  'chatml': _CHATML,  # Qwen2.5
  'qwen3': _QWEN3,  # every reasoning is kept
  # As Qwen3's own template: a user message ends the reasoning before it.
  'qwen3_strip': dataclasses.replace(_QWEN3, name='qwen3_strip', strips=True),
  # Its mode without thinking, with the empty reasoning in every header.
  'qwen3_nothink': dataclasses.replace(
    _QWEN3,
    name='qwen3_nothink',
    headers={
      **_QWEN3.headers,
      'assistant': '<|im_start|>assistant\n<think>\n\n</think>\n\n',
    },
  ),
  'qwen3_coder': _QWEN3_CODER,  # tools and calls in tags, no reasoning
  'llama3': _LLAMA3,  # 3.1 and later
  'smollm2': _SMOLLM2,
  # Without schemas, which are hundreds of tokens: fine-tuning teaches tools.
  'smollm2_terse': dataclasses.replace(
    _SMOLLM2,
    name='smollm2_terse',
    schemas=None,
    default_system=None,
  ),
}


def style(name: str | Style) -> Style:
  """Returns the style of that name; a `Style` is returned as it is.

  Args:
    name: a key of `STYLES`, or 'STYLE+CALLS' for that layout with another
      notation of calls: 'chatml+xml', 'tiny+react'.

  Raises:
    ValueError: no such style or notation; lists the known ones and the nearest.
  """
  if isinstance(name, Style):
    return name
  if name in STYLES:
    return STYLES[name]
  layout, plus, calls = str(name).partition('+')
  if plus and layout in STYLES and calls in _INSTRUCTIONS:
    return _with_calls(layout, calls)
  what, asked, known = (
    ('notation of calls', calls, _INSTRUCTIONS)
    if plus and layout in STYLES
    else ('style', layout, STYLES)
  )
  near = difflib.get_close_matches(asked, known, n=1)
  hint = f'; did you mean {near[0]!r}?' if near else ''
  raise ValueError(f'{what} {asked!r} is not one of {sorted(known)}{hint}')


@functools.cache
def _with_calls(layout: str, calls: str) -> Style:
  base = STYLES[layout]
  if calls == base.calls:
    return base
  schemas = base.schemas
  if schemas is not None:
    schemas = (_TOOLS, _TOOLS_END + _INSTRUCTIONS[calls])
  return dataclasses.replace(
    base,
    name=f'{layout}+{calls}',
    calls=calls,
    schemas=schemas,
    schemas_role='system',
    listing=Style.listing,
    schema=Style.schema,
    schema_indent=None,
  )
