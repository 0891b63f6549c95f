"""What do the styles look like to other software? Jinja, one text a style.

Exported beside the tokenizer and read by `transformers`, vLLM and others; this
codebase renders with `templates`, and a test holds the two together.
"""

from agentrl_jax.text import chat

_TINY = """
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{{- '<tool_response>' + message.content + '</tool_response>' -}}
{%- elif message.role == 'assistant' -%}
{{- '<|assistant|>' + message.content -}}
{%- for call in message.tool_calls or [] -%}
{%- set call = call.function or call -%}
{{- '<tool_call>{"name":' + (call.name | tojson) + ',"args":' -}}
{{- call.arguments | tojson(separators=(',', ':')) -}}
{{- '}</tool_call>' -}}
{%- endfor -%}
{{- '<|end|>' -}}
{%- else -%}
{{- '<|' + message.role + '|>' + message.content -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
"""

# Parts of the ChatML family.
_HERMES_TOOLS = """
{%- if tools -%}
{{- '\\n\\n' if begun -}}
{{- '# Tools\\n\\nYou may call one or more functions to assist with the'
    ~ ' user query.\\n\\nYou are provided with function signatures within'
    ~ ' <tools></tools> XML tags:\\n<tools>' -}}
{%- for tool in tools -%}{{- '\\n' ~ (tool | tojson) -}}{%- endfor -%}
{{- '\\n</tools>\\n\\nFor each function call, return a json object with'
    ~ ' function name and arguments within <tool_call></tool_call> XML tags:'
    ~ '\\n<tool_call>\\n{"name": <function-name>, "arguments":'
    ~ ' <args-json-object>}\\n</tool_call>' -}}
{%- endif -%}
"""
_HERMES_CALLS = """
{%- for call in message.tool_calls or [] -%}
{%- if not loop.first or
    (content and not content.endswith('</think>\\n\\n')) -%}
{{- '\\n' -}}
{%- endif -%}
{%- set call = call.function or call -%}
{{- '<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' -}}
{{- call.arguments | tojson -}}
{{- '}\\n</tool_call>' -}}
{%- endfor -%}
"""
_REPLIES = """
{%- if loop.first or loop.previtem.role != 'tool' -%}
{{- '<|im_start|>user' -}}
{%- endif -%}
{{- '\\n<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' -}}
{%- if loop.last or loop.nextitem.role != 'tool' -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
"""
# Qwen3-Coder: what has no tag of its own stands under its key.
_TAG_TOOLS = """
{%- macro others(fields, known) -%}
{%- if fields is mapping -%}
{%- for key, value in fields | items if key not in known -%}
{{- '\\n<' ~ key ~ '>' -}}
{{- value | tojson if value is iterable and value is not string else value -}}
{{- '</' ~ key ~ '>' -}}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- macro about(fields) -%}
{%- if fields.description is defined -%}
{{- '\\n<description>' ~ fields.description | trim ~ '</description>' -}}
{%- endif -%}
{%- endmacro -%}
{%- if tools -%}
{{- 'BEFORE' -}}
{%- for tool in tools -%}
{%- set tool = tool.function or tool -%}
{{- '\\n<function>\\n<name>' ~ tool.name ~ '</name>' ~ about(tool) -}}
{{- '\\n<parameters>' -}}
{%- for name, fields in (tool.parameters or {}).properties | items -%}
{{- '\\n<parameter>\\n<name>' ~ name ~ '</name>' -}}
{{- '\\n<type>' ~ fields.type ~ '</type>' if fields.type is defined -}}
{{- about(fields) ~ others(fields, ['name', 'type', 'description']) -}}
{{- '\\n</parameter>' -}}
{%- endfor -%}
{{- others(tool.parameters, ['type', 'properties']) ~ '\\n</parameters>' -}}
{{- others(tool, ['type', 'name', 'description', 'parameters']) -}}
{{- '\\n</function>' -}}
{%- endfor -%}
{{- 'AFTER' -}}
{%- endif -%}
"""
_TAG_CALLS = """
{%- for call in message.tool_calls or [] -%}
{{- '\\n' if not loop.first else '\\n\\n' if content -}}
{%- set call = call.function or call -%}
{{- '<tool_call>\\n<function=' ~ call.name ~ '>\\n' -}}
{%- for name, value in call.arguments | items -%}
{{- '<parameter=' ~ name ~ '>\\n' -}}
{{- value | tojson if value is iterable and value is not string else value -}}
{{- '\\n</parameter>\\n' -}}
{%- endfor -%}
{{- '</function>\\n</tool_call>' -}}
{%- endfor -%}
"""
_TAG_REPLIES = """
{%- if loop.first or loop.previtem.role != 'tool' -%}
{{- '<|im_start|>user\\n' -}}
{%- endif -%}
{{- '<tool_response>\\n' ~ message.content ~ '\\n</tool_response>\\n' -}}
{%- if loop.last or loop.nextitem.role != 'tool' -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
"""
_ROLE_REPLY = """
{{- '<|im_start|>tool\\n' ~ message.content ~ '<|im_end|>\\n' -}}
"""


