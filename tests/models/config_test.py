"""Locks the named shapes: what they are called is what they weigh."""

import math

import jax
import pytest

from agentrl_jax.models import params
from agentrl_jax.models.config import PRESETS, ModelConfig


def make(name, **fields):
  return ModelConfig(**{'vocab_size': 512, **PRESETS[name], **fields})


def size(config):
  weights = jax.tree.leaves(
    params.describe(config), is_leaf=lambda x: isinstance(x, params.Weight)
  )
  return sum(math.prod(weight.shape) for weight in weights)


@pytest.mark.parametrize(
  'name, millions, fields',
  [
    ('0.6m', 0.6, {}),
    ('2m', 2, {}),
    ('5m', 5, {}),
    # As published: 0.6 B and 1.7 B, head tied to 151,936 embeddings.
    ('qwen3_0.6b', 596, {'vocab_size': 151_936}),
    ('qwen3_1.7b', 1721, {'vocab_size': 151_936}),
  ],
)
def test_a_preset_weighs_what_its_name_says(name, millions, fields):
  assert size(make(name, **fields)) / 1e6 == pytest.approx(millions, rel=0.2)


# As published: weights without those of embedding and head, in millions, and
# the vocabulary that adds them (once if they are tied).
@pytest.mark.parametrize(
  'name, inner, vocab_size',
  [
    ('qwen3_8b', 6946, 151_936),  # 8191 M in all
    ('qwen3_32b', 31_206, 151_936),  # 32,762 M
    ('qwen3_30b_a3b', 29_910, 151_936),  # 30,532 M
    ('qwen2.5_1.5b', 1310, 151_936),  # 1544 M
    ('qwen2.5_7b', 6526, 152_064),  # 7616 M
    ('llama3_8b', 6980, 128_256),  # 8030 M
    ('smollm2_135m', 106, 49_152),  # 134.5 M
    ('mistral_7b', 6980, 32_000),  # 7242 M
    ('gemma3_1b', 698, 262_144),  # 1000 M
  ],
)
def test_a_published_shape_weighs_what_was_published(name, inner, vocab_size):
  config = make(name, vocab_size=vocab_size)
  outer = (1 if config.tie_embeddings else 2) * vocab_size * config.d_model
  assert (size(config) - outer) / 1e6 == pytest.approx(inner, rel=2e-3)


def test_which_layers_slide():
  config = make('tiny', num_layers=5, sliding_window=8)
  assert config.slides == (True,) * 5
  mixed = make(
    'tiny', num_layers=5, sliding_window=8, sliding_layers=(True, False)
  )
  assert mixed.slides == (True, False, True, False, True)
  assert make('tiny', sliding_layers=(True,)).slides == (False, False)


def test_the_size_of_the_tiny_one_by_hand():
  # Embedding and head 2 x 512 x 32; a block: q and o 2 x 32 x 32, k and v
  # 2 x 32 x 16, MLP 3 x 32 x 64, norms 32 + 32 + 8 + 8; the last norm 32.
  block = 2 * 1024 + 2 * 512 + 3 * 2048 + 80
  assert size(make('tiny')) == 2 * 512 * 32 + 2 * block + 32
  assert size(make('tiny', tie_embeddings=True)) == 512 * 32 + 2 * block + 32
  assert size(make('tiny', qk_norm=False)) == size(make('tiny')) - 2 * 16


@pytest.mark.parametrize('name', PRESETS)
def test_presets_are_shapes_that_can_be(name):
  config = make(name)
  assert config.num_heads % config.num_kv_heads == 0
  assert config.head_dim % 2 == 0  # rotary pairs


def test_a_config_is_static_for_jit():
  assert make('tiny') == make('tiny') != make('tiny', dtype='bfloat16')
  assert len({make(name) for name in PRESETS} | {make('tiny')}) == len(PRESETS)
