"""How much memory and time does a policy need, by arithmetic alone?

Nothing is compiled and no device is touched. Shares of weights are exact: they
follow the rules by which the learner places them. Activations and temporaries
are sums of the arrays that the backward pass keeps; docs/scale.md says how far
XLA's own count is from them.
"""

import dataclasses
import math
from collections.abc import Mapping

import jax
from jax.sharding import AbstractMesh

from agentrl_jax import sharding
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import ModelConfig

_FLOAT32 = 4
_BYTES = {'float32': 4, 'bfloat16': 2}
GIGA = 1e9


@dataclasses.dataclass(frozen=True)
class Hardware:
  """One accelerator, as its maker states it.

  Attributes:
    flops: dense bfloat16 operations a second.
    memory: bytes.
    bandwidth: of its memory, bytes a second.
    link: to its neighbours, bytes a second in one direction.
  """

  flops: float
  memory: float
  bandwidth: float
  link: float


# Sources in docs/scale.md.
HARDWARE = {
  'h100': Hardware(989e12, 80e9, 3.35e12, 450e9),
  'h200': Hardware(989e12, 141e9, 4.8e12, 450e9),
  'v5e': Hardware(197e12, 16e9, 0.82e12, 200e9),
  'v5p': Hardware(459e12, 95e9, 2.765e12, 600e9),
  'v6e': Hardware(918e12, 32e9, 1.64e12, 400e9),
}


@dataclasses.dataclass(frozen=True)
class Plan:
  """What is trained, where, and what an iteration does.

  Attributes:
    model: the policy's shape; `dtype` is that of activations.
    mesh: axis -> size.
    rows: of a microbatch on one device.
    row_length: tokens of a row, T.
    head_chunk: tokens of a row that have logits at once, 0 = all.
    param_dtype: of the weights that a gradient is taken at.
    slots: contexts decoded at once over all devices.
    context: tokens of a context.
    trajectories: of an iteration.
    prompt: tokens of a trajectory that are read, observations included.
    sampled: tokens of a trajectory that are sampled.
    fused_attention: whether scores are never held (kernels of accelerators).
    reference: whether a frozen copy of the policy is kept and asked for a KL.
  """

  model: ModelConfig
  mesh: Mapping[str, int]
  rows: int = 1
  row_length: int = 4096
  head_chunk: int = 256
  param_dtype: str = 'bfloat16'
  slots: int = 256
  context: int = 4096
  trajectories: int = 512
  prompt: int = 2048
  sampled: int = 1024
  fused_attention: bool = True
  reference: bool = False

  @property
  def num_devices(self) -> int:
    """Devices of the mesh."""
    return math.prod(self.mesh.values())

  @property
  def row_parts(self) -> int:
    """Devices over which rows and slots go."""
    return sharding.num_row_parts(self.mesh)

  @property
  def tensor(self) -> int:
    """Devices that share a matrix."""
    return self.mesh.get('tensor', 1)


def shard_bytes(
  model: ModelConfig,
  mesh: Mapping[str, int],
  size: int = _FLOAT32,
  rules: Mapping = sharding.RULES,
) -> float:
  """Returns bytes of the weights on one device, exactly.

  Args:
    model: the shape.
    mesh: axis -> size.
    size: bytes of a number.
    rules: logical axis -> mesh axis, of the learner or the sampler.
  """
  sizes = tuple(mesh.get(axis, 1) for axis in sharding.AXES)
  abstract = AbstractMesh(sizes, sharding.AXES)
  shapes = params_lib.abstract(model)
  placed = sharding.shardings(
    params_lib.logical_axes(model), shapes, abstract, rules
  )
  parts = jax.tree.map(
    lambda x, s: math.prod(s.shard_shape(x.shape)), shapes, placed
  )
  return float(size * sum(jax.tree.leaves(parts)))


