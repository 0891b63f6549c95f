"""Locks: what SFT trains on, whole conversations, order and resume."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from agentrl_jax import assembly, config, data, packing
from agentrl_jax.text import conversations, memory, templates, tokenizer


def record(i, turns=2):
  messages = [{'role': 'user', 'content': 'x' * (i % 5)}]
  for turn in range(turns):
    messages += [
      {'role': 'assistant', 'content': f'a{i}.{turn}'},
      {'role': 'tool', 'content': 'ok'},
    ]
  return {'messages': messages}


RECORDS = [record(i, 1 + i % 3) for i in range(40)]


@pytest.fixture(scope='module')
def tok():
  return tokenizer.train(['a'], vocab_size=265)


@pytest.fixture(scope='module')
def rows(tok):
  return data.sft_rows(RECORDS, tok, 'tiny', row_length=64)


def segments(rows, name):
  """The arrays of all segments, in some order, as lists."""
  found = []
  for r in range(len(rows['tokens'])):
    ids = rows['segment_ids'][r]
    for segment in range(1, ids.max() + 1):
      found.append(rows[name][r, ids == segment].tolist())
  return found


def test_tools_of_a_record_are_shown_instead_of_those_of_all(tok):
  def tool(name):
    function = {'name': name, 'description': '', 'parameters': {}}
    return {'type': 'function', 'function': function}

  known = tokenizer.train(['a'], vocab_size=280, style='qwen3')
  plain, own = record(0, 1), {**record(1, 1), 'tools': [tool('mine')]}
  rows = data.sft_rows(
    [plain, own], known, 'qwen3', row_length=2048, tools=[tool('usual')]
  )
  texts = [known.decode(ids) for ids in segments(rows, 'tokens')]
  assert sorted(('usual' in t, 'mine' in t) for t in texts) == [
    (False, True),
    (True, False),
  ]


def test_one_row_by_hand(tok):
  messages = [
    {'role': 'user', 'content': ''},
    {'role': 'assistant', 'content': 'a'},
    {'role': 'tool', 'content': ''},
  ]
  rows = data.sft_rows(
    [{'messages': messages}] * 2,
    tok,
    'tiny',
    row_length=14,
    observation_weight=0.25,
  )
  # <|user|> <|assistant|> a <|end|> <tool_response> </tool_response>, twice.
  id_, a = tok.special_ids, tok.encode('a')[0]
  one = [id_['<|user|>'], id_['<|assistant|>'], a, id_['<|end|>'], 5, 6]
  assert one[4:] == [id_['<tool_response>'], id_['</tool_response>']]
  padded = [0, 0]
  assert rows['tokens'].tolist() == [[*one, *one, *padded]]
  assert rows['positions'].tolist() == [[*range(6), *range(6), *padded]]
  assert rows['segment_ids'].tolist() == [[1] * 6 + [2] * 6 + padded]
  mask = [False, False, True, True, False, False]
  assert rows['mask'].tolist() == [[*mask, *mask, False, False]]
  weights = [0.0, 0.25, 1.0, 1.0, 0.25, 0.25]
  assert rows['weights'].tolist() == [[*weights, *weights, 0.0, 0.0]]
  dtypes = {name: values.dtype.name for name, values in rows.items()}
  assert dtypes == {
    'tokens': 'int32',
    'positions': 'int32',
    'segment_ids': 'int32',
    'mask': 'bool',
    'weights': 'float32',
  }


def test_packing_changes_no_conversation(tok, rows):
  rendered = [templates.render(tok, 'tiny', r['messages']) for r in RECORDS]
  tokens, masks = segments(rows, 'tokens'), segments(rows, 'mask')
  assert sorted(zip(tokens, masks)) == sorted(
    (list(r.ids), list(r.sampled_mask)) for r in rendered
  )
  assert len(rows['tokens']) < len(RECORDS)
  padding = rows['segment_ids'] == 0
  for name in ('tokens', 'positions', 'mask', 'weights'):
    assert not rows[name][padding].any()
  firsts = (rows['positions'] == 0) & ~padding
  assert firsts.sum() == len(RECORDS)
  assert not rows['weights'][firsts].any()


def test_a_window_gives_the_contexts_of_a_rollout(tok, rows):
  window = memory.Memory('window', 1)
  cut = data.sft_rows(RECORDS, tok, 'tiny', row_length=64, memory=window)
  expected = [
    (list(part.ids), list(part.sampled_mask))
    for record in RECORDS
    for part in memory.contexts(tok, 'tiny', record['messages'], window)
  ]
  found = zip(segments(cut, 'tokens'), segments(cut, 'mask'))
  assert sorted(found) == sorted(expected)
  # Every turn is learnt once, however it is shown.
  assert cut['mask'].sum() == rows['mask'].sum()
  assert len(expected) == sum(1 + i % 3 for i in range(len(RECORDS)))


def test_rows_are_deterministic(tok, rows):
  again = data.sft_rows(iter(RECORDS), tok, 'tiny', row_length=64)
  for name, values in rows.items():
    np.testing.assert_array_equal(values, again[name])


def test_too_long_is_refused_with_the_field(tok):
  records = [*RECORDS, record(0, 30)]
  with pytest.raises(ValueError, match='demonstration 40 .*row_length=64'):
    data.sft_rows(records, tok, 'tiny', row_length=64)
  with pytest.raises(ValueError, match='demonstration 40 .*row_length=64'):
    wide = memory.Memory('window', 29)
    data.sft_rows(records, tok, 'tiny', row_length=64, memory=wide)
  with pytest.raises(ValueError, match='config.sft.demonstrations'):
    data.sft_rows([], tok, 'tiny', row_length=64)


@hypothesis.given(st.lists(st.integers(1, 20), max_size=30))
@hypothesis.settings(deadline=None)
def test_pack_is_a_partition_that_fits(lengths):
  rows = packing.pack(lengths, 20)
  assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
  fill = sorted(sum(lengths[i] for i in row) for row in rows)
  assert all(total <= 20 for total in fill)
  # Two rows that fit into one would have been one.
  assert len(fill) < 2 or fill[0] + fill[1] > 20


def test_an_epoch_holds_each_row_once_and_is_shuffled_anew(rows):
  num = len(rows['tokens'])
  batches = data.sft_batches(rows, num_rows=1, seed=3)
  order = [batches[i]['tokens'][0].tobytes() for i in range(2 * num)]
  every = sorted(row.tobytes() for row in rows['tokens'])
  assert sorted(order[:num]) == sorted(order[num:]) == every
  assert order[:num] != order[num:]
  assert order[:num] != [row.tobytes() for row in rows['tokens']]


def test_a_batch_depends_on_seed_and_number_only(rows):
  batches = data.sft_batches(rows, num_rows=4, seed=3)
  again = data.sft_batches(rows, num_rows=4, seed=3)
  other = data.sft_batches(rows, num_rows=4, seed=4)
  assert set(batches[7]) == set(rows)
  for name, values in batches[7].items():
    assert values.shape == (4, 64)
    np.testing.assert_array_equal(values, again[7][name])
  assert (batches[7]['tokens'] != other[7]['tokens']).any()


def test_a_resumed_iterator_continues(rows):
  batches = data.sft_batches(rows, num_rows=4, seed=3)
  iterator = data.iterate(batches)
  for i in range(5):
    np.testing.assert_array_equal(
      next(iterator)['tokens'], batches[i]['tokens']
    )
  state = iterator.get_state()
  expected = [next(iterator)['tokens'] for _ in range(8)]
  resumed = data.iterate(data.sft_batches(rows, num_rows=4, seed=3))
  resumed.set_state(state)
  for tokens in expected:
    np.testing.assert_array_equal(next(resumed)['tokens'], tokens)


def test_fewer_rows_than_a_batch_are_repeated(tok):
  rows = data.sft_rows(RECORDS[:1], tok, 'tiny', row_length=64)
  batch = data.sft_batches(rows, num_rows=3, seed=0)[0]
  assert batch['tokens'].shape == (3, 64)
  assert (batch['tokens'] == rows['tokens']).all()


def test_calls_are_shown_in_the_notation_of_the_style(tok):
  shown = '<tool_call>{"name":"f","args":{"a":1}}</tool_call>'
  messages = [
    {'role': 'user', 'content': 'x'},
    {'role': 'assistant', 'content': shown},
  ]
  for style, text in (('tiny', shown), ('tiny+python', '[f(a=1)]')):
    rows = data.sft_rows([{'messages': messages}], tok, style, row_length=64)
    said = rows['tokens'][rows['mask']].tolist()
    assert tok.decode(said) == text + '<|end|>'


def test_a_file_stands_for_the_demonstrations(tmp_path):
  file = tmp_path / 'chat.jsonl'
  call = {'name': 'search', 'arguments': {'to': 'Ouagadougou'}}
  said = {'role': 'assistant', 'content': '', 'tool_calls': [call]}
  asked = {'role': 'user', 'content': 'far away'}
  conversations.write(file, [{'messages': [asked, said]}] * 40)
  c = config.default()
  c.sft.data, c.text.style, c.text.vocab_size = str(file), 'chatml', 600
  found = assembly.demonstrations(c)
  language = assembly.language(c)
  records = assembly.with_tools(c, found)
  rows = data.sft_rows(
    records[:1], language.tokenizer, language.style, row_length=128
  )
  text = language.tokenizer.decode(rows['tokens'][rows['mask']].tolist())
  assert text == (
    '<tool_call>\n{"name": "search", "arguments": {"to": "Ouagadougou"}}'
    '\n</tool_call><|im_end|>'
  )
  # The tokenizer was trained on what calls become.
  assert len(language.tokenizer.encode('Ouagadougou')) == 1
  before = found.directory
  assert not [x for x in assembly.faults(c) if 'sft.data' in x]
  file.write_text(file.read_text() + '[]\n')
  (fault,) = [x for x in assembly.faults(c) if 'sft.data' in x]
  assert f'{file}, line 41: needs a list of messages' in fault
  conversations.write(file, [{'messages': [said]}])
  assert assembly.demonstrations(c).directory != before
