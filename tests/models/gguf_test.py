"""Locks: names, layouts and refusals of GGUF files; their tokenizer."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.models import gguf, gguf_tokenizer, params
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.text import bpe, tokenizer

library = pytest.importorskip('gguf')

CONFIG = ModelConfig(
  num_layers=2,
  d_model=32,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  d_ff=64,
  vocab_size=260,
  rope_theta=1e5,
  norm_epsilon=1e-5,
  qk_norm=False,
  tie_embeddings=True,
)
CONTROLS = ('<|endoftext|>', '<|im_start|>', '<|im_end|>')
FIELDS = {
  'block_count': 2,
  'context_length': 64,
  'embedding_length': 32,
  'feed_forward_length': 64,
  'attention.head_count': 4,
  'attention.head_count_kv': 2,
  'attention.layer_norm_rms_epsilon': 1e-5,
  'rope.freq_base': 1e5,
  'rope.dimension_count': 8,
}
TOKENIZER = {
  'model': 'gpt2',
  'pre': 'smollm',
  'tokens': [*CONTROLS, *bpe.byte_characters(), 'ab'],
  'token_type': [3] * 3 + [1] * 257,
  'merges': ['a b'],
  'eos_token_id': 2,
  'padding_token_id': 0,
}


def random_params(config, seed=0):
  """Norms are random too: weights of one would hide a swap."""
  draw = np.random.default_rng(seed)
  return jax.tree.map(
    lambda x: draw.normal(0.2, 0.4, x.shape).astype(np.float32),
    params.abstract(config),
  )


def write(
  path,
  config=CONFIG,
  made=None,
  *,
  family='llama',
  fields=(),
  said=(),
  kind=None,
  leave_out=(),
  more=(),
):
  """Writes a file as llama.cpp's converter does; `kind` quantises matrices."""
  made = random_params(config) if made is None else made
  writer = library.GGUFWriter(path, family)
  for name, value in {**FIELDS, **dict(fields)}.items():
    if value is not None:
      _add(writer, f'{family}.{name}', value)
  for name, value in {**TOKENIZER, **dict(said)}.items():
    if value is not None:
      full = name if '.' in name else f'tokenizer.ggml.{name}'
      _add(writer, full, value)
  for name, value in _tensors(config, made, family):
    if name in leave_out:
      continue
    if kind is None or value.ndim == 1:
      writer.add_tensor(name, value)
    else:
      stored = library.quants.quantize(value, kind)
      writer.add_tensor(name, stored, raw_dtype=kind)
  for name, value in dict(more).items():
    writer.add_tensor(name, value)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return path


def _add(writer, name, value):
  if isinstance(value, bool):
    writer.add_bool(name, value)
  elif isinstance(value, int):
    writer.add_uint32(name, value)
  elif isinstance(value, float):
    writer.add_float32(name, value)
  elif isinstance(value, str):
    writer.add_string(name, value)
  else:
    writer.add_array(name, value)


def _tensors(config, made, family):
  """The converter's own steps: transpose, and mix the halves of q and k."""
  yield 'token_embd.weight', made['embed']['table']
  yield 'output_norm.weight', made['final_norm']
  if not config.tie_embeddings:
    yield 'output.weight', np.ascontiguousarray(made['head'].T)
  names = dict(
    attn_norm='attention_norm',
    ffn_norm='mlp_norm',
    attn_q_norm='q_norm',
    attn_k_norm='k_norm',
    attn_q='q',
    attn_k='k',
    attn_v='v',
    attn_output='o',
    ffn_gate='gate',
    ffn_up='up',
    ffn_down='down',
  )
  for name in 'qkv':
    for layer, value in enumerate(made['layers'].get(f'{name}_bias', ())):
      yield f'blk.{layer}.attn_{name}.bias', value.reshape(-1)
  for theirs, ours in names.items():
    for layer in range(config.num_layers):
      if ours not in made['layers']:
        continue
      value = made['layers'][ours][layer]
      if ours in ('q', 'k', 'v'):
        value = value.reshape(config.d_model, -1).T
      elif ours == 'o':
        value = value.reshape(-1, config.d_model).T
      elif value.ndim == 2:
        value = value.T
      if ours in ('q', 'k') and family == 'llama':
        heads = made['layers'][ours].shape[2]
        halves = value.reshape(heads, 2, -1, config.d_model)
        value = halves.swapaxes(1, 2).reshape(value.shape)
      yield f'blk.{layer}.{theirs}.weight', np.ascontiguousarray(value)


def assert_same(left, right):
  assert jax.tree.structure(left) == jax.tree.structure(right)
  for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right)):
    np.testing.assert_array_equal(a, b)


UNTIED = dataclasses.replace(CONFIG, tie_embeddings=False)


@pytest.mark.parametrize('config', (CONFIG, UNTIED), ids=('tied', 'untied'))
def test_weights_and_shape_come_back(config, tmp_path):
  made = random_params(config)
  path = write(tmp_path / 'model.gguf', config, made)
  loaded_config, loaded, spec = gguf.load(path)
  assert loaded_config == config
  assert gguf.describe(path) == (config, spec)
  assert_same(loaded, made)
  assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(loaded))


