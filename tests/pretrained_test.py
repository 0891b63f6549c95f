"""Weights of somebody else: found, read in their shape, checked by config."""

import dataclasses

import jax
import numpy as np
import pytest

from agentrl_jax import assembly, config, pretrained, weights
from agentrl_jax.models import hf, params
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.text import tokenizer as tokenizer_lib

THEIRS = ModelConfig(
  num_layers=2,
  d_model=16,
  num_heads=2,
  num_kv_heads=1,
  head_dim=8,
  d_ff=24,
  vocab_size=300,
  rope_theta=5e5,
  qk_norm=False,
)


@pytest.fixture(scope='module')
def model(tmp_path_factory):
  """(directory, weights in it): with a tokenizer of fewer tokens."""
  path = tmp_path_factory.mktemp('model')
  draw = np.random.default_rng(0)
  made = jax.tree.map(
    lambda x: draw.normal(0.0, 0.2, x.shape).astype(np.float32),
    params.abstract(THEIRS),
  )
  hf.save(path, THEIRS, made)
  tokenizer_lib.train(['Book.'], vocab_size=270).save(path)
  return path, made


def plain(path, **sets):
  """The same on top of the default shape, which nobody touched."""
  c = config.default()
  c.model.weights = str(path)
  c.update(sets)
  return c


def test_shape_vocabulary_and_tokenizer_are_theirs(model):
  path, _ = model
  c = plain(path)
  language = assembly.language(c)
  assert language.tokenizer.vocab_size < 300
  ours = assembly.model_config(c, language.tokenizer.vocab_size)
  for field in dataclasses.fields(ModelConfig):
    if field.name not in (*pretrained.HOW, 'lora'):
      assert getattr(ours, field.name) == getattr(THEIRS, field.name)
  # How it computes is the run's.
  assert ours.scan_unroll == c.model.scan_unroll != THEIRS.scan_unroll
  with pytest.raises(config.ConfigError, match='know 300 tokens'):
    assembly.model_config(c, 301)


def test_the_first_weights_are_theirs(model):
  path, made = model
  c = plain(path)
  ours = assembly.model_config(c, 270)
  mesh = assembly.mesh(c)
  first = weights.first_params(c, ours, mesh)
  jax.tree.map(np.testing.assert_array_equal, first, made)
  c.lora.rank, c.lora.base_dtype = 2, 'bfloat16'
  frozen = weights.first_params(c, assembly.model_config(c, 270), mesh)
  assert {str(x.dtype) for x in jax.tree.leaves(frozen)} == {'bfloat16'}
  # All weights are fine-tuned first: they keep their digits until then.
  c.sft.steps = 5
  first = weights.first_params(c, assembly.model_config(c, 270), mesh)
  assert {str(x.dtype) for x in jax.tree.leaves(first)} == {'float32'}


def test_a_field_that_they_would_overrule_is_a_fault(model):
  path, _ = model
  default = config.default().model.to_dict()
  assert pretrained.faults(plain(path).model.to_dict(), default) == []
  c = plain(path)
  c.model.d_model = 16  # as they have it
  c.model.num_layers = 7
  (fault,) = pretrained.faults(c.model.to_dict(), default)
  assert fault.startswith('config.model.num_layers=7: the weights say 2')
  c.model.weights = ''
  assert pretrained.faults(c.model.to_dict(), default) == []


def test_every_shape_field_of_the_config_is_one_of_theirs():
  """A field that is neither shape nor in HOW would be compared with nothing."""
  names = {field.name for field in dataclasses.fields(ModelConfig)}
  assert set(config.default().model) - set(pretrained.HOW) <= names


@pytest.mark.parametrize(
  'name, told',
  [
    ('/nowhere', 'not there'),
    ('no_such_package_here:model.gguf', 'no package'),
    ('json:model.gguf', 'not there'),
  ],
)
def test_what_is_not_there_is_told(name, told):
  with pytest.raises(ValueError, match=told):
    pretrained.find(name)
  (fault,) = pretrained.faults(
    {'weights': name}, config.default().model.to_dict()
  )
  assert fault.startswith(f'config.model.weights={name}: ') and told in fault


def test_a_directory_in_a_package_is_found(tmp_path, monkeypatch, model):
  package = tmp_path / 'carries_a_model'
  package.mkdir()
  (package / '__init__.py').write_text('')
  (package / 'inner').symlink_to(model[0])
  monkeypatch.syspath_prepend(tmp_path)
  assert pretrained.find('carries_a_model:inner') == package / 'inner'
  assert pretrained.shape('carries_a_model:inner').d_model == 16


def test_an_empty_directory_is_told(tmp_path):
  with pytest.raises(ValueError, match='no config.json'):
    pretrained.shape(str(tmp_path))
  assert pretrained.tokenizer(str(tmp_path)) is None
