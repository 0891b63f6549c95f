"""Locks what a config.json means, and that no field is silently left out."""

import dataclasses

import pytest
from model_variants import VARIANTS

from agentrl_jax.models.config import ModelConfig, RopeScaling
from agentrl_jax.models.hf_config import read_config, write_config

# As published on the Hub; fields that only name the file are left out.
QWEN25 = {
  'architectures': ['Qwen2ForCausalLM'],
  'attention_dropout': 0.0,
  'bos_token_id': 151643,
  'eos_token_id': 151645,
  'hidden_act': 'silu',
  'hidden_size': 1536,
  'initializer_range': 0.02,
  'intermediate_size': 8960,
  'max_position_embeddings': 32768,
  'max_window_layers': 21,
  'model_type': 'qwen2',
  'num_attention_heads': 12,
  'num_hidden_layers': 28,
  'num_key_value_heads': 2,
  'rms_norm_eps': 1e-06,
  'rope_theta': 1000000.0,
  'sliding_window': 32768,
  'tie_word_embeddings': True,
  'torch_dtype': 'bfloat16',
  'transformers_version': '4.43.1',
  'use_cache': True,
  'use_sliding_window': False,
  'vocab_size': 151936,
}
LLAMA32 = {
  'architectures': ['LlamaForCausalLM'],
  'attention_bias': False,
  'attention_dropout': 0.0,
  'bos_token_id': 128000,
  'eos_token_id': [128001, 128008, 128009],
  'head_dim': 64,
  'hidden_act': 'silu',
  'hidden_size': 2048,
  'initializer_range': 0.02,
  'intermediate_size': 8192,
  'max_position_embeddings': 131072,
  'mlp_bias': False,
  'model_type': 'llama',
  'num_attention_heads': 32,
  'num_hidden_layers': 16,
  'num_key_value_heads': 8,
  'pretraining_tp': 1,
  'rms_norm_eps': 1e-05,
  'rope_scaling': {
    'factor': 32.0,
    'high_freq_factor': 4.0,
    'low_freq_factor': 1.0,
    'original_max_position_embeddings': 8192,
    'rope_type': 'llama3',
  },
  'rope_theta': 500000.0,
  'tie_word_embeddings': True,
  'torch_dtype': 'bfloat16',
  'use_cache': True,
  'vocab_size': 128256,
}
GEMMA3 = {
  'architectures': ['Gemma3ForCausalLM'],
  'attention_bias': False,
  'attention_dropout': 0.0,
  'attn_logit_softcapping': None,
  'bos_token_id': 2,
  'cache_implementation': 'hybrid',
  'eos_token_id': [1, 106],
  'final_logit_softcapping': None,
  'head_dim': 256,
  'hidden_activation': 'gelu_pytorch_tanh',
  'hidden_size': 1152,
  'initializer_range': 0.02,
  'intermediate_size': 6912,
  'max_position_embeddings': 32768,
  'model_type': 'gemma3_text',
  'num_attention_heads': 4,
  'num_hidden_layers': 26,
  'num_key_value_heads': 1,
  'pad_token_id': 0,
  'query_pre_attn_scalar': 256,
  'rms_norm_eps': 1e-06,
  'rope_local_base_freq': 10000,
  'rope_scaling': None,
  'rope_theta': 1000000,
  'sliding_window': 512,
  'sliding_window_pattern': 6,
  'torch_dtype': 'bfloat16',
  'use_cache': True,
  'vocab_size': 262144,
}


def test_qwen25_as_published():
  assert read_config(QWEN25) == ModelConfig(
    num_layers=28,
    d_model=1536,
    num_heads=12,
    num_kv_heads=2,
    head_dim=128,  # 1536 / 12
    d_ff=8960,
    vocab_size=151936,
    rope_theta=1e6,
    qk_norm=False,
    qkv_bias=True,
    tie_embeddings=True,
  )


def test_llama32_as_published():
  config = read_config(LLAMA32)
  assert config.rope_scaling == RopeScaling('llama3', 32.0, 8192, 1.0, 4.0)
  assert config.rope_theta == 5e5 and config.norm_epsilon == 1e-5
  assert not config.qk_norm and not config.qkv_bias and not any(config.slides)
  fields = write_config(config)
  assert fields['rope_scaling'] == LLAMA32['rope_scaling']
  assert fields['max_position_embeddings'] == 8192 * 32


