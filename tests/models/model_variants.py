"""Tiny published models of every family and rotary variant, and their logits.

Weights are a hash of tensor name and place, so that no generator is involved.
The logits that `transformers` gives for them are in tests/golden/families.json,
written by this command (it needs torch):

.venv/bin/python tests/models/model_variants.py
"""

import json
import pathlib
import zlib

import numpy as np
import safetensors.numpy

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden' / 'families.json'
TOKENS = np.array(
  [
    [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7],
    [12, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5, 9, 0],
  ],
  np.int32,
)
PLACES = (0, 5, 13)  # of which logits are kept

_SHAPE = {
  'hidden_size': 16,
  'num_hidden_layers': 2,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'intermediate_size': 20,
  'vocab_size': 13,
  'rms_norm_eps': 1e-5,
  'max_position_embeddings': 128,
  'tie_word_embeddings': False,
  'rope_theta': 1e4,
  'bos_token_id': 1,
  'eos_token_id': 2,
  'pad_token_id': 0,
}
_LLAMA = {**_SHAPE, 'model_type': 'llama', 'hidden_act': 'silu'}
_QWEN2 = {**_SHAPE, 'model_type': 'qwen2', 'hidden_act': 'silu'}
_QWEN3 = {**_QWEN2, 'model_type': 'qwen3', 'head_dim': 8}
_GEMMA = {
  **_SHAPE,
  'model_type': 'gemma3_text',
  'num_hidden_layers': 4,
  'head_dim': 8,
  'hidden_activation': 'gelu_pytorch_tanh',
  'tie_word_embeddings': True,
  'query_pre_attn_scalar': 6,
  'sliding_window': 4,
  'sliding_window_pattern': 3,
  'rope_theta': 1e6,
  'rope_local_base_freq': 1e4,
}
_YARN = {
  'rope_type': 'yarn',
  'factor': 4.0,
  'original_max_position_embeddings': 32,
}
_SLOW = {'beta_fast': 2.0, 'beta_slow': 0.25, 'truncate': False}

VARIANTS = {
  'llama2': {**_LLAMA, 'num_key_value_heads': 4},
  'llama3': {
    **_LLAMA,
    'head_dim': 8,
    'rope_scaling': {
      'rope_type': 'llama3',
      'factor': 8.0,
      'low_freq_factor': 1.0,
      'high_freq_factor': 4.0,
      'original_max_position_embeddings': 64,
    },
  },
  'smollm2': {**_LLAMA, 'rope_theta': 1e5, 'tie_word_embeddings': True},
  'linear': {**_LLAMA, 'rope_scaling': {'type': 'linear', 'factor': 3.0}},
  'qwen2': _QWEN2,
  'qwen2_sliding': {
    **_QWEN2,
    'num_hidden_layers': 3,
    'use_sliding_window': True,
    'sliding_window': 4,
    'max_window_layers': 1,
  },
  'qwen3': _QWEN3,
  'qwen3_tied': {**_QWEN3, 'tie_word_embeddings': True},
  'yarn': {**_QWEN3, 'rope_scaling': _YARN},
  'yarn_mixed': {
    **_QWEN3,
    'rope_scaling': {**_YARN, **_SLOW, 'attention_factor': 1.25},
  },
  'yarn_mscale': {
    **_LLAMA,
    'rope_scaling': {**_YARN, 'mscale': 0.7, 'mscale_all_dim': 1.3},
  },
  'mistral': {**_LLAMA, 'model_type': 'mistral', 'sliding_window': 4},
  'mistral_whole': {**_LLAMA, 'model_type': 'mistral', 'sliding_window': None},
  'gemma3': _GEMMA,
  'gemma3_linear': {
    **_GEMMA,
    'rope_scaling': {'rope_type': 'linear', 'factor': 8.0},
  },
}


def tensor(name: str, shape: list[int], centered: bool) -> np.ndarray:
  """Values in (-1, 1), of norms around 1 (or 0 where 1 is added to them)."""
  with np.errstate(over='ignore'):
    z = np.arange(np.prod(shape), dtype=np.uint64)
    z = (z + np.uint64(zlib.crc32(name.encode()))) * np.uint64(
      0x9E3779B97F4A7C15
    )
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(31)
  unit = (z >> np.uint64(40)).astype(np.float32) / 2**23 - 1
  unit = unit.reshape(shape)
  if 'norm' in name:
    return 0.4 * unit + (0.0 if centered else 1.0)
  return (0.9 if 'embed' in name else 0.5) * unit


def write(directory: pathlib.Path, fields: dict, shapes: dict) -> None:
  """Writes a model directory as somebody would have published it."""
  directory.mkdir(parents=True, exist_ok=True)
  centered = fields['model_type'] == 'gemma3_text'
  tensors = {
    name: np.ascontiguousarray(tensor(name, shape, centered))
    for name, shape in shapes.items()
  }
  safetensors.numpy.save_file(
    tensors, directory / 'model.safetensors', metadata={'format': 'pt'}
  )
  (directory / 'config.json').write_text(json.dumps(fields))


def published(fields: dict):
  """Returns (a `transformers` model, names and shapes of its tensors)."""
  import torch
  import transformers

  rest = {key: value for key, value in fields.items() if key != 'model_type'}
  config = transformers.AutoConfig.for_model(fields['model_type'], **rest)
  model = transformers.AutoModelForCausalLM.from_config(
    config, attn_implementation='eager', dtype=torch.float32
  )
  tied = fields['tie_word_embeddings']
  shapes = {
    name: list(value.shape)
    for name, value in model.state_dict().items()
    if not (tied and name == 'lm_head.weight')
  }
  return model, shapes


def logits(model, tokens: np.ndarray) -> np.ndarray:
  """[R, T, V] of a `transformers` model."""
  import torch

  with torch.no_grad():
    return model.eval()(torch.tensor(tokens.astype(np.int64))).logits.numpy()


def opened(directory: pathlib.Path):
  """Returns the model that `transformers` reads there."""
  import torch
  import transformers

  return transformers.AutoModelForCausalLM.from_pretrained(
    directory, attn_implementation='eager', dtype=torch.float32
  )


def main() -> None:
  """Writes the golden file."""
  import tempfile

  golden = {}
  with tempfile.TemporaryDirectory() as root:
    for name, fields in VARIANTS.items():
      _, shapes = published(fields)
      directory = pathlib.Path(root, name)
      write(directory, fields, shapes)
      values = logits(opened(directory), TOKENS)[:, PLACES]
      golden[name] = {
        'shapes': shapes,
        'logits': np.round(values.astype(float), 6).tolist(),
      }
  lines = (f'{json.dumps(k)}: {json.dumps(v)}' for k, v in golden.items())
  GOLDEN.write_text('{\n' + ',\n'.join(lines) + '\n}\n', encoding='utf-8')


if __name__ == '__main__':
  main()