def active_count(model: ModelConfig) -> float:
  """Returns how many weights a token is multiplied with, the head included.

  Not the embedding, which is read at one row; of the experts those that a token
  is sent to.
  """
  shapes = params_lib.abstract(model)
  total = 0.0
  for path, x in jax.tree_util.tree_leaves_with_path(shapes):
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    if x.ndim < 2 or 'norm' in name or name.startswith(('embed', 'head')):
      continue
    share = 1.0
    if 'expert_' in name:
      share = model.experts_per_token / model.num_experts
    total += share * math.prod(x.shape)
  return total + model.vocab_size * model.d_model


def block_arrays(plan: Plan) -> dict[str, float]:
  """Returns numbers of one block's arrays on a device, by what they are.

  'input' is the residual stream; 'products' what weights give; 'rest' what a
  backward pass needs besides, norms and rotations and the gate; 'scores' the
  attention weights where no kernel hides them.
  """
  m, tokens = plan.model, plan.rows * plan.row_length
  heads = m.num_heads * m.head_dim / plan.tensor
  kv_heads = 2 * m.num_kv_heads * m.head_dim / min(plan.tensor, m.num_kv_heads)
  width = m.d_ff
  if m.num_experts:
    width = m.experts_per_token * m.d_expert
  width = width / plan.tensor
  scores = 0.0
  if not plan.fused_attention:  # only keys of the past are computed
    scores = plan.rows * m.num_heads / plan.tensor * plan.row_length**2 / 2
  return {
    'input': tokens * m.d_model,
    'products': tokens * (heads + kv_heads + 2 * m.d_model + 2 * width),
    'rest': tokens * (heads + kv_heads + 2 * m.d_model + 2 * width),
    'scores': scores,
  }


def activation_bytes(plan: Plan) -> float:
  """Returns what is kept of all blocks, and what one needs when recomputed."""
  m, size = plan.model, _BYTES[plan.model.dtype]
  arrays = block_arrays(plan)
  softmax = arrays['scores'] * (_FLOAT32 + size)
  whole = size * (arrays['products'] + arrays['rest']) + softmax
  kept = {
    'none': arrays['input'] * size + whole,
    'dots': (arrays['input'] + arrays['products']) * size,
    'block': arrays['input'] * size,
  }[m.remat]
  # The block at work holds its arrays and their gradients.
  return m.num_layers * kept + 2 * whole


def loss_bytes(plan: Plan) -> float:
  """Returns temporaries of the loss: logits of a chunk, a gradient, the head.

  A chunk has its logits, their exponentials and their gradient at once; the
  head is gathered whole but for `tensor`, and so is the sum of its gradient.
  """
  m = plan.model
  chunk = min(plan.head_chunk or plan.row_length, plan.row_length)
  vocab = m.vocab_size / plan.tensor
  logits = 3 * plan.rows * chunk * vocab * _FLOAT32
  if not plan.head_chunk:
    logits *= 2  # log-probs and entropies keep their own
  head = m.d_model * vocab
  return logits + head * (_FLOAT32 + _BYTES[m.dtype])


def cache_bytes(plan: Plan) -> float:
  """Returns keys and values of the slots of one device."""
  m = plan.model
  slots = plan.slots / (
    plan.row_parts if plan.slots % plan.row_parts == 0 else 1
  )
  kv_heads = m.num_kv_heads
  if kv_heads % plan.tensor == 0:
    kv_heads //= plan.tensor
  columns = slots * plan.context * kv_heads * m.head_dim
  return 2.0 * m.num_layers * columns * _BYTES[m.dtype]


def memory(plan: Plan) -> dict[str, float]:
  """Returns bytes on one device, by what they are for.

  The sampler's cache and the learner's activations stay for the whole run and
  for a gradient, so that their sum is what a device must hold; only `update`
  and `gradient` are not there at once.
  """
  m = plan.model
  weights = shard_bytes(m, plan.mesh)
  low = _BYTES[plan.param_dtype]
  out = {
    'weights': weights,
    'moments': 2 * weights,
    'gradient_sum': weights,
    'rounded_weights': weights / _FLOAT32 * low if low < _FLOAT32 else 0.0,
    'gradient': weights / _FLOAT32 * low,
    'gathered_blocks': gathered_bytes(plan),
    'activations': activation_bytes(plan),
    'loss': loss_bytes(plan),
    'sampler_weights': shard_bytes(
      m, plan.mesh, _BYTES[m.dtype], sharding.SAMPLER_RULES
    ),
    'cache': cache_bytes(plan),
  }
  if plan.reference:
    out['reference'] = weights
  return out