def test_gemma3_as_published():
  config = read_config(GEMMA3)
  assert config == ModelConfig(
    num_layers=26,
    d_model=1152,
    num_heads=4,
    num_kv_heads=1,
    head_dim=256,
    d_ff=6912,
    vocab_size=262144,
    rope_theta=1e6,
    rope_local_theta=1e4,
    activation='gelu_tanh',
    post_norms=True,
    centered_norms=True,
    scale_embeddings=True,
    sliding_window=512,
    sliding_layers=(True,) * 5 + (False,),
    tie_embeddings=True,
  )
  assert config.slides.count(False) == 4  # layers 5, 11, 17, 23
  fields = write_config(config)
  assert fields['rope_parameters'] == {
    'full_attention': {'rope_type': 'default', 'rope_theta': 1e6},
    'sliding_attention': {'rope_type': 'default', 'rope_theta': 1e4},
  }
  assert fields['query_pre_attn_scalar'] == 256


@pytest.mark.parametrize('name', VARIANTS)
def test_what_is_written_is_read_back(name):
  config = read_config(VARIANTS[name])
  assert read_config(write_config(config)) == config


def test_both_spellings_of_rotary_fields_are_one():
  scaling = {'rope_type': 'linear', 'factor': 2.0}
  old = {**QWEN25, 'rope_scaling': {'type': 'linear', 'factor': 2.0}}
  new = {**QWEN25, 'rope_parameters': {**scaling, 'rope_theta': 1e6}}
  del new['rope_theta']
  assert read_config(old) == read_config(new)
  assert read_config({**old, **new}).rope_scaling == RopeScaling('linear', 2.0)
  with pytest.raises(ValueError, match='disagree'):
    read_config({**old, 'rope_parameters': {**scaling, 'factor': 3.0}})
  with pytest.raises(ValueError, match='disagree'):
    read_config({**QWEN25, 'rope_parameters': {'rope_theta': 1e5}})


def test_what_absence_means():
  yarn = {'rope_type': 'yarn', 'original_max_position_embeddings': 8192}
  config = read_config({**QWEN25, 'rope_scaling': yarn})
  assert config.rope_scaling.factor == 4.0  # 32768 / 8192
  old = {k: v for k, v in LLAMA32.items() if k != 'num_key_value_heads'}
  assert read_config(old).num_kv_heads == 32  # Llama before groups
  bare = {k: v for k, v in GEMMA3.items() if k != 'sliding_window_pattern'}
  assert read_config(bare) == read_config(GEMMA3)
  mistral = {**LLAMA32, 'model_type': 'mistral', 'rope_scaling': None}
  del mistral['mlp_bias'], mistral['pretraining_tp']
  assert read_config(mistral).sliding_window == 4096
  assert read_config({**mistral, 'sliding_window': None}).sliding_window == 0


def test_layer_types_are_heeded():
  types = ['full_attention', 'sliding_attention'] * 14
  fields = {**QWEN25, 'use_sliding_window': True, 'layer_types': types}
  assert read_config(fields).sliding_layers == (False, True)
  assert read_config(fields).slides == (False, True) * 14
  fields['layer_types'] = None  # then those from max_window_layers on
  assert read_config(fields).slides == (False,) * 21 + (True,) * 7
  fields['layer_types'] = ['full_attention'] * 28
  assert read_config(fields).sliding_window == 0


REFUSED = {
  'hidden_act': (QWEN25, 'gelu'),
  'attention_dropout': (QWEN25, 0.1),
  'quantization_config': (QWEN25, {'quant_method': 'fp8'}),
  'partial_rotary_factor': (QWEN25, 0.5),
  'a_field_of_the_future': (QWEN25, 2.0),
  'model_type': (QWEN25, 'qwen4'),
  'query_pre_attn_scalar': (QWEN25, 64),
  'rope_local_base_freq': (QWEN25, 1e4),
  'num_experts': (QWEN25, 8),
  'attention_bias': (LLAMA32, True),
  'mlp_bias': (LLAMA32, True),
  'pretraining_tp': (LLAMA32, 2),
  'sliding_window': (LLAMA32, 4096),
  'use_sliding_window': (LLAMA32, True),
  'attn_logit_softcapping': (GEMMA3, 50.0),
  'final_logit_softcapping': (GEMMA3, 30.0),
  'use_bidirectional_attention': (GEMMA3, True),
  'hidden_activation': (GEMMA3, 'silu'),
}


