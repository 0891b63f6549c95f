"""Compares with TRL: with its stored numbers, and live where it is installed.

Where we differ on purpose docs/conformance.md says why.
"""

import importlib.util
import json
import pathlib

import jax
import numpy as np
import pytest

from agentrl_jax import losses

FILE = pathlib.Path(__file__).with_name('trl_reference.py')
CLOSE = dict(rtol=1e-5, atol=1e-6)


def load():
  spec = importlib.util.spec_from_file_location(FILE.stem, FILE)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


reference = load()
STORED = json.loads(reference.GOLDEN.read_text())

CLIP = dict(clip_low=0.2, clip_high=0.28)
NARROW = dict(clip_low=0.03, clip_high=0.04)
# TRL's name -> our loss, its options, our weighting
OURS = {
  'grpo': ('ppo_clip', CLIP, 'sequence_token_mean'),
  'grpo_on_policy': ('ppo_clip', CLIP, 'sequence_token_mean'),
  'grpo_delta': ('ppo_clip', {**CLIP, 'dual_clip': 1.5}, 'sequence_token_mean'),
  'grpo_kl': ('ppo_clip', CLIP, 'sequence_token_mean'),
  'gspo': ('gspo', NARROW, 'sequence_token_mean'),
  'bnpo': ('ppo_clip', CLIP, 'token'),
  'dapo': ('ppo_clip', CLIP, 'token'),
  'dr_grpo': ('ppo_clip', CLIP, 'constant'),
  'cispo': ('cispo', dict(clip_low=1.0, clip_high=0.28), 'token'),
  'sapo': ('sapo', {}, 'sequence_token_mean'),
  'luspo': ('gspo', NARROW, 'sequence_token_sum'),
}


def ours(name):
  """(loss, gradient by log-probability) of the same case."""
  arrays, case = reference.batch(), reference.CASES[name]
  kind, options, weighting = OURS[name]
  mask = arrays['completion_mask'] & arrays['tool_mask']
  rows = np.arange(len(mask), dtype=np.int32)[:, None]
  ids = np.broadcast_to(rows, mask.shape)
  advantages = np.broadcast_to(arrays['advantages'][:, None], mask.shape)
  old = arrays['logprobs' if case.get('on_policy') else 'old_logprobs']
  weights = losses.token_weights(
    mask,
    weighting=weighting,
    sequence_ids=ids,
    constant=float(len(mask) * reference.WIDTH),
  )

  def scalar(logprobs):
    values = losses.LOSSES[kind](
      logprobs, old, advantages, ids, mask, **options
    )
    values += case.get('beta', 0.0) * losses.kl_penalty(
      logprobs, arrays['reference_logprobs'], mask
    )
    return losses.aggregate(values, weights)

  return jax.jit(jax.value_and_grad(scalar))(arrays['logprobs'])


@pytest.mark.parametrize('name', OURS)
def test_stored_numbers_are_ours(name):
  want = STORED['expected'][name]
  loss, grad = ours(name)
  np.testing.assert_allclose(loss, want['loss'], **CLOSE)
  np.testing.assert_allclose(grad, np.array(want['grad']), **CLOSE)


def test_every_case_is_stored_and_compared():
  assert STORED['expected'].keys() == OURS.keys() == reference.CASES.keys()
  assert STORED['width'] == reference.WIDTH
  assert set(STORED['versions']) == {'trl', 'torch'}


def test_the_cases_tell_the_losses_apart():
  # Every clip binds somewhere: no two have one loss but BNPO and DAPO, which
  # differ in what they count over several microbatches only.
  found = {}
  for name, numbers in STORED['expected'].items():
    found.setdefault(round(numbers['loss'], 5), []).append(name)
  assert [names for names in found.values() if len(names) > 1] == [
    ['bnpo', 'dapo']
  ]


@pytest.mark.parametrize('name', OURS)
def test_the_installed_trl_gives_the_stored_numbers(name):
  pytest.importorskip('torch')
  pytest.importorskip('trl')
  case = reference.defaults() | reference.CASES[name]
  live = reference.trl_loss(case, reference.batch())
  want = STORED['expected'][name]
  np.testing.assert_allclose(live['loss'], want['loss'], **CLOSE)
  np.testing.assert_allclose(live['grad'], want['grad'], **CLOSE)