def test_pairs_side_by_side_become_halves():
  # A head of 4 rows: pair 0 is (a, b), pair 1 (c, d) in the file. Halves are
  # the firsts (a, c) and the seconds (b, d).
  rows = np.array([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [7.0], [8.0]])
  ours = gguf._halves(rows, 2)[:, 0]
  np.testing.assert_array_equal(ours, [1, 3, 2, 4, 5, 7, 6, 8])


@pytest.mark.parametrize(
  'family, changes', (('qwen2', 'qkv_bias'), ('qwen3', 'qk_norm'))
)
def test_qwen_keeps_its_halves(family, changes, tmp_path):
  config = dataclasses.replace(CONFIG, **{changes: True})
  made = random_params(config)
  path = write(tmp_path / 'model.gguf', config, made, family=family)
  loaded_config, loaded, _ = gguf.load(path)
  assert loaded_config == config
  assert_same(loaded, made)


@pytest.mark.parametrize('kind', ('Q8_0', 'Q4_1', 'Q4_0', 'F16', 'BF16'))
def test_dequantised_logits_are_near(kind, tmp_path):
  """Q4_1 has a step of (max - min)/15 of 32 weights, Q8_0 of max/127."""
  made = random_params(CONFIG)
  path = write(
    tmp_path / 'model.gguf',
    made=made,
    kind=library.GGMLQuantizationType[kind],
  )
  _, loaded, _ = gguf.load(path)
  errors = {'Q8_0': 0.008, 'Q4_1': 0.1, 'Q4_0': 0.2, 'F16': 1e-3, 'BF16': 8e-3}
  for a, b in zip(jax.tree.leaves(loaded), jax.tree.leaves(made)):
    assert np.abs(np.asarray(a) - b).max() < errors[kind] * 1.1
    assert a.dtype == np.float32


def test_stored_in_another_type_and_on_a_sharding(tmp_path):
  path = write(tmp_path / 'model.gguf')
  where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  shardings = jax.tree.map(lambda _: where, params.abstract(CONFIG))
  config, loaded, _ = gguf.load(path, dtype='bfloat16', shardings=shardings)
  assert config.dtype == 'bfloat16'
  assert {x.dtype for x in jax.tree.leaves(loaded)} == {jnp.bfloat16.dtype}
  assert {x.sharding for x in jax.tree.leaves(loaded)} == {where}


@pytest.mark.parametrize(
  'changes, message',
  (
    ({'rope.scaling.type': 'yarn'}, "rope.scaling.type='yarn'"),
    ({'rope.scaling.factor': 4.0}, 'rope.scaling.factor=4.0'),
    ({'expert_count': 8}, 'expert_count=8'),
    ({'attention.sliding_window': 512}, 'attention.sliding_window=512'),
    ({'attention.causal': False}, 'attention.causal=False'),
    ({'final_logit_softcapping': 30.0}, 'final_logit_softcapping=30.0'),
    ({'rope.dimension_count': 4}, 'only the size of a head, 8'),
    ({'attention.value_length': 16}, 'only the size of a head, 8'),
    ({'attention.head_count_kv': [2, 1]}, 'differs from layer to layer'),
    ({'block_count': None}, 'block_count is missing'),
    ({'block_count': 3}, "missing ['blk.2.attn_k.weight'"),
    ({'block_count': 1}, "not supported ['blk.1.attn_k.weight'"),
    ({'feed_forward_length': 32}, 'but the metadata makes it (32, 32)'),
  ),
)
def test_what_is_not_supported_is_refused(changes, message, tmp_path):
  path = write(tmp_path / 'model.gguf', fields=changes)
  with pytest.raises(ValueError) as raised:
    gguf.load(path)
  assert message in str(raised.value)
  assert str(path) in str(raised.value) or 'blk.' in str(raised.value)


@pytest.mark.parametrize(
  'changes',
  (
    {'rope.scaling.type': 'none', 'rope.scaling.factor': 1.0},
    {'expert_count': 0, 'attention.sliding_window': 0},
    {'attention.causal': True, 'vocab_size': 260, 'context_length': 4096},
    {'attention.key_length': 8, 'attention.value_length': 8},
    {'rope.dimension_count': None},
  ),
)
def test_what_changes_nothing_is_accepted(changes, tmp_path):
  assert gguf.load(write(tmp_path / 'a.gguf', fields=changes))[0] == CONFIG


def test_defaults_of_what_a_file_leaves_out(tmp_path):
  fields = {'rope.freq_base': None, 'attention.head_count_kv': None}
  config = dataclasses.replace(CONFIG, num_kv_heads=4, rope_theta=1e4)
  path = write(tmp_path / 'model.gguf', config, fields=fields)
  assert gguf.load(path)[0] == config


