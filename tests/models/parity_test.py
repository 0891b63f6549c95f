"""Locks every family: logits of `transformers`, files back, cache and packing.

Without torch, tests/golden/families.json speaks for `transformers`.
"""

import functools
import json

import jax
import jax.numpy as jnp
import model_variants
import numpy as np
import pytest
import safetensors.numpy
from model_variants import PLACES, TOKENS, VARIANTS

from agentrl_jax.models import cache, hf, params, transformer

GOLDEN = json.loads(model_variants.GOLDEN.read_text(encoding='utf-8'))
# The window of 4 is crossed; kinds of layers alternate in two of them.
SLIDING = ('mistral', 'qwen2_sliding', 'gemma3')
WIDE = 18  # columns of rows and of the cache


@pytest.fixture(scope='module')
def published(tmp_path_factory):
  """f(variant) -> directory as published."""

  @functools.cache
  def write(name):
    directory = tmp_path_factory.mktemp('published') / name
    model_variants.write(directory, VARIANTS[name], GOLDEN[name]['shapes'])
    return directory

  return write


@functools.partial(jax.jit, static_argnums=0)
def forward(config, weights, tokens, positions=None, segments=None):
  return transformer.forward(
    config, weights, tokens, positions=positions, segment_ids=segments
  )[0]


@functools.partial(jax.jit, static_argnums=0)
def cached(config, weights, tokens, positions, held):
  return transformer.forward(
    config, params.unstack(weights), tokens, positions=positions, cache=held
  )


@pytest.mark.parametrize('name', VARIANTS)
def test_logits_are_those_of_transformers_and_files_come_back(
  name, published, tmp_path
):
  config, weights = hf.load(published(name))
  ours = forward(config, weights, TOKENS)[:, np.array(PLACES)]
  np.testing.assert_allclose(ours, GOLDEN[name]['logits'], atol=1e-5)
  hf.save(tmp_path, config, weights)
  before, after = (
    safetensors.numpy.load_file(directory / 'model.safetensors')
    for directory in (published(name), tmp_path)
  )
  assert before.keys() == after.keys()
  for tensor in before:
    np.testing.assert_array_equal(before[tensor], after[tensor])
  fields = json.loads((tmp_path / 'config.json').read_text())
  assert hf.read_config(fields) == config
  kind = VARIANTS[name]['model_type']
  whole = name == 'mistral_whole'  # without a window it is a Llama
  assert fields['model_type'] == ('llama' if whole else kind)


@pytest.mark.parametrize('name', VARIANTS)
def test_transformers_reads_what_is_saved(name, published, tmp_path):
  pytest.importorskip('torch')
  pytest.importorskip('transformers')
  theirs = model_variants.logits(model_variants.opened(published(name)), TOKENS)
  config, weights = hf.load(published(name))
  ours = forward(config, weights, TOKENS)
  np.testing.assert_allclose(ours, theirs, atol=1e-5)
  np.testing.assert_allclose(
    theirs[:, np.array(PLACES)], GOLDEN[name]['logits'], atol=1e-5
  )
  hf.save(tmp_path, config, weights)
  back = model_variants.logits(model_variants.opened(tmp_path), TOKENS)
  np.testing.assert_array_equal(back, theirs)


@pytest.mark.parametrize('name', SLIDING)
def test_chunks_and_single_tokens_equal_the_full_forward(name, published):
  config, weights = hf.load(published(name))
  full = forward(config, weights, TOKENS)
  held = cache.init(config, 2, WIDE)
  # The second row forgets three tokens, and gets them anew.
  for starts, width in (((0, 0), 5), ((5, 2), 5), ((10, 7), 1), ((11, 8), 1)):
    places = np.array(starts)[:, None] + np.arange(width)
    tokens = np.take_along_axis(TOKENS, places, 1)
    logits, held = cached(config, weights, tokens, jnp.array(places), held)
    for row in range(2):
      expected = full[row, starts[row] : starts[row] + width]
      np.testing.assert_allclose(logits[row], expected, atol=1e-5)


@pytest.mark.parametrize('name', SLIDING)
def test_packing_and_padding_change_nothing(name, published):
  """Segments are longer than the window, which reaches across their border."""
  config, weights = hf.load(published(name))
  first, second = TOKENS[:1, :7], TOKENS[1:, :9]
  rest = WIDE - 16
  packed = np.concatenate([first, second, np.full((1, rest), 6)], axis=1)
  positions = np.array([[*range(7), *range(9), *[0] * rest]])
  segments = np.array([[1] * 7 + [2] * 9 + [0] * rest])
  logits = forward(config, weights, packed, positions, segments)
  assert np.isfinite(logits).all()
  for part, alone in ((logits[:, :7], first), (logits[:, 7:16], second)):
    expected = forward(config, weights, alone)
    np.testing.assert_allclose(part, expected, atol=1e-5)


@pytest.mark.parametrize('name', SLIDING)
def test_a_token_behind_every_window_is_not_seen(name, published):
  """A token reaches 3 further in each sliding layer, and far in another."""
  config, weights = hf.load(published(name))
  other = TOKENS.copy()
  other[:, 0] = (other[:, 0] + 1) % 13
  gap = np.abs(
    forward(config, weights, TOKENS) - forward(config, weights, other)
  ).max(axis=(0, 2))
  assert gap[6] > 1e-4  # two sliding layers reach that far
  reach = 3 * config.num_layers if all(config.slides) else 13
  assert (gap[reach + 1 :] == 0).all() and gap[reach] > 0
