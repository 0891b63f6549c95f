"""What is written is what TRL reads, and comes back token for token."""

import json

import pytest

from agentrl_jax import data, types
from agentrl_jax.text import conversations, templates, tokenizer, tools

SEARCH = types.ToolCall('search', {'to': 'OSL', 'n': 2})
PROMPT = (
  types.Message('system', 'Book.'),
  types.Message('user', 'Oslo, please'),
)
SCHEMA = {
  'type': 'function',
  'function': {'name': 'search', 'description': '', 'parameters': {}},
}


def messages(style, prose='Let me see. '):
  text = prose.strip() + tools.render_call(SEARCH, style)
  if style != 'tiny':
    text = tools.written(prose.strip(), (SEARCH,), style)
  return [
    *PROMPT,
    types.Message('assistant', text),
    types.Message('tool', '2 flights'),
    types.Message('assistant', 'done'),
  ]


def test_a_call_is_written_as_trl_shows_it():
  assert conversations.dump(messages('tiny'), 'tiny', [SCHEMA]) == {
    'messages': [
      {'role': 'system', 'content': 'Book.'},
      {'role': 'user', 'content': 'Oslo, please'},
      {
        'role': 'assistant',
        'content': 'Let me see.',
        'tool_calls': [
          {
            'type': 'function',
            'function': {
              'name': 'search',
              'arguments': {'to': 'OSL', 'n': 2},
            },
          }
        ],
      },
      {'role': 'tool', 'content': '2 flights', 'name': 'search'},
      {'role': 'assistant', 'content': 'done'},
    ],
    'tools': [SCHEMA],
  }


@pytest.mark.parametrize('style', ['tiny', 'chatml', 'qwen3', 'chatml+xml'])
def test_it_comes_back_token_for_token(style, tmp_path):
  told = messages(style)
  tok = tokenizer.train(['Book.'], vocab_size=300, style=style)
  file = tmp_path / 'chat.jsonl'
  assert conversations.write(file, [conversations.dump(told, style)] * 2) == 2
  records = data.Conversations(str(file))
  assert len(records) == 2
  want = templates.render(tok, style, told)
  rows = data.sft_rows([records[1]], tok, style, row_length=len(want.ids))
  assert rows['tokens'][0].tolist() == list(want.ids)
  assert rows['mask'][0].tolist() == list(want.sampled_mask)


@pytest.mark.parametrize(
  'text',
  [
    '<tool_call>{"args": {}, "name": "f"}</tool_call>',  # keys the other way
    '<tool_call>{"name": "f"</tool_call>',
    'a <tool_call>{"name":"f","args":{}}</tool_call> b',
  ],
)
def test_what_would_not_come_back_stays_in_the_text(text):
  (made,) = conversations.dump_messages([types.Message('assistant', text)])
  assert made == {'role': 'assistant', 'content': text}


def test_tokens_that_were_sampled_are_kept_for_the_same_tokenizer(tmp_path):
  tok = tokenizer.train(['aaaa aaaa'], vocab_size=290)
  ids = templates.open(tok, 'tiny', [types.Message('user', 'x')]).ids
  odd = [*tok.encode('a')] * 4 + [tok.end_id]  # 'aaaa' is one token
  assert len(tok.encode('aaaa')) < 4
  context = types.Tokens((*ids, *odd), (False,) * len(ids) + (True,) * len(odd))
  told = [types.Message('user', 'x'), types.Message('assistant', 'aaaa')]
  record = conversations.dump(told, 'tiny', (), [context], tok)
  file = tmp_path / 'chat.jsonl'
  conversations.write(file, [record])
  (again,) = conversations.read(file)
  rows = data.sft_rows([again], tok, 'tiny', row_length=32)
  size = len(context.ids)
  assert rows['tokens'][0, :size].tolist() == list(context.ids)
  assert rows['mask'][0, :size].tolist() == list(context.sampled_mask)
  other = tokenizer.train(['bbbb aaaa aaaa'], vocab_size=290)
  rows = data.sft_rows([again], other, 'tiny', row_length=32)
  want = templates.render(other, 'tiny', told)
  assert rows['tokens'][0, : len(want.ids)].tolist() == list(want.ids)


def test_arguments_may_be_json_in_a_text():
  call = {'function': {'name': 'f', 'arguments': '{"a": 1}'}}
  assistant = {'role': 'assistant', 'content': None, 'tool_calls': [call]}
  (made,) = conversations.load({'messages': [assistant]})['messages']
  assert made['calls'] == (types.ToolCall('f', {'a': 1}),)
  assert made['content'] == ''


def test_a_pair_goes_on_from_one_prompt():
  good, bad = messages('tiny')[2:], [types.Message('assistant', 'no')]
  made = conversations.preference(PROMPT, good, bad)
  assert [m['role'] for m in made['prompt']] == ['system', 'user']
  assert made['chosen'][0]['tool_calls'][0]['function']['name'] == 'search'
  assert made['rejected'] == [{'role': 'assistant', 'content': 'no'}]


def chat(*given):
  return json.dumps({'messages': given})


def called(call):
  return {'role': 'assistant', 'content': '', 'tool_calls': [call]}


GOOD = chat({'role': 'assistant', 'content': 'a'})


@pytest.mark.parametrize(
  'line, said',
  [
    ('{', 'line 2: '),
    ('[]', 'line 2: needs a list of messages'),
    ('{"messages": "a"}', 'needs a list of messages'),
    (chat('a'), r"messages\[0\] is 'a', not a mapping"),
    (chat({'role': 'bot', 'content': 'a'}), r"\[0\]: role 'bot'"),
    (chat({'role': 'user', 'content': 'a'}), 'nothing to learn'),
    (chat({'role': 'assistant', 'content': [1]}), 'needs text'),
    (chat({'role': 'assistant'}), 'content None; needs text'),
    (chat(called({})), 'tool_calls .*KeyError'),
    (chat(called({'name': 'f', 'arguments': '[1]'})), 'name and arguments, a'),
    (
      chat({'role': 'user', 'content': '', 'tool_calls': [{'name': 'f'}]}),
      "of role 'user'",
    ),
    (GOOD[:-1] + ', "tools": "{}"}', 'a list of JSON schemas'),
    (GOOD[:-1] + ', "tools": [{"function": {}}]}', 'tools: one without a name'),
    (
      GOOD[:-1] + ', "contexts": [{"tokens": [1], "sampled_mask": []}]}',
      '0 masks for 1 tokens',
    ),
  ],
)  # fmt: skip
def test_a_fault_is_told_by_line(tmp_path, line, said):
  file = tmp_path / 'chat.jsonl'
  file.write_text(f'{GOOD}\n{line}\n')
  with pytest.raises(ValueError, match=said) as caught:
    conversations.read(file)
  assert str(caught.value).startswith(f'{file}, line 2: ')


def test_a_file_that_is_none(tmp_path):
  with pytest.raises(ValueError, match='No such file'):
    conversations.read(tmp_path / 'no')
  (tmp_path / 'empty').write_text('\n')
  with pytest.raises(ValueError, match='no conversation in it'):
    conversations.read(tmp_path / 'empty')
