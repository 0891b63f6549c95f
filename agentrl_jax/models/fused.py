"""Attention of packed rows, by what the accelerator's maker offers.

All entries of `ATTENTIONS` compute the same: softmax over the past of the own
segment, within a window where there is one. Decoding is not concerned: it
attends to a cache.
"""

import contextlib
from collections.abc import Callable

import jax
from jax.sharding import PartitionSpec

from agentrl_jax import sharding
from agentrl_jax.models import attention

# (q [R, T, H, C], k, v [R, T, K, C]) -> [R, T, H, C]
Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]

_LANES = 128  # tokens of a splash block


def blocks(segment_ids: jax.Array, window: int = 0) -> Attend:
  """Attends by matrix products in static blocks, on any device.

  Args:
    segment_ids: [R, T] int32.
    window: tokens that a query sees, itself included; 0 = all before it.
  """
  biases = attention.causal_biases(segment_ids, window)
  return lambda q, k, v: attention.causal_attention(q, k, v, biases)


def dot_product(
  segment_ids: jax.Array, window: int = 0, *, implementation: str = 'xla'
) -> Attend:
  """Attends by `jax.nn.dot_product_attention`; 'cudnn' needs bfloat16.

  Args:
    segment_ids, window: as of `blocks`.
    implementation: 'xla' or 'cudnn'.
  """
  same = segment_ids[:, None, :, None] == segment_ids[:, None, None, :]

  def attend(q, k, v):
    return jax.nn.dot_product_attention(
      q,
      k,
      v,
      mask=same,
      is_causal=True,
      local_window_size=(window - 1, 0) if window else None,
      implementation=implementation,
    )

  return attend


def cudnn(segment_ids: jax.Array, window: int = 0) -> Attend:
  """Attends by cuDNN's flash attention (NVIDIA)."""
  return dot_product(segment_ids, window, implementation='cudnn')


def splash(
  segment_ids: jax.Array, window: int = 0, *, interpret: bool = False
) -> Attend:
  """Attends by the splash kernel (TPU): masked blocks are not computed.

  A kernel is not partitioned by XLA: where a mesh is set (`jax.set_mesh`) every
  device takes its rows and heads.

  Args:
    segment_ids, window: as of `blocks`; T a multiple of 128.
    interpret: on any device, slowly, for tests.

  Raises:
    ValueError: T is none.
  """
  from jax.experimental.pallas.ops.tpu import splash_attention

  length = segment_ids.shape[1]
  if length % _LANES:
    raise ValueError(
      f'rows of {length} tokens: splash needs a multiple of {_LANES}; change '
      "config.train.row_length, or set config.model.attention='xla'"
    )
  shape = (length, length)
  mask = splash_attention.CausalMask(shape)
  if window:
    mask = splash_attention.LocalMask(shape, (window - 1, 0), 0)

  def one_device(q, k, v, segments):
    group = q.shape[2]
    kernel = splash_attention.make_splash_mqa_single_device(
      splash_attention.MultiHeadMask([mask] * group), interpret=interpret
    )
    by_head = jax.vmap(kernel, (0, 0, 0, None))
    return jax.vmap(by_head)(
      q, k, v, splash_attention.SegmentIds(segments, segments)
    )

  def attend(q, k, v):
    rows, _, heads, dim = q.shape
    num_kv = k.shape[2]
    q = (q * dim**-0.5).reshape(rows, length, num_kv, heads // num_kv, dim)
    q = q.transpose(0, 2, 3, 1, 4)
    k, v = k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3)
    out = _on_mesh(one_device, rows, num_kv)(q, k, v, segment_ids)
    out = out.transpose(0, 3, 1, 2, 4)
    return out.reshape(rows, length, heads, dim).astype(v.dtype)

  return attend


def scope(name: str, mesh: jax.sharding.Mesh):
  """Returns the context in which programs with that attention are called."""
  return jax.set_mesh(mesh) if name == 'splash' else contextlib.nullcontext()


def _on_mesh(function, num_rows, num_kv):
  """Gives each device of the mesh that is set its rows and kv heads."""
  mesh = jax.sharding.get_abstract_mesh()
  if mesh.empty or mesh.size == 1:
    return function
  each = sharding.spec(('rows', 'kv_heads'), (num_rows, num_kv), mesh)
  return jax.shard_map(
    function,
    in_specs=(each, each, each, PartitionSpec(each[0])),
    out_specs=each,
    check_vma=False,  # a kernel does not say how its outputs vary
  )


ATTENTIONS = {
  'xla': blocks,
  'dot_product': dot_product,
  'cudnn': cudnn,
  'splash': splash,
}

# What this project's tests could not run on the device that it is made for.
UNTESTED = {
  'cudnn': 'on an NVIDIA GPU (its semantics are, by the same call on a CPU)',
  'splash': 'on a TPU (its semantics are, by interpretation on a CPU)',
}


def best(backend: str, dtype: str, head_dim: int, row_length: int) -> str:
  """Returns the fastest entry that takes these shapes.

  Args:
    backend: 'cpu', 'gpu' or 'tpu'.
    dtype: of activations.
    head_dim: C.
    row_length: T.
  """
  if backend == 'gpu' and dtype == 'bfloat16' and _fits_cudnn(head_dim):
    return 'cudnn'
  if backend == 'tpu' and row_length % _LANES == 0:
    return 'splash'
  return 'xla'


def faults(name: str, dtype: str, head_dim: int, row_length: int) -> list[str]:
  """Returns why an entry does not take these shapes; [] if it does."""
  if name == 'cudnn' and dtype != 'bfloat16':
    return [f'cudnn needs bfloat16, not {dtype}; use xla']
  if name == 'cudnn' and not _fits_cudnn(head_dim):
    return [f'cudnn needs a head_dim of 8, 16 ... 128, not {head_dim}; use xla']
  if name == 'splash' and row_length % _LANES:
    return [f'splash needs rows of a multiple of {_LANES}, not {row_length}']
  return []


def _fits_cudnn(head_dim: int) -> bool:
  return head_dim % 8 == 0 and head_dim <= 128
