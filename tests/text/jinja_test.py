"""Locks: what the exported templates do by themselves; `templates_test` and
`published_test` hold them to our renderer and to others' templates."""

import functools
import json

import pytest

from agentrl_jax.text import chat, jinja, templates, tokenizer

sandbox = pytest.importorskip('jinja2.sandbox')

USER = {'role': 'user', 'content': 'Xian'}
NAMES = sorted(jinja.TEMPLATES)


@functools.cache
def compiled(name):
  # As `transformers` makes it.
  environment = sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True
  )
  environment.filters['tojson'] = functools.partial(
    json.dumps, ensure_ascii=False
  )
  return environment.from_string(jinja.TEMPLATES[name])


def rendered(name, messages, **kwargs):
  return compiled(name).render(messages=messages, **kwargs)


def said(content, *calls):
  calls = [{'function': {'name': n, 'arguments': a}} for n, a in calls]
  return {'role': 'assistant', 'content': content, 'tool_calls': calls}


def test_every_style_has_one():
  assert jinja.TEMPLATES.keys() == chat.STYLES.keys()
  # One of another notation would say what the style does not: none is given.
  tok = tokenizer.train(['a'], vocab_size=300, style='qwen3+xml')
  assert tok.chat_template == '' and 'chat_template.jinja' not in tok.files()


@pytest.mark.parametrize('name', NAMES)
def test_the_header_is_written_where_it_is_asked_for(name):
  header = chat.style(name).headers['assistant']
  bare = rendered(name, [USER])
  assert rendered(name, [USER], add_generation_prompt=True) == bare + header
  assert not bare.endswith(header) and bare.count('Xian') == 1


@pytest.mark.parametrize('name', NAMES)
def test_a_demonstration_is_that_of_render(name):
  tok = tokenizer.train(['a'], vocab_size=300, style=name)
  messages = [
    USER,
    said('', ('f', {'a': [1, 'é']})),
    {'role': 'tool', 'content': 'one'},
    {'role': 'assistant', 'content': 'Done.'},
  ]
  ours = tok.decode(templates.render(tok, name, messages).ids)
  theirs = rendered(name, messages)
  # What parts an ended message from the next is written with the next.
  assert theirs == ours + chat.style(name).after_end


@pytest.mark.parametrize('name', NAMES)
def test_calls_stand_flat_or_under_function(name):
  call = {'name': 'f', 'arguments': {'a': 1}}
  turns = [
    [USER, {'role': 'assistant', 'content': '', 'tool_calls': [form]}]
    for form in (call, {'type': 'function', 'function': call})
  ]
  assert rendered(name, turns[0]) == rendered(name, turns[1])


@pytest.mark.parametrize('name', NAMES)
def test_no_content_beside_calls_is_none(name):
  if name.startswith('tiny'):
    return  # written by us alone, always with a content
  call = ('f', {'a': 1})
  assert rendered(name, [USER, said(None, call)]) == rendered(
    name, [USER, said('', call)]
  )


def test_traces_before_the_last_question_are_left_out_by_one_style():
  thought = '<think>\nHm.\n</think>\n\nYes.'
  messages = [USER, said(thought), USER, said(thought)]
  assert rendered('qwen3', messages).count('Hm.') == 2
  assert rendered('qwen3_strip', messages).count('Hm.') == 1
  assert rendered('qwen3_strip', messages).endswith(f'{thought}<|im_end|>\n')


def test_terse_shows_no_tools():
  tools = [{'type': 'function', 'function': {'name': 'f'}}]
  assert 'signatures' in rendered('smollm2', [USER], tools=tools)
  assert rendered('smollm2_terse', [USER], tools=tools) == (
    rendered('smollm2_terse', [USER])
  )