def _chatml(
  default: str | None,
  replies: str,
  *,
  begun: str = 'true',
  tools: str = _HERMES_TOOLS,
  calls: str = _HERMES_CALLS,
) -> str:
  """ChatML, by default with Hermes calls.

  The rest is set by what a caller puts in front: `strips` leaves the reasoning
  before the last user message out, `thought` opens every assistant message,
  `trims` takes the white space from prose beside calls.
  """
  begun = 'named' if default is None else begun
  return (
    "{%- set named = messages[0].role == 'system' -%}"
    f'{{%- set begun = {begun} -%}}'
    '{%- if begun or tools -%}'
    "{{- '<|im_start|>system\\n' -}}"
    f"{{{{- messages[0].content if named else '{default or ''}' -}}}}"
    f'{tools.strip()}'
    "{{- '<|im_end|>\\n' -}}"
    '{%- endif -%}'
    '{%- set last = namespace(query=messages | length - 1) -%}'
    '{%- for message in messages if strips -%}'
    "{%- if message.role == 'user' -%}"
    '{%- set last.query = loop.index0 -%}'
    '{%- endif -%}{%- endfor -%}'
    '{%- for message in messages -%}'
    "{%- set content = message.content or '' -%}"
    "{%- if message.role == 'tool' -%}"
    f'{replies.strip()}'
    "{%- elif message.role == 'assistant' -%}"
    "{%- if strips and loop.index0 <= last.query and '</think>' in content -%}"
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') -%}"
    '{%- endif -%}'
    '{%- if trims and message.tool_calls -%}'
    '{%- set content = content | trim -%}'
    '{%- endif -%}'
    "{{- '<|im_start|>assistant\\n' ~ (thought or '') ~ content -}}"
    f'{calls.strip()}'
    "{{- '<|im_end|>\\n' -}}"
    '{%- elif not (loop.first and named) -%}'
    "{{- '<|im_start|>' ~ message.role ~ '\\n' ~ content ~ '<|im_end|>\\n' -}}"
    '{%- endif -%}'
    '{%- endfor -%}'
    '{%- if add_generation_prompt -%}'
    "{{- '<|im_start|>assistant\\n' ~ (thought or '') -}}"
    '{%- endif -%}'
  )


_LLAMA3 = """
{%- set named = messages[0].role == 'system' -%}
{{- '<|begin_of_text|><|start_header_id|>system<|end_header_id|>\\n\\n' -}}
{{- 'Environment: ipython\\n' if tools -}}
{{- 'Cutting Knowledge Date: December 2023\\nToday Date: 26 Jul 2024\\n\\n' -}}
{{- messages[0].content | trim if named -}}
{{- '<|eot_id|>' -}}
{%- set shown = namespace(tools=tools or []) -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' -}}
{{- message.content | tojson ~ '<|eot_id|>' -}}
{%- elif not (loop.first and named) -%}
{{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' -}}
{%- if shown.tools and message.role == 'user' -%}
{{- 'Given the following functions, please respond with a JSON for a'
    ~ ' function call with its proper arguments that best answers the given'
    ~ ' prompt.\\n\\nRespond in the format {"name": function name,'
    ~ ' "parameters": dictionary of argument name and its value}.'
    ~ 'Do not use variables.\\n\\n' -}}
{%- for tool in shown.tools -%}
{{- tool | tojson(indent=4) ~ '\\n\\n' -}}
{%- endfor -%}
{%- set shown.tools = [] -%}
{%- endif -%}
{%- set content = (message.content or '') | trim -%}
{{- content -}}
{%- for call in message.tool_calls or [] -%}
{{- '; ' if not loop.first else '\\n' if content -}}
{%- set call = call.function or call -%}
{{- '{"name": "' ~ call.name ~ '", "parameters": ' -}}
{{- call.arguments | tojson ~ '}' -}}
{%- endfor -%}
{{- '<|eot_id|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
{%- endif -%}
"""

_QWEN = 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.'
_SMOLLM = 'You are a helpful AI assistant named SmolLM, trained by Hugging Face'
_QWEN3 = _chatml(None, _REPLIES)


def _coder() -> str:
  style = chat.STYLES['qwen3_coder']
  before, after = (text.replace('\n', '\\n') for text in style.schemas)
  return '{%- set trims = true -%}' + _chatml(
    style.tools_system,
    _TAG_REPLIES,
    begun='named',
    tools=_TAG_TOOLS.replace('BEFORE', before).replace('AFTER', after),
    calls=_TAG_CALLS,
  )


TEMPLATES = {
  'tiny': _TINY.strip(),
  'tiny_think': _TINY.strip(),
  'chatml': _chatml(_QWEN, _REPLIES),
  'qwen3': _QWEN3,
  'qwen3_strip': '{%- set strips = true -%}' + _QWEN3,
  'qwen3_nothink': (
    "{%- set thought = '<think>\\n\\n</think>\\n\\n' -%}" + _QWEN3
  ),
  'qwen3_coder': _coder(),
  'llama3': _LLAMA3.strip(),
  'smollm2': _chatml(_SMOLLM, _ROLE_REPLY),
  'smollm2_terse': '{%- set tools = none -%}' + _chatml(None, _ROLE_REPLY),
}
