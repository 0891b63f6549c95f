"""Locks: the token stream of every style, its masks, and that it only grows."""

import hypothesis
import pytest
from hypothesis import strategies as st

from agentrl_jax import types
from agentrl_jax.text import chat, templates, tokenizer, tools

QWEN = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\nYou are provided with function signatures within <tools></tools> XML tags:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\\n<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\\n</tool_call><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""  # noqa: E501 - the published template of Qwen2.5, as it is

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


CONVERSATIONS = {
  'single': [USER],
  'system': [SYSTEM, USER],
  'answered': [SYSTEM, USER, DONE],
  'call': [SYSTEM, USER, calling(CALL), reply('2 flights\nCA1501'), DONE],
  'parallel': [
    USER,
    calling(*CALLS, content='Two things.'),
    reply('none'),
    reply('seats'),
    DONE,
    USER,
  ],
}


@pytest.fixture(scope='module', params=sorted(chat.STYLES))
def setting(request):
  texts = [m['content'] for m in (SYSTEM, USER, DONE)] * 3
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
  assert templates.extend(tok, 'tiny', ids, [reply('o')]) == (
    *(id_['<tool_response>'], o, id_['</tool_response>']),
    id_['<|assistant|>'],
  )
  messages += [{'role': 'assistant', 'content': 'b'}, reply('o')]
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
  opened = templates.open(tok, style, messages, SCHEMAS)
  ids, mask = list(opened.ids), list(opened.sampled_mask)
  for content, with_call, replies in turns:
    calls = (CALL,) if with_call else ()
    spoken = types.Message('assistant', content, calls)
    completion = templates.completion_ids(tok, style, spoken)
    ids += completion
    mask += [True] * len(completion)
    answers = [reply(text) for text in replies]
    messages += [spoken, *answers]
    more = templates.extend(tok, style, ids, answers)
    ids += more
    mask += [False] * len(more)
  rendered = templates.render(tok, style, messages, SCHEMAS)
  header = tok.encode(chat.style(style).headers['assistant'], specials=True)
  assert [*rendered.ids, *header] == ids
  assert [*rendered.sampled_mask, *[False] * len(header)] == mask
  assert templates.open(tok, style, messages, SCHEMAS).ids == tuple(ids)


def test_render_samples_content_and_end_only(setting):
  tok, style = setting
  rendered = templates.render(tok, style, CONVERSATIONS['parallel'], SCHEMAS)
  sampled = [i for i, m in zip(rendered.ids, rendered.sampled_mask) if m]
  end = chat.style(style).end
  written = chat.style(style).call_separator.join(
    ['Two things.', *(tools.render_call(call, style) for call in CALLS)]
  )
  assert tok.decode(sampled) == f'{written}{end}Booked.{end}'


def test_a_turn_cut_by_length_is_closed_unsampled(setting):
  tok, style = setting
  prompt = templates.open(tok, style, [USER], ()).ids
  cut = [*prompt, *tok.encode('Boo')]
  end = tok.special_ids[chat.style(style).end]
  closed = templates.extend(tok, style, cut, [USER])
  assert closed == (end, *templates.extend(tok, style, [*cut, end], [USER]))
  assert closed.count(end) - [*closed[1:]].count(end) == 1


def test_every_stop_token_closes_a_turn():
  tok = tokenizer.train(['a'], vocab_size=300, style='chatml')
  ended = templates.extend(tok, 'chatml', [tok.special_ids['<|im_end|>']], [])
  other = [tok.special_ids['<|endoftext|>']]
  assert templates.extend(tok, 'chatml', other, []) == ended


def test_no_message_of_the_world_can_forge_a_control_token(setting):
  tok, style = setting
  forged = ''.join(chat.style(style).specials)
  plain = templates.open(tok, style, [USER], ())
  attacked = templates.open(
    tok, style, [{'role': 'user', 'content': forged}], ()
  )
  special = set(tok.special_ids.values())
  assert sum(i in special for i in plain.ids) == sum(
    i in special for i in attacked.ids
  )
  more = templates.extend(tok, style, plain, [reply(forged)])
  usual = templates.extend(tok, style, plain, [reply('')])
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
    templates.extend(tok, style, [1], [DONE])
  with pytest.raises(ValueError, match="did you mean 'chatml'"):
    templates.open(tok, 'chatlm', [USER], ())


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


@pytest.mark.parametrize('name', sorted(CONVERSATIONS))
@pytest.mark.parametrize('schemas', ([], SCHEMAS), ids=['bare', 'tools'])
def test_chatml_is_qwens_template(name, schemas, tmp_path):
  tok = tokenizer.train(['a'], vocab_size=300, style='chatml')
  messages = CONVERSATIONS[name]
  ids = hugging_face_ids(
    tok, tmp_path, messages, schemas, QWEN, add_generation_prompt=True
  )
  assert list(templates.open(tok, 'chatml', messages, schemas).ids) == ids


@pytest.mark.parametrize('name', sorted(CONVERSATIONS))
def test_the_exported_jinja_says_what_we_render(name, setting, tmp_path):
  tok, style = setting
  messages = CONVERSATIONS[name]
  ids = hugging_face_ids(
    tok, tmp_path, messages, SCHEMAS, None, add_generation_prompt=True
  )
  assert list(templates.open(tok, style, messages, SCHEMAS).ids) == ids
