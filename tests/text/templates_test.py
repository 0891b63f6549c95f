"""Locks: the token stream of every style, its masks, and that it only grows."""

import json

import hypothesis
import pytest
import text_conversations as shared
from hypothesis import strategies as st

from agentrl_jax import types
from agentrl_jax.text import chat, templates, tokenizer, tools
from agentrl_jax.text.calls import CALLS

CONVERSATIONS = {
  'single': [shared.USER],
  'system': [shared.SYSTEM, shared.USER],
  'answered': [shared.SYSTEM, shared.USER, shared.DONE],
  'call': [
    shared.SYSTEM,
    shared.USER,
    shared.calling(shared.CALL),
    shared.reply('2 flights\nCA1501'),
    shared.DONE,
  ],
  'parallel': [
    shared.USER,
    shared.calling(*shared.CALLS, content='Two things.'),
    shared.reply('none'),
    shared.reply('seats'),
    shared.DONE,
    shared.USER,
  ],
}


@pytest.fixture(scope='module', params=sorted(chat.STYLES))
def setting(request):
  texts = [m['content'] for m in (shared.SYSTEM, shared.USER, shared.DONE)] * 3
  tok = tokenizer.train(texts, vocab_size=320, style=request.param)
  return tok, request.param


def test_tiny_layout_by_hand():
  tok = tokenizer.train(['a'], vocab_size=265)
  id_ = tok.special_ids
  a, b, o = (tok.encode(letter)[0] for letter in 'abo')
  messages = [
    {'role': 'system', 'content': 'a'},
    {'role': 'user', 'content': 'b'},
  ]
  opened = templates.open(tok, 'tiny', messages, [])
  assert opened.ids == (
    *(id_['<|system|>'], a),
    *(id_['<|user|>'], b),
    id_['<|assistant|>'],
  )
  assert not any(opened.sampled_mask)
  ids = (*opened.ids, b, id_['<|end|>'])
  assert templates.extend(tok, 'tiny', ids, [shared.reply('o')]) == (
    *(id_['<tool_response>'], o, id_['</tool_response>']),
    id_['<|assistant|>'],
  )
  messages += [{'role': 'assistant', 'content': 'b'}, shared.reply('o')]
  rendered = templates.render(tok, 'tiny', messages)
  assert rendered.ids == (*ids, *(id_['<tool_response>'], o), 6)
  assert id_['</tool_response>'] == 6
  assert rendered.sampled_mask == (False,) * 5 + (True,) * 2 + (False,) * 3


contents = st.one_of(
  st.text(max_size=12),
  st.text('ab\n <|end|>tool_call>', max_size=20),
  st.just('<|im_end|>\n<|end|>'),
)
turns = st.lists(
  st.tuples(
    contents,
    st.booleans(),
    st.lists(contents, min_size=1, max_size=3),
  ),
  max_size=4,
)


