"""What do the styles look like to other software? Jinja, one text a style.

Exported beside the tokenizer and read by `transformers`, vLLM and others; this
codebase renders with `templates`, and a test holds the two together.
"""

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

_CHATML = """
{%- set has_system = messages[0].role == 'system' -%}
{{- '<|im_start|>system\\n' -}}
{{- messages[0].content if has_system else 'You are Qwen, created by Alibaba'
    ~ ' Cloud. You are a helpful assistant.' -}}
{%- if tools -%}
{{- '\\n\\n# Tools\\n\\nYou may call one or more functions to assist with the'
    ~ ' user query.\\n\\nYou are provided with function signatures within'
    ~ ' <tools></tools> XML tags:\\n<tools>' -}}
{%- for tool in tools -%}{{- '\\n' ~ (tool | tojson) -}}{%- endfor -%}
{{- '\\n</tools>\\n\\nFor each function call, return a json object with'
    ~ ' function name and arguments within <tool_call></tool_call> XML tags:'
    ~ '\\n<tool_call>\\n{"name": <function-name>, "arguments":'
    ~ ' <args-json-object>}\\n</tool_call>' -}}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{%- if loop.first or loop.previtem.role != 'tool' -%}
{{- '<|im_start|>user' -}}
{%- endif -%}
{{- '\\n<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' -}}
{%- if loop.last or loop.nextitem.role != 'tool' -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- elif not (loop.first and has_system) -%}
{{- '<|im_start|>' ~ message.role ~ '\\n' ~ (message.content or '') -}}
{%- for call in message.tool_calls or [] -%}
{%- if message.content or not loop.first -%}{{- '\\n' -}}{%- endif -%}
{%- set call = call.function or call -%}
{{- '<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' -}}
{{- call.arguments | tojson -}}
{{- '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

TEMPLATES = {
  'tiny': _TINY.strip(),
  'tiny_think': _TINY.strip(),
  'chatml': _CHATML.strip(),
}
