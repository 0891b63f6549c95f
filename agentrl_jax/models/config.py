"""What shape a decoder has, and named shapes to start from."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """A Qwen3-style decoder; hashable, so that jit may take it as static.

  Attributes:
    num_layers: decoder blocks L.
    d_model: residual width D.
    num_heads: query heads H.
    num_kv_heads: key/value heads K, divides H.
    head_dim: C, even.
    d_ff: SwiGLU width F.
    vocab_size: V.
    rope_theta: rotary base.
    norm_epsilon: of every RMSNorm.
    qk_norm: RMSNorm over C on queries and keys.
    tie_embeddings: the head is the transposed embedding table.
    embedding_std: of the embedding at initialisation.
    remat: what the backward pass recomputes, a name in `transformer.REMATS`:
      nothing, each block, or each block but its products with weights.
    scan_unroll: layers in one step of the learner's scan; the more, the faster
      a small model trains and the longer it compiles.
    value_head: a scalar of each hidden state, for estimators that need values;
      it is the learner's alone, a sampler has none.
    dtype: of activations and of published weights ('float32', 'bfloat16').
  """

  num_layers: int
  d_model: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  d_ff: int
  vocab_size: int
  rope_theta: float = 1e6
  norm_epsilon: float = 1e-6
  qk_norm: bool = True
  tie_embeddings: bool = False
  embedding_std: float = 0.02
  remat: str = 'none'
  scan_unroll: int = 1
  value_head: bool = False
  dtype: str = 'float32'


# Shapes for `config.model.update(PRESETS[...])`; vocabulary and numerics are
# the config's own.
PRESETS = {
  'tiny': dict(
    num_layers=2, d_model=32, num_heads=4, num_kv_heads=2, head_dim=8, d_ff=64
  ),
  '0.6m': dict(
    num_layers=3,
    d_model=128,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    d_ff=320,
  ),
  '2m': dict(
    num_layers=4,
    d_model=192,
    num_heads=6,
    num_kv_heads=2,
    head_dim=32,
    d_ff=512,
  ),
  '5m': dict(
    num_layers=4,
    d_model=256,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    d_ff=1024,
  ),
  'qwen3_0.6b': dict(
    num_layers=28,
    d_model=1024,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    d_ff=3072,
    rope_theta=1e6,
    tie_embeddings=True,
    embedding_std=0.02,
    remat='block',
  ),
  'qwen3_1.7b': dict(
    num_layers=28,
    d_model=2048,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    d_ff=6144,
    rope_theta=1e6,
    tie_embeddings=True,
    embedding_std=0.02,
    remat='block',
  ),
}
