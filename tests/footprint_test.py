"""Locks the arithmetic of memory and time, by hand and against XLA's count."""

import dataclasses

import pytest

from agentrl_jax import footprint, losses, sharding
from agentrl_jax.learner import objective, optimizer, step
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import PRESETS, ModelConfig
from agentrl_jax.rollout import collate

QWEN = ModelConfig(
  vocab_size=151_936, dtype='bfloat16', **PRESETS['qwen2.5_1.5b']
)
MOE = ModelConfig(
  vocab_size=151_936, dtype='bfloat16', **PRESETS['qwen3_30b_a3b']
)


def plan(model=QWEN, mesh=None, **fields):
  return footprint.Plan(model=model, mesh=mesh or {'fsdp': 8}, **fields)


def test_published_sizes():
  # 1.54 and 30.5 billion weights, 3.3 of which a token meets, as published.
  assert params_lib.count(QWEN) == pytest.approx(1.54e9, rel=5e-3)
  assert params_lib.count(MOE) == pytest.approx(30.5e9, rel=5e-3)
  embedding = MOE.vocab_size * MOE.d_model
  active = footprint.active_count(MOE) + embedding
  assert active == pytest.approx(3.3e9, rel=2e-2)
  # A tied table is met once, as the head.
  assert footprint.active_count(QWEN) == pytest.approx(1.54e9, rel=5e-3)


def test_weights_on_a_device_by_hand():
  model = ModelConfig(vocab_size=10, qk_norm=False, **PRESETS['tiny'])
  # L 2, D 32, H 4, K 2, C 8, F 64. Matrices: table and head 2 x 10 x 32;
  # a layer q 1024, k 512, v 512, o 1024, three of 2048.
  matrices = 640 + 2 * (3072 + 6144)
  norms = 2 * 2 * 32 + 32  # replicated: their axis has no rule
  assert footprint.shard_bytes(model, {'fsdp': 1}) == 4 * (matrices + norms)
  assert footprint.shard_bytes(model, {'fsdp': 8}, 1) == matrices / 8 + norms
  # Of two kv heads nothing goes over four devices.
  kv = 2 * 2 * 512
  whole = (matrices - kv - 640) / 4 + kv + 640 + norms
  assert footprint.shard_bytes(model, {'tensor': 4}, 1) == whole
  # A sampler's copy is not split by fsdp.
  rules = sharding.SAMPLER_RULES
  assert footprint.shard_bytes(model, {'fsdp': 8}, 1, rules) == matrices + norms


def test_cache_by_hand():
  # 2 x 28 layers x 2 heads x 128 x 4096 columns x 2 bytes = 117 MB a slot.
  slot = 2 * 28 * 2 * 128 * 4096 * 2
  assert footprint.cache_bytes(plan(slots=16)) == 2 * slot
  assert footprint.cache_bytes(plan(slots=12)) == 12 * slot  # 8 does not divide
  two = plan(slots=16, mesh={'fsdp': 4, 'tensor': 2})
  assert footprint.cache_bytes(two) == 4 * slot / 2


def test_what_is_kept_of_blocks_by_hand():
  tokens, d = 4096, 1536
  # q 1536, k and v 512, o and down 3072, gate and up 17920.
  products = tokens * (1536 + 512 + 3072 + 17920)
  block = 2 * tokens * d
  work = 2 * 2 * 2 * products  # as much besides products; with gradients; 2 B
  for remat, kept in (
    ('block', block),
    ('dots', block + 2 * products),
    ('none', block + 2 * 2 * products),
  ):
    model = dataclasses.replace(QWEN, remat=remat)
    got = footprint.activation_bytes(plan(model))
    assert got == pytest.approx(28 * kept + work)
  # Scores: 12 heads x 4096²/2 in float32 and bfloat16, with gradients.
  held = footprint.activation_bytes(plan(fused_attention=False))
  scores = 2 * 12 * 4096**2 / 2 * 6
  assert held - footprint.activation_bytes(plan()) == pytest.approx(scores)


def test_operations_by_hand():
  model = dataclasses.replace(QWEN, remat='none')
  head = 151_936 * 1536
  body = footprint.active_count(model) - head
  attention = 12 * 28 * 1536 * 4096 / 2
  whole = plan(model, head_chunk=0)
  flops = footprint.train_flops(whole, 1.0)
  assert flops == pytest.approx(6 * (body + head) + attention)
  again = footprint.train_flops(plan(model), 1.0)  # chunks make logits twice
  assert again - flops == pytest.approx(2 * head)
  redone = footprint.train_flops(plan(), 1.0) - again
  assert redone == pytest.approx(2 * body + attention / 3)


