"""Locks that experts compute what `transformers` computes, and go back there.

Every tensor name of an expert and its place is in this; without torch,
moe_test.py locks the mathematics by hand.
"""

import json

import jax
import jax.numpy as jnp
import model_variants
import numpy as np
import pytest

from agentrl_jax.models import hf, moe, transformer
from agentrl_jax.models.hf_config import read_config

TOKENS = model_variants.TOKENS
FIELDS = dict(
  model_type='qwen3_moe',
  hidden_size=16,
  num_hidden_layers=2,
  num_attention_heads=4,
  num_key_value_heads=2,
  head_dim=8,
  intermediate_size=20,
  vocab_size=13,
  num_experts=4,
  num_experts_per_tok=2,
  moe_intermediate_size=8,  # its kernel wants strides of 16 bytes
  norm_topk_prob=True,
  tie_word_embeddings=False,
  rope_theta=1e4,
  rms_norm_eps=1e-6,
  router_aux_loss_coef=0.001,
  decoder_sparse_step=1,
  mlp_only_layers=[],
)


@pytest.fixture(scope='module', params=[True, False])
def published(request, tmp_path_factory):
  """Returns (directory written by `transformers`, its model)."""
  torch = pytest.importorskip('torch')
  pytest.importorskip('transformers')
  fields = {**FIELDS, 'norm_topk_prob': request.param}
  model, _ = model_variants.published(fields)
  draws = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for name, value in model.named_parameters():
      spread = 0.2 if 'norm' in name else 0.5
      noise = spread * torch.randn(value.shape, generator=draws)
      value.copy_(noise + 1.0 if 'norm' in name else noise)
  directory = tmp_path_factory.mktemp('moe')
  model.save_pretrained(directory)
  return directory, model


def test_logits_are_those_of_transformers_and_go_back(published, tmp_path):
  directory, model = published
  theirs = model_variants.logits(model, TOKENS)
  config, weights = hf.load(directory)
  assert (config.num_experts, config.d_expert) == (4, 8)
  run = jax.jit(transformer.forward, static_argnums=0)
  ours, _ = run(config, weights, TOKENS)
  np.testing.assert_allclose(ours, theirs, atol=1e-5)
  hf.save(tmp_path, config, weights)
  assert hf.read_config(json.loads((tmp_path / 'config.json').read_text())) == (
    config
  )
  back = model_variants.logits(model_variants.opened(tmp_path), TOKENS)
  np.testing.assert_array_equal(back, theirs)


def test_the_balance_of_a_layer_is_that_of_transformers():
  torch = pytest.importorskip('torch')
  pytest.importorskip('transformers')
  from transformers.models.qwen3_moe import modeling_qwen3_moe

  draws = np.random.default_rng(0)
  logits = np.float32(draws.normal(size=(2, 9, 4)))
  mask = np.arange(9) < np.array([[9], [5]])
  theirs = modeling_qwen3_moe.load_balancing_loss_func(
    (torch.tensor(logits.reshape(18, 4)),), 4, 2, torch.tensor(mask).long()
  )

  @jax.jit
  def ours(logits, mask):
    routes = moe.route(logits, jnp.eye(4), 2, renormalise=True)
    return moe.balance_loss(routes, mask)

  np.testing.assert_allclose(
    ours(logits.reshape(18, 4), mask.reshape(18)), float(theirs), rtol=1e-5
  )


@pytest.mark.parametrize(
  'field, value', [('decoder_sparse_step', 2), ('mlp_only_layers', [0])]
)
def test_layers_without_experts_among_others_are_refused(field, value):
  with pytest.raises(ValueError, match=field):
    read_config({**FIELDS, field: value})


def test_both_names_of_a_number_of_experts_are_read():
  late = {k: v for k, v in FIELDS.items() if k != 'num_experts'}
  config = read_config({**late, 'num_local_experts': 4})
  assert config == read_config(FIELDS) and config.num_experts == 4
  with pytest.raises(ValueError, match='num_experts is missing'):
    read_config(late)
