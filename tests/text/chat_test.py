"""Locks: styles are consistent data, and '+CALLS' changes the calls alone."""

import dataclasses
import re

import pytest

from agentrl_jax.text import chat, listing, templates, tokenizer
from agentrl_jax.text.calls import CALLS

USER = {'role': 'user', 'content': 'Xian'}
F = {'type': 'function', 'function': {'name': 'f'}}
NAMES = sorted(chat.STYLES)


def text_of(style, messages, schemas=()):
  tok = tokenizer.train(['a'], vocab_size=300, style=style)
  return tok.decode(templates.open(tok, style, messages, schemas).ids)


@pytest.mark.parametrize('name', NAMES)
def test_a_style_is_consistent(name):
  style = chat.style(name)
  assert style.name == name
  assert style.end in style.stop and set(style.stop) <= set(style.controls)
  # The end closes a message and is no padding, or padding would end one.
  assert style.end != style.controls[0]
  assert not set(style.controls) & set(style.tags)
  assert len(set(style.specials)) == len(style.specials)
  assert style.calls in CALLS and style.listing in listing.LISTINGS
  assert not style.strips or style.think


@pytest.mark.parametrize('name', NAMES)
def test_literals_name_no_unknown_control(name):
  style = chat.style(name)
  literals = [
    *(style.begin, style.after_end, *style.tool, *style.tools),
    *style.headers.values(),
    *style.footers.values(),
  ]
  written = set(re.findall(r'<\|\w+\|>', ''.join(literals)))
  assert written and written <= set(style.controls)


@pytest.mark.parametrize('layout', NAMES)
@pytest.mark.parametrize('calls', sorted(CALLS))
def test_another_notation_keeps_the_layout(layout, calls):
  base, style = chat.style(layout), chat.style(f'{layout}+{calls}')
  if base.calls == calls:
    assert style is base
    return
  assert style.name == f'{layout}+{calls}' and style.calls == calls
  kept = dataclasses.replace(
    style,
    **{
      field: getattr(base, field)
      for field in (
        *('name', 'calls', 'schemas', 'schemas_role'),
        *('listing', 'schema', 'schema_indent'),
      )
    },
  )
  assert dataclasses.asdict(kept) == dataclasses.asdict(base)
  assert (style.schemas is None) == (base.schemas is None)
  assert style is chat.style(f'{layout}+{calls}')  # the same every time


def test_a_style_of_ones_own_is_taken():
  own = dataclasses.replace(chat.style('tiny'), name='own', after_end='!')
  assert chat.style(own) is own


@pytest.mark.parametrize(
  'name, words',
  [
    ('qwen3_codr', "style 'qwen3_codr' .* did you mean 'qwen3_coder'"),
    ('qwen3_coder+xmll', "notation of calls 'xmll' .* did you mean 'xml'"),
    ('qwen3_coder+', "notation of calls ''"),
    ('+xml', "style ''"),
    (None, "style 'None'"),
  ],
)
def test_unknown_names(name, words):
  with pytest.raises(ValueError, match=words):
    chat.style(name)


def test_qwen3_coder_introduces_itself_with_tools_alone():
  asked = '<|im_start|>user\nXian<|im_end|>\n<|im_start|>assistant\n'
  assert text_of('qwen3_coder', [USER]) == asked
  shown = text_of('qwen3_coder', [USER], [F])
  assert shown.startswith('<|im_start|>system\nYou are Qwen, a helpful AI')
  assert shown.endswith(asked)
  named = [{'role': 'system', 'content': 'Book.'}, USER]
  shown = text_of('qwen3_coder', named, [F])
  assert shown.startswith('<|im_start|>system\nBook.\n\n# Tools\n\nYou have')


def test_qwen3_coder_with_other_calls_lists_json():
  shown = text_of('qwen3_coder+hermes', [USER], [F])
  assert '\n{"type": "function", "function": {"name": "f"}}\n' in shown
  assert '<function' not in shown.replace('<function-name>', '')