@pytest.mark.parametrize('field', REFUSED)
def test_a_field_that_changes_the_maths_is_refused(field):
  fields, value = REFUSED[field]
  with pytest.raises(ValueError, match=field):
    read_config({**fields, field: value})


@pytest.mark.parametrize(
  'scaling, fault',
  [
    ({'rope_type': 'dynamic', 'factor': 2.0}, 'dynamic'),
    ({'rope_type': 'longrope', 'factor': 2.0}, 'longrope'),
    ({'rope_type': 'default', 'factor': 2.0}, 'no further fields'),
    ({'rope_type': 'linear'}, "'factor'. missing"),
    ({'rope_type': 'llama3', 'factor': 2.0}, 'high_freq_factor'),
    ({'rope_type': 'yarn', 'factor': 2.0, 'mrope_section': [1]}, 'mrope'),
    (
      {'rope_type': 'linear', 'factor': 2.0, 'partial_rotary_factor': 0.5},
      'partial_rotary_factor',
    ),
  ],
  ids=str,
)
def test_a_rotary_variant_that_is_not_known_is_refused(scaling, fault):
  with pytest.raises(ValueError, match=f'rope_scaling.*{fault}'):
    read_config({**QWEN25, 'rope_scaling': scaling})


@pytest.mark.parametrize(
  'base, fields, fault',
  [
    (QWEN25, {'layer_types': ['sliding_attention'] * 28}, 'no sliding_window'),
    (GEMMA3, {'layer_types': ['full_attention'] * 3}, 'must be 26 of'),
    (GEMMA3, {'layer_types': ['chunked_attention'] * 26}, 'must be 26 of'),
    (GEMMA3, {'rope_parameters': {'rope_theta': 1e6}}, 'by kind of layer'),
    (
      GEMMA3,
      {'rope_parameters': {'sliding_attention': {'factor': 8.0}}},
      'sliding layers are not scaled',
    ),
  ],
  ids=str,
)
def test_layers_that_do_not_fit_are_refused(base, fields, fault):
  with pytest.raises(ValueError, match=fault):
    read_config({**base, **fields})


def test_all_faults_are_told_at_once():
  fields = {**QWEN25, 'attention_bias': True, 'rope_scaling': {'type': 'su'}}
  del fields['hidden_size']
  with pytest.raises(ValueError, match='hidden_size.*attention_bias.*su'):
    read_config(fields, where='x/config.json')


def test_only_layers_that_do_not_slide_are_scaled():
  """Sliding layers have a base of their own, even one that is the same."""
  kinds = {
    'full_attention': {
      'rope_type': 'linear',
      'factor': 8.0,
      'rope_theta': 1e6,
    },
    'sliding_attention': {'rope_type': 'default', 'rope_theta': 1e6},
  }
  fields = {**GEMMA3, 'rope_parameters': kinds, 'rope_theta': None}
  config = read_config({**fields, 'rope_local_base_freq': None})
  assert config.rope_local_theta == 1e6
  assert read_config(write_config(config)) == config
  with pytest.raises(ValueError, match='rope_scaling'):
    write_config(dataclasses.replace(config, rope_local_theta=0.0))


def test_a_window_alone_gives_no_rotary_base():
  window = {'use_sliding_window': True, 'sliding_window': 8}
  config = read_config({**QWEN25, **window, 'max_window_layers': 0})
  assert any(config.slides) and not config.rope_local_theta


def test_a_decoder_that_nobody_published_is_not_exported():
  config = read_config(QWEN25)
  odd = dataclasses.replace(config, qk_norm=True, post_norms=True)
  with pytest.raises(ValueError, match='no published family.*post_norms=True'):
    write_config(odd)
  window = dataclasses.replace(read_config(LLAMA32), sliding_window=64)
  assert write_config(window)['model_type'] == 'mistral'