@pytest.mark.parametrize(
  'said, message',
  (
    ({'model': 'llama'}, "tokenizer.ggml.model='llama'"),
    ({'pre': 'tekken'}, "pre='tekken'"),
    ({'pre': None}, 'pre=None'),
    ({'merges': None}, 'merges or token_type is missing'),
    ({'token_type': [1]}, 'merges or token_type is missing or too short'),
    ({'general.type': 'adapter'}, "general.type='adapter' is no model"),
    ({'split.count': 2}, 'join them with gguf-split --merge'),
  ),
)
def test_tokenizers_and_kinds_of_file_that_are_refused(said, message, tmp_path):
  with pytest.raises(ValueError) as raised:
    gguf.load(write(tmp_path / 'model.gguf', said=said))
  assert message in str(raised.value)


def test_families_tensors_and_files_that_are_refused(tmp_path):
  path = write(tmp_path / 'model.gguf', family='falcon')
  with pytest.raises(ValueError, match="'falcon' is not one of"):
    gguf.load(path)
  path = write(
    tmp_path / 'rope.gguf', more={'rope_freqs.weight': np.ones(4, np.float32)}
  )
  with pytest.raises(ValueError, match=r"not supported \['rope_freqs.weight'"):
    gguf.load(path)
  path = write(tmp_path / 'less.gguf', leave_out=('output_norm.weight',))
  with pytest.raises(ValueError, match=r"missing \['output_norm.weight'"):
    gguf.load(path)
  (tmp_path / 'text.gguf').write_text('no model ' * 9)
  with pytest.raises(ValueError, match=r'text.gguf: no GGUF file'):
    gguf.load(tmp_path / 'text.gguf')
  with pytest.raises(ValueError, match='b.gguf: no such file; give a GGUF'):
    gguf.describe(tmp_path / 'b.gguf')


def test_tokenizer_reads_and_writes_text(tmp_path):
  said = {'tokenizer.chat_template': '{{ messages }}'}
  path = write(tmp_path / 'model.gguf', said=said)
  read = tokenizer.Tokenizer(*gguf.load(path)[2])
  assert read.vocab_size == 260
  assert (read.end_id, read.pad_id) == (2, 0)
  assert read.special_ids == dict(zip(CONTROLS, range(3)))
  assert read.chat_template == '{{ messages }}'
  # 'ab' is the merge, id 259; bytes follow the three controls.
  assert read.encode('ab') == [259]
  assert read.encode('a') == [3 + bpe.byte_characters().index('a')]
  text = 'Zürich 12:30 <|im_end|>\n'
  assert read.decode(read.encode(text)) == text
  assert 2 not in read.encode(text)
  assert read.encode('<|im_end|>', specials=True) == [2]
  assert read.decode([1, 259, 2], controls=False) == 'ab'
  read.save(tmp_path / 'saved')
  again = tokenizer.load(tmp_path / 'saved')
  assert again.encode(text) == read.encode(text)
  assert json.loads(read.files()['tokenizer_config.json'])['eos_token'] == (
    '<|im_end|>'
  )


@pytest.mark.parametrize(
  'pre, text, merges, pieces',
  (
    # Digits stand alone with SmolLM, so that '12' is never one piece.
    ('smollm', 'a12', ['1 2'], ['a', '1', '2']),
    ('gpt-2', 'a12', ['1 2'], ['a', '12']),
    ('qwen2', 'a12', ['1 2'], ['a', '1', '2']),
    ('llama-bpe', 'a1234', ['1 2', '12 3', '123 4'], ['a', '123', '4']),
    # A letter takes one sign before it along (Qwen2, Llama 3), GPT-2 a space.
    ('qwen2', '-ab', ['- a', '-a b'], ['-ab']),
    ('gpt-2', '-ab', ['- a', '-a b'], ['-', 'a', 'b']),
    ('smollm', ' ab', ['Ġ a', 'Ġa b'], ['Ġab']),
    # Composed and decomposed letters are one thing to Qwen2's normalizer.
    ('qwen2', 'e\u0301', ['Ã ©'], ['Ã©']),
  ),
)
def test_text_is_cut_as_the_models_cut_it(pre, text, merges, pieces):
  added = [merge.replace(' ', '') for merge in merges]
  tokens = [*CONTROLS, *bpe.byte_characters(), *added]
  said = TOKENIZER | {'pre': pre, 'tokens': tokens, 'merges': merges}
  said['token_type'] = [3] * 3 + [1] * (len(tokens) - 3)
  metadata = {f'tokenizer.ggml.{name}': x for name, x in said.items()}
  read = tokenizer.Tokenizer(*gguf_tokenizer.read(metadata))
  assert [tokens[i] for i in read.encode(text)] == pieces


@pytest.mark.parametrize(
  'pre, pieces', (('llama-bpe', ['abc']), ('qwen2', ['ab', 'c']))
)
def test_a_piece_that_is_a_token_needs_no_merges_with_llama(pre, pieces):
  tokens = [*TOKENIZER['tokens'], 'abc']  # no merge makes it
  said = TOKENIZER | {'pre': pre, 'tokens': tokens}
  said['token_type'] = [*TOKENIZER['token_type'], 1]
  metadata = {f'tokenizer.ggml.{name}': x for name, x in said.items()}
  read = tokenizer.Tokenizer(*gguf_tokenizer.read(metadata))
  assert [tokens[i] for i in read.encode('abc')] == pieces
