"""Locks: exact round trips, whole atoms, trust, the Hugging Face files."""

import hypothesis
import pytest
from hypothesis import strategies as st

from agentrl_jax.text import tokenizer

CITIES = ('Beijing', 'Shanghai', 'Chengdu', 'Xian')
FLIGHTS = ('CA1501', 'MU5101', 'HU6318')
SPECIAL_TEXT = '<|end|> <tool_call> </tool_response>'


def world_texts():
  texts = []
  for i in range(120):
    city, flight = CITIES[i % 4], FLIGHTS[i % 3]
    texts += [
      f'Book a flight: {city} > {CITIES[(i + 1) % 4]}.',
      f'<tool_call>{{"name":"check","args":{{"flight":"{flight}"}}}}'
      '</tool_call><|end|>',
      f'2 flights\n{flight} 06:30 {300 + i % 7 * 30}\n{flight} 12:00 810',
    ]
  return texts


@pytest.fixture(scope='module')
def tok():
  return tokenizer.train(world_texts(), vocab_size=400)


def test_values_and_templates_are_single_tokens(tok):
  # '2', ' flights\n', 'CA1501', ' 06:30', ' 330', '\n', 'MU5101', ...
  text = '2 flights\nCA1501 06:30 330\nMU5101 12:00 810'
  assert len(tok.encode(text)) == 9
  call = '<tool_call>{"name":"check","args":{"flight":"HU6318"}}</tool_call>'
  tags = ('<tool_call>', '</tool_call>')
  pieces = [tok.decode([id_]) for id_ in tok.encode(call, tags)]
  assert pieces == [
    '<tool_call>',
    '{"name":"check","args":{"flight":"',
    'HU6318',
    '"}}',
    '</tool_call>',
  ]


def test_atom_inside_a_longer_word_keeps_the_text(tok):
  atom = tok.encode('Beijing')
  assert len(atom) == 1
  for text in ('Beijingers', 'XBeijing', 'CA15019', 'CA1501x', 'beijing'):
    assert tok.decode(tok.encode(text)) == text
  assert atom[0] not in tok.encode('Beijingers')


@hypothesis.given(
  st.one_of(st.text(), st.text('CABcg0123456789: \n<|>_', max_size=40))
)
@hypothesis.settings(deadline=None, max_examples=200)
def test_any_text_round_trips(tok, text):
  assert tok.decode(tok.encode(text)) == text
  assert tok.decode(tok.encode(text, specials=True)) == text


def test_untrusted_text_never_becomes_special(tok):
  special = set(tok.special_ids.values())
  ids = tok.encode(SPECIAL_TEXT)
  assert not special & set(ids)
  assert tok.decode(ids) == SPECIAL_TEXT
  some = tok.encode(SPECIAL_TEXT, ['<tool_call>'])
  assert special & set(some) == {tok.special_ids['<tool_call>']}
  assert len(special & set(tok.encode(SPECIAL_TEXT, specials=True))) == 3


def test_lone_surrogate_becomes_a_question_mark(tok):
  assert tok.decode(tok.encode('a\ud800b')) == 'a?b'


def test_decode_of_broken_bytes_and_unknown_ids(tok):
  first_byte = tok.encode('é')[0]
  assert tok.decode([first_byte]) == '\ufffd'
  assert tok.decode([tok.vocab_size + 7]) == ''
  ids = tok.encode('a<|end|>', specials=True)
  assert tok.decode(ids) == 'a<|end|>'
  assert tok.decode(ids, controls=False) == 'a'


def test_same_texts_in_any_order_give_the_same_files(tok):
  again = tokenizer.train(reversed(world_texts()), vocab_size=400)
  assert again.files() == tok.files()


def test_vocabulary_is_bounded_and_dense(tok):
  assert 256 + 9 < tok.vocab_size <= 400
  names = {tok.decode([id_]) for id_ in range(9)}
  assert names == set(tok.special_ids)
  assert tok.pad_id == 0
  assert tok.end_id == tok.special_ids['<|end|>']
  with pytest.raises(ValueError, match='265'):
    tokenizer.train(['a'], vocab_size=200)


def test_hugging_face_loads_the_files_and_agrees(tok, tmp_path):
  transformers = pytest.importorskip('transformers')
  tok.save(tmp_path)
  other = transformers.AutoTokenizer.from_pretrained(tmp_path)
  assert (other.eos_token_id, other.pad_token_id) == (tok.end_id, tok.pad_id)
  assert len(other) == tok.vocab_size
  odd = ('CA15013 1:23 12:345 ABCd 7  9:00', ' 300', '\n 06:30', 'é 漢字 \x00')
  for text in (*world_texts()[:9], SPECIAL_TEXT, *odd):
    ids = tok.encode(text, specials=True)
    assert other.encode(text) == ids
    assert other.decode(ids) == text


@hypothesis.given(st.text('ABab019: \n<|>é"{', max_size=30))
@hypothesis.settings(deadline=None, max_examples=300)
def test_the_fast_path_equals_the_tokenizers_library(tok, text):
  expected = tok._plain.encode(text, add_special_tokens=False).ids
  assert tok.encode(text) == expected


def test_load_gives_the_same_tokenizer(tok, tmp_path):
  tok.save(tmp_path)
  loaded = tokenizer.load(tmp_path)
  assert loaded.files() == tok.files()
  assert loaded.style == 'tiny'
  assert loaded.encode(SPECIAL_TEXT, True) == tok.encode(SPECIAL_TEXT, True)
  with pytest.raises(ValueError, match='tokenizer.json'):
    tokenizer.load(tmp_path / 'nowhere')


def test_a_foreign_tokenizer_loads(tmp_path):
  import tokenizers
  from tokenizers import decoders, models, pre_tokenizers, trainers

  made = tokenizers.Tokenizer(models.BPE())
  made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  made.decoder = decoders.ByteLevel()
  alphabet = pre_tokenizers.ByteLevel.alphabet()
  trainer = trainers.BpeTrainer(
    vocab_size=300,
    special_tokens=['<|endoftext|>', '<|im_end|>'],
    initial_alphabet=alphabet,
    show_progress=False,
  )
  made.train_from_iterator(world_texts(), trainer)
  made.save(str(tmp_path / 'tokenizer.json'))
  tok = tokenizer.load(tmp_path)
  text = 'A flight<|im_end|> to Xian, naïve\n'
  assert tok.encode(text, specials=True) == made.encode(text).ids
  assert tok.special_ids['<|im_end|>'] not in tok.encode(text)
  assert tok.decode(tok.encode(text)) == text