def gathered_bytes(plan: Plan) -> float:
  """Returns two blocks' weights, one at work and one on its way.

  `fsdp` brings them together; 0 without that axis.
  """
  if plan.mesh.get('fsdp', 1) == 1:
    return 0.0
  m = plan.model
  alone = {**plan.mesh, 'fsdp': 1}
  one, two = (
    shard_bytes(dataclasses.replace(m, num_layers=n), alone, 1) for n in (1, 2)
  )
  block = two - one
  return 2 * block * _BYTES[m.dtype]


def train_flops(plan: Plan, tokens: float) -> float:
  """Returns operations of gradients over all devices.

      6 · active weights · tokens, 8 with each block computed twice,
      and 12 · L · H · C · T / 2 a token for scores and their use

  Args:
    plan: for the shape and what is recomputed.
    tokens: of the rows, padding included.
  """
  m = plan.model
  passes = 4 if m.remat == 'block' else 3
  head = m.vocab_size * m.d_model
  again = 4 if plan.head_chunk else 3  # chunks make their logits twice
  products = 2 * (passes * (active_count(m) - head) + again * head)
  redone = passes if m.remat == 'none' else 4
  attention = 2 * redone * m.num_layers * m.num_heads * m.head_dim
  return tokens * (products + attention * plan.row_length)


def seconds(
  plan: Plan,
  hardware: Hardware,
  *,
  mfu: float = 0.4,
  prefill_mfu: float = 0.5,
  bandwidth_share: float = 0.6,
) -> dict[str, float]:
  """Returns seconds of an iteration by stage.

  Prefill and gradients are bound by arithmetic, decoding by the weights and
  caches that each token reads, publishing by the links where weights lie apart.

  Args:
    plan: the work.
    hardware: one device.
    mfu: share of `flops` that a gradient reaches.
    prefill_mfu: share of it in prefill.
    bandwidth_share: share of `bandwidth` in decoding.
  """
  m, n = plan.model, plan.num_devices
  size = _BYTES[m.dtype]
  prompt, sampled = (plan.trajectories * x for x in (plan.prompt, plan.sampled))
  head = m.vocab_size * m.d_model  # of a prompt only the last token has logits
  prefill = 2 * (active_count(m) - head) * prompt
  steps = sampled / plan.slots
  weights = shard_bytes(m, plan.mesh, size, sharding.SAMPLER_RULES)
  # On average a context is half full.
  read = weights * touched_share(plan) + cache_bytes(plan) / 2
  train = train_flops(plan, prompt + sampled)
  if plan.reference:
    train += train_flops(plan, prompt + sampled) / 3
  apart = shard_bytes(m, plan.mesh, size)
  return {
    'prefill': prefill / (n * hardware.flops * prefill_mfu),
    'decode': steps * read / (hardware.bandwidth * bandwidth_share),
    'train': train / (n * hardware.flops * mfu),
    'publish': (weights - apart) / hardware.link
    + 3 * weights / hardware.bandwidth,
  }


def touched_share(plan: Plan) -> float:
  """Returns the share of weights that one decode step reads.

  1 but for experts, of which the tokens of a device's slots choose each with
  probability k / E.
  """
  m = plan.model
  if not m.num_experts:
    return 1.0
  tokens = plan.slots / plan.row_parts * plan.mesh.get('expert', 1)
  chosen = 1 - (1 - m.experts_per_token / m.num_experts) ** tokens
  dense = dataclasses.replace(m, num_experts=0, d_ff=1)
  share = params_lib.count(dense) / params_lib.count(m)
  return share + (1 - share) * chosen
