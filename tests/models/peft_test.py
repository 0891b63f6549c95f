"""Locks: adapters go out to the layout of `peft` and come back."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import safetensors.numpy

from agentrl_jax.models import hf, lora, params, peft, transformer
from agentrl_jax.models.config import ModelConfig

LORA = lora.Lora(rank=3, alpha=6.0, targets=tuple(lora.INPUTS))
CONFIG = ModelConfig(
  num_layers=2,
  d_model=12,
  num_heads=4,
  num_kv_heads=2,
  head_dim=6,
  d_ff=20,
  vocab_size=11,
  lora=LORA,
)
WEIGHTS = 'adapter_model.safetensors'


def random_params(config=CONFIG):
  draw = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: draw.normal(0.0, 0.4, x.shape).astype(np.float32),
    params.abstract(config),
  )


def edit(directory, **fields):
  path = directory / 'adapter_config.json'
  path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize('targets', [LORA.targets, ('o', 'up')])
def test_saved_and_loaded_they_are_the_same(targets, tmp_path):
  chosen = dataclasses.replace(LORA, targets=targets)
  config = dataclasses.replace(CONFIG, lora=chosen)
  made = random_params(config)
  peft.save(tmp_path, config, made, base='the base')
  assert peft.read_config(tmp_path) == chosen
  loaded = peft.load(tmp_path, config)
  wanted, _ = lora.split(made)
  assert jax.tree.structure(loaded) == jax.tree.structure(wanted)
  jax.tree.map(np.testing.assert_array_equal, loaded, wanted)


def test_layout_by_hand(tmp_path):
  made = random_params()
  peft.save(tmp_path, CONFIG, made, base='the base')
  there = safetensors.numpy.load_file(tmp_path / WEIGHTS)
  assert len(there) == 2 * 7 * 2
  ours = made['layers']['lora']
  block = 'base_model.model.model.layers.1.'
  # A of the output matrix reads component c of head h at column h*C + c.
  a = there[block + 'self_attn.o_proj.lora_A.weight']
  assert a.shape == (3, 24)
  np.testing.assert_array_equal(a[:, 2 * 6 + 1], ours['o']['a'][1, 2, 1])
  # B of the queries writes it at row h*C + c.
  b = there[block + 'self_attn.q_proj.lora_B.weight']
  assert b.shape == (24, 3)
  np.testing.assert_array_equal(b[3 * 6 + 5], ours['q']['b'][1, :, 3, 5])
  fields = json.loads((tmp_path / 'adapter_config.json').read_text())
  assert (fields['r'], fields['lora_alpha']) == (3, 6.0)
  assert fields['base_model_name_or_path'] == 'the base'
  assert 'gate_proj' in fields['target_modules']


def test_peft_gives_the_same_logits(tmp_path):
  torch = pytest.importorskip('torch')
  transformers = pytest.importorskip('transformers')
  theirs = pytest.importorskip('peft')
  made = random_params()
  base_config = dataclasses.replace(CONFIG, lora=None)
  hf.save(tmp_path / 'base', base_config, lora.base(made))
  peft.save(tmp_path / 'ours', CONFIG, made, base=str(tmp_path / 'base'))
  model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / 'base')
  model = theirs.PeftModel.from_pretrained(model, tmp_path / 'ours')
  tokens = np.random.default_rng(1).integers(0, 11, (2, 9))
  with torch.no_grad():
    expected = model(torch.tensor(tokens)).logits.numpy()
    with model.disable_adapter():
      plain = model(torch.tensor(tokens)).logits.numpy()
  assert np.abs(expected - plain).max() > 0.1
  with jax.numpy_rank_promotion('allow'):
    ours, _ = transformer.forward(CONFIG, made, tokens)
  np.testing.assert_allclose(ours, expected, atol=1e-5, rtol=1e-5)
  # And what peft writes is read.
  model.save_pretrained(tmp_path / 'theirs')
  again = peft.load(tmp_path / 'theirs', CONFIG)
  jax.tree.map(np.testing.assert_array_equal, again, lora.split(made)[0])


REFUSED = {
  'peft_type': 'IA3',
  'use_rslora': True,
  'use_dora': True,
  'bias': 'all',
  'modules_to_save': ['lm_head'],
  'rank_pattern': {'q_proj': 4},
  'layers_to_transform': [1],
  'init_lora_weights': 'pissa',
  'a_field_of_the_future': {'on': True},
  'target_modules': ['q_proj', 'embed_tokens'],
}


@pytest.mark.parametrize('field', REFUSED)
def test_a_field_that_changes_the_maths_is_refused(field, tmp_path):
  peft.save(tmp_path, CONFIG, random_params())
  edit(tmp_path, **{field: REFUSED[field]})
  with pytest.raises(ValueError, match=field):
    peft.load(tmp_path, CONFIG)


def test_all_linear_and_patterns(tmp_path):
  peft.save(tmp_path, CONFIG, random_params())
  edit(tmp_path, target_modules='all-linear')
  assert peft.read_config(tmp_path) == LORA
  edit(tmp_path, target_modules='.*_proj')
  with pytest.raises(ValueError, match='name the modules'):
    peft.read_config(tmp_path)


def test_what_is_missing_is_told_at_once(tmp_path):
  peft.save(tmp_path, CONFIG, random_params())
  path = tmp_path / 'adapter_config.json'
  fields = json.loads(path.read_text('utf-8'))
  for name in ('r', 'target_modules'):
    del fields[name]
  path.write_text(json.dumps(fields), 'utf-8')
  with pytest.raises(ValueError) as raised:
    peft.read_config(tmp_path)
  assert 'r is missing; target_modules is missing' in str(raised.value)


def test_what_does_not_fit_is_told(tmp_path):
  peft.save(tmp_path, CONFIG, random_params())
  other = dataclasses.replace(CONFIG, lora=dataclasses.replace(LORA, rank=4))
  with pytest.raises(ValueError, match='it has rank=3, alpha=6'):
    peft.load(tmp_path, other)
  wider = dataclasses.replace(CONFIG, d_ff=24)
  with pytest.raises(ValueError, match=r'mlp.gate_proj.lora_B.weight: \(20'):
    peft.load(tmp_path, wider)
  tensors = safetensors.numpy.load_file(tmp_path / WEIGHTS)
  name, value = tensors.popitem()
  safetensors.numpy.save_file({**tensors, 'strange': value}, tmp_path / WEIGHTS)
  with pytest.raises(ValueError, match='missing'):
    peft.load(tmp_path, CONFIG)
  safetensors.numpy.save_file(
    {**tensors, name: value, 'strange': value}, tmp_path / WEIGHTS
  )
  with pytest.raises(ValueError, match='strange'):
    peft.load(tmp_path, CONFIG)
  with pytest.raises(ValueError, match='no adapter_config.json'):
    peft.load(tmp_path / 'nowhere', CONFIG)
  with pytest.raises(ValueError, match='rank is 0'):
    plain = dataclasses.replace(CONFIG, lora=None)
    peft.save(tmp_path, plain, random_params(plain))