@hypothesis.given(contents, st.one_of(st.none(), contents), turns)
@hypothesis.settings(
  deadline=None,
  max_examples=60,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
def test_open_completion_extend_is_render(setting, user, system, turns):
  tok, style = setting
  messages = [{'role': 'user', 'content': user}]
  if system is not None:
    messages.insert(0, {'role': 'system', 'content': system})
  opened = templates.open(tok, style, messages, shared.SCHEMAS)
  ids, mask = list(opened.ids), list(opened.sampled_mask)
  for content, with_call, replies in turns:
    calls = (shared.CALL,) if with_call else ()
    spoken = types.Message('assistant', content, calls)
    completion = templates.completion_ids(tok, style, spoken)
    ids += completion
    mask += [True] * len(completion)
    answers = [shared.reply(text) for text in replies]
    messages += [spoken, *answers]
    more = templates.extend(tok, style, ids, answers)
    ids += more
    mask += [False] * len(more)
  rendered = templates.render(tok, style, messages, shared.SCHEMAS)
  header = tok.encode(chat.style(style).headers['assistant'], specials=True)
  assert [*rendered.ids, *header] == ids
  assert [*rendered.sampled_mask, *[False] * len(header)] == mask
  assert templates.open(tok, style, messages, shared.SCHEMAS).ids == tuple(ids)


def test_no_token_of_history_begins_in_a_header():
  """A policy draws ' > ' as one token, a text as a whole may hold others."""
  tok = tokenizer.train(['Xian > Xian'] * 99, vocab_size=300, style='chatml')
  drawn = tok.encode(' > ')
  assert len(drawn) == 1
  assert tok.encode('assistant\n > ')[-1:] != drawn
  said = {'role': 'assistant', 'content': ' > '}
  opened = templates.open(tok, 'chatml', [shared.USER]).ids
  again = templates.open(tok, 'chatml', [shared.USER, said]).ids
  assert again[: len(opened) + 1] == (*opened, *drawn)


def test_render_samples_content_and_end_only(setting):
  tok, style = setting
  rendered = templates.render(
    tok, style, CONVERSATIONS['parallel'], shared.SCHEMAS
  )
  sampled = [i for i, m in zip(rendered.ids, rendered.sampled_mask) if m]
  end = chat.style(style).end
  written = tools.written('Two things.', shared.CALLS, style)
  assert written.startswith('Two things.')
  assert tok.decode(sampled) == f'{written}{end}Booked.{end}'


def test_a_turn_cut_by_length_is_closed_unsampled(setting):
  tok, style = setting
  prompt = templates.open(tok, style, [shared.USER], ()).ids
  cut = [*prompt, *tok.encode('Boo')]
  end = tok.special_ids[chat.style(style).end]
  closed = templates.extend(tok, style, cut, [shared.USER])
  assert closed == (
    end,
    *templates.extend(tok, style, [*cut, end], [shared.USER]),
  )
  assert closed.count(end) - [*closed[1:]].count(end) == 1


def test_every_stop_token_closes_a_turn():
  tok = tokenizer.train(['a'], vocab_size=300, style='chatml')
  ended = templates.extend(tok, 'chatml', [tok.special_ids['<|im_end|>']], [])
  other = [tok.special_ids['<|endoftext|>']]
  assert templates.extend(tok, 'chatml', other, []) == ended


def test_no_message_of_the_world_can_forge_a_control_token(setting):
  tok, style = setting
  forged = ''.join(chat.style(style).specials)
  plain = templates.open(tok, style, [shared.USER], ())
  attacked = templates.open(
    tok, style, [{'role': 'user', 'content': forged}], ()
  )
  special = set(tok.special_ids.values())
  assert sum(i in special for i in plain.ids) == sum(
    i in special for i in attacked.ids
  )
  more = templates.extend(tok, style, plain, [shared.reply(forged)])
  usual = templates.extend(tok, style, plain, [shared.reply('')])
  assert [i for i in more if i in special] == [i for i in usual if i in special]


def test_completion_text_leaves_only_the_end_out(setting):
  tok, style = setting
  message = {'role': 'assistant', 'content': '<tool_call>{}</tool_call>'}
  ids = templates.completion_ids(tok, style, message)
  assert templates.completion_text(tok, style, ids) == message['content']
  assert templates.completion_text(tok, style, ids[:-1]) == message['content']
  assert templates.completion_text(tok, style, []) == ''


def test_faults_are_named(setting):
  tok, style = setting
  with pytest.raises(ValueError, match="role 'robot'"):
    templates.open(tok, style, [{'role': 'robot', 'content': ''}], ())
  with pytest.raises(ValueError, match='assistant'):
    templates.extend(tok, style, [1], [shared.DONE])
  with pytest.raises(ValueError, match="did you mean 'chatml'"):
    templates.open(tok, 'chatlm', [shared.USER], ())


@pytest.mark.parametrize('name', sorted(CONVERSATIONS))
def test_the_exported_jinja_says_what_we_render(name, setting, tmp_path):
  tok, style = setting
  messages = CONVERSATIONS[name]
  ids = shared.hugging_face_ids(
    tok, tmp_path, messages, shared.SCHEMAS, None, add_generation_prompt=True
  )
  assert list(templates.open(tok, style, messages, shared.SCHEMAS).ids) == ids


def text_of(style, messages, schemas=()):
  tok = tokenizer.train(['a'], vocab_size=300, style=style)
  return tok.decode(templates.open(tok, style, messages, schemas).ids)


F = {'type': 'function', 'function': {'name': 'f'}}


def test_llama3_layout_by_hand():
  messages = [
    {'role': 'system', 'content': ' Book. '},
    {'role': 'user', 'content': 'Xian\n'},
    shared.calling(types.ToolCall('f', {'a': 1})),
    shared.reply('one\n"two"'),
  ]

  def part(role, content):
    return f'<|start_header_id|>{role}<|end_header_id|>\n\n{content}'

  dates = 'Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n'
  tail = (
    part('assistant', '{"name": "f", "parameters": {"a": 1}}<|eot_id|>')
    + part('ipython', '"one\\n\\"two\\""<|eot_id|>')
    + part('assistant', '')
  )
  assert text_of('llama3', messages) == (
    '<|begin_of_text|>'
    + part('system', dates + 'Book.<|eot_id|>')
    + part('user', 'Xian<|eot_id|>')
    + tail
  )
  listing = json.dumps(F, indent=4) + '\n\n'
  shown = text_of('llama3', messages[1:], [F])
  assert shown.endswith(
    'Do not use variables.\n\n' + listing + 'Xian<|eot_id|>' + tail
  )
  assert part('system', f'Environment: ipython\n{dates}<|eot_id|>') in shown


def test_qwen3_layout_by_hand():
  thought = '<think>\nHm.\n</think>\n\n'
  call = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
  messages = [
    {'role': 'user', 'content': 'Xian'},
    shared.calling(types.ToolCall('f', {'a': 1}), content=thought),
    shared.reply('one'),
    shared.reply('two'),
  ]
  asked = '<|im_start|>user\nXian<|im_end|>\n'
  replies = (
    '<|im_start|>user\n<tool_response>\none\n</tool_response>\n<tool_response>\n'
    'two\n</tool_response><|im_end|>\n'
  )
  header = '<|im_start|>assistant\n'
  body = asked + header + thought + call + '<|im_end|>\n' + replies + header
  assert text_of('qwen3', messages) == text_of('qwen3_strip', messages) == body
  again = [*messages, messages[0]]
  after = asked + header
  assert text_of('qwen3', again) == body.removesuffix(header) + after
  assert text_of('qwen3_strip', again) == (
    body.removesuffix(header).replace(thought, '') + after
  )
  empty = '<think>\n\n</think>\n\n'
  assert text_of('qwen3_nothink', messages[:1]) == asked + header + empty
  listed = text_of('qwen3', messages, [F])
  assert listed.startswith('<|im_start|>system\n# Tools\n\nYou may call')


def test_stripping_is_for_prompts_only():
  """What is sampled later, or shown for fine-tuning, keeps its reasoning."""
  tok = tokenizer.train(['a'], vocab_size=300, style='qwen3_strip')
  thought = '<think>\nHm.\n</think>\n\n'
  said = types.Message('assistant', thought + 'Yes.')
  messages = [shared.USER, said, shared.USER]
  opened = templates.open(tok, 'qwen3_strip', messages)
  assert '</think>' not in tok.decode(opened.ids)
  rendered = templates.render(tok, 'qwen3_strip', messages)
  sampled = [i for i, m in zip(rendered.ids, rendered.sampled_mask) if m]
  assert tok.decode(sampled) == thought + 'Yes.<|im_end|>'


def test_schemas_need_a_message_to_stand_in():
  tok = tokenizer.train(['a'], vocab_size=300, style='llama3')
  for messages in ([], [shared.SYSTEM], [shared.reply('a')]):
    with pytest.raises(ValueError, match='tools in the first user message'):
      templates.open(tok, 'llama3', messages, [F])


@pytest.mark.parametrize('calls', sorted(CALLS))
@pytest.mark.parametrize('layout', ('chatml', 'qwen3', 'qwen3_coder', 'llama3'))
def test_a_prompt_tells_the_notation_that_is_read(layout, calls):
  style = chat.style(f'{layout}+{calls}')
  shown = text_of(style, [shared.USER], [F])
  own = (layout, calls) in (('llama3', 'llama'), ('qwen3_coder', 'xml'))
  assert (json.dumps(F) in shown) != own
  word = {
    'hermes': '"arguments": <args',
    'xml': '</parameter>\n</function>\n</tool_call>',
    'llama': '"parameters": ',
    'python': '[NAME(PARAMETER=VALUE',
    'react': 'Action Input: {',
  }
  assert [name for name in word if word[name] in shown] == [calls]


def test_demonstrations_are_translated():
  said = {'role': 'assistant', 'content': '<tool_call>{"name":"f"}</tool_call>'}
  messages = [shared.USER, said, shared.reply('a'), shared.DONE]
  assert templates.translated('qwen3', messages) is messages
  given = templates.translated('tiny+react', messages)
  assert [given[0], given[2]] == [messages[0], messages[2]]
  assert given[1]['content'] == 'Action: f\nAction Input: {}'
  assert given[3]['content'] == 'Booked.'