def test_seconds_by_hand():
  one = plan(mesh={'fsdp': 1}, slots=64, trajectories=64, sampled=100)
  unit = footprint.Hardware(flops=1e15, memory=1, bandwidth=1e12, link=1e11)
  times = footprint.seconds(
    one, unit, mfu=0.5, prefill_mfu=1.0, bandwidth_share=0.5
  )
  body = footprint.active_count(QWEN) - 151_936 * 1536
  assert times['prefill'] == pytest.approx(2 * body * 64 * 2048 / 1e15)
  # 100 steps, each reads all weights and half of the cache.
  read = 2 * params_lib.count(QWEN) + footprint.cache_bytes(one) / 2
  assert times['decode'] == pytest.approx(100 * read / 5e11)
  flops = footprint.train_flops(one, 64 * 2148)
  assert times['train'] == pytest.approx(flops / 5e14)
  # On one device nothing goes over a link; 3.1 GB pass three times.
  assert times['publish'] == pytest.approx(
    3 * 2 * params_lib.count(QWEN) / 1e12
  )
  with_reference = dataclasses.replace(one, reference=True)
  more = footprint.seconds(with_reference, unit, mfu=0.5)
  assert more['train'] == pytest.approx(4 / 3 * times['train'])


def test_few_tokens_read_few_experts():
  mesh = {'fsdp': 8}
  few, many = (plan(MOE, mesh, slots=8 * n) for n in (1, 512))
  # One token reads 8 of 128 experts, and what is not an expert.
  experts = 48 * 128 * 3 * 2048 * 768
  dense = 1 - experts / params_lib.count(MOE)
  want = dense + (1 - dense) * 8 / 128
  assert footprint.touched_share(few) == pytest.approx(want, rel=1e-2)
  assert footprint.touched_share(many) > 0.99
  assert footprint.touched_share(plan()) == 1


MODERATE = ModelConfig(vocab_size=4096, **PRESETS['5m'])


def counted(asked):
  """XLA's count of the gradient and the update of a plan on one device."""
  mesh = sharding.make_mesh({'data': 1})
  rates = dict(name='adamw', learning_rate=1e-6, warmup=0, b1=0.9, b2=0.99)
  rates |= dict(schedule='constant', epsilon=1e-8, weight_decay=0.0)
  goal = objective.PolicyObjective(
    losses.LOSSES['ppo_clip'], head_chunk=asked.head_chunk
  )
  learner = step.Learner(
    asked.model,
    goal,
    optimizer.make({**rates, 'clip_norm': 1.0}, 9),
    mesh,
    asked.rows,
    asked.param_dtype,
  )
  lowered = learner.lower(collate.empty_rows(asked.rows, asked.row_length))
  return {name: x.compile() for name, x in lowered.items()}


def test_xla_counts_what_the_arithmetic_says():
  """State exactly; temporaries within a third; operations within a tenth."""
  model = dataclasses.replace(MODERATE, remat='none', scan_unroll=4)
  asked = footprint.Plan(
    model=model,
    mesh={'data': 1},
    rows=2,
    row_length=512,
    head_chunk=0,
    param_dtype='float32',
    fused_attention=False,
  )
  programs = counted(asked)
  parts = footprint.memory(asked)
  state = parts['weights'] + parts['moments']
  apply = programs['apply'].memory_analysis()
  assert apply.argument_size_in_bytes == pytest.approx(
    state + parts['gradient_sum'], abs=100
  )
  gradient = programs['accumulate'].memory_analysis()
  weights = parts['weights'] + parts['gradient_sum']
  rows = 9 * 4 * 2 * 512  # nine arrays of the batch, and the mask
  assert gradient.argument_size_in_bytes == pytest.approx(
    weights + rows, rel=1e-3
  )
  temporary = parts['gradient'] + parts['activations'] + parts['loss']
  assert gradient.temp_size_in_bytes == pytest.approx(temporary, rel=1 / 3)
  flops = programs['accumulate'].cost_analysis()['flops']
  assert flops == pytest.approx(footprint.train_flops(asked, 1024), rel=0.1)
