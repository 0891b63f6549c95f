"""What shape a decoder has, and named shapes to start from."""

import dataclasses

from agentrl_jax.models.lora import Lora


@dataclasses.dataclass(frozen=True)
class RopeScaling:
  """How rotary angles are stretched for long contexts, in published words.

  Attributes:
    rope_type: 'linear', 'llama3' or 'yarn'.
    factor: how much longer contexts become, >= 1.
    original_max_position_embeddings: context of pretraining (llama3, yarn).
    low_freq_factor, high_freq_factor: wavelengths above original / low are
      stretched, those below original / high are kept (llama3).
    attention_factor: of cos and sin; None = 0.1 ln(factor) + 1, or what
      `mscale` and `mscale_all_dim` say where both are given (yarn).
    beta_fast, beta_slow: rotations within the original context, between which
      angles go from kept to stretched (yarn).
    mscale, mscale_all_dim: see `attention_factor`.
    truncate: round the dimensions of these borders outwards (yarn).
  """

  rope_type: str
  factor: float
  original_max_position_embeddings: int = 0
  low_freq_factor: float = 1.0
  high_freq_factor: float = 4.0
  attention_factor: float | None = None
  beta_fast: float = 32.0
  beta_slow: float = 1.0
  mscale: float = 0.0
  mscale_all_dim: float = 0.0
  truncate: bool = True


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """A pre-norm decoder; hashable, so that jit may take it as static.

  The defaults are Qwen3's choices; docs/models.md says which families differ.

  Attributes:
    num_layers: decoder blocks L.
    d_model: residual width D.
    num_heads: query heads H.
    num_kv_heads: key/value heads K, divides H.
    head_dim: C, even.
    d_ff: SwiGLU width F.
    vocab_size: V.
    num_experts: E of every layer's feed-forward; 0 = one that all tokens use.
    experts_per_token: k, that a token is sent to.
    d_expert: width F of an expert; `d_ff` is then unused.
    balance_coef: of the load-balance loss, see `moe.balance_loss`.
    norm_topk: the k weights of a token are divided by their sum.
    expert_compute: a name in `moe.EXPERTS`; the results are equal.
    rope_theta: rotary base.
    rope_scaling: stretches the angles; None = plain.
    rope_local_theta: rotary base of sliding layers, never stretched; 0 = as
      the other layers.
    norm_epsilon: of every RMSNorm.
    qk_norm: RMSNorm over C on queries and keys.
    qkv_bias: bias on queries, keys and values.
    activation: of the gated feed-forward, a name in `layers.ACTIVATIONS`.
    post_norms: RMSNorm also behind attention and feed-forward.
    centered_norms: norms scale by 1 + weight.
    scale_embeddings: embeddings are multiplied by √D.
    query_scalar: scores are divided by its root; 0 = head_dim.
    sliding_window: tokens that a sliding layer sees, itself included; 0 = no
      layer slides.
    sliding_layers: which layers slide, repeated up to L; () = all.
    tie_embeddings: the head is the transposed embedding table.
    embedding_std: of the embedding at initialisation.
    attention: how the learner attends, a name in `fused.ATTENTIONS`.
    remat: what the backward pass recomputes, a name in `transformer.REMATS`:
      nothing, each block, or each block but its products with weights.
    scan_unroll: layers in one step of the learner's scan; the more, the faster
      a small model trains and the longer it compiles.
    value_head: a scalar of each hidden state, for estimators that need values;
      it is the learner's alone, a sampler has none.
    lora: adapters beside the weights of the blocks, None = none.
    dtype: of activations and of published weights ('float32', 'bfloat16').
  """

  num_layers: int
  d_model: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  d_ff: int
  vocab_size: int
  num_experts: int = 0
  experts_per_token: int = 0
  d_expert: int = 0
  norm_topk: bool = True
  balance_coef: float = 0.001
  expert_compute: str = 'grouped'
  rope_theta: float = 1e6
  rope_scaling: RopeScaling | None = None
  rope_local_theta: float = 0.0
  norm_epsilon: float = 1e-6
  qk_norm: bool = True
  qkv_bias: bool = False
  activation: str = 'silu'
  post_norms: bool = False
  centered_norms: bool = False
  scale_embeddings: bool = False
  query_scalar: float = 0.0
  sliding_window: int = 0
  sliding_layers: tuple[bool, ...] = ()
  tie_embeddings: bool = False
  embedding_std: float = 0.02
  attention: str = 'xla'
  remat: str = 'none'
  scan_unroll: int = 1
  value_head: bool = False
  lora: Lora | None = None
  dtype: str = 'float32'

  @property
  def slides(self) -> tuple[bool, ...]:
    """Which of the L layers slide."""
    if not self.sliding_window:
      return (False,) * self.num_layers
    pattern = self.sliding_layers or (True,)
    return tuple(pattern[i % len(pattern)] for i in range(self.num_layers))


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
  'qwen3_8b': dict(
    num_layers=36,
    d_model=4096,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    d_ff=12288,
    rope_theta=1e6,
    embedding_std=0.02,
    remat='block',
  ),
  'qwen3_32b': dict(
    num_layers=64,
    d_model=5120,
    num_heads=64,
    num_kv_heads=8,
    head_dim=128,
    d_ff=25600,
    rope_theta=1e6,
    embedding_std=0.02,
    remat='block',
  ),
  'qwen3_30b_a3b': dict(
    num_layers=48,
    d_model=2048,
    num_heads=32,
    num_kv_heads=4,
    head_dim=128,
    d_ff=6144,
    num_experts=128,
    experts_per_token=8,
    d_expert=768,
    rope_theta=1e6,
    embedding_std=0.02,
    remat='block',
  ),
  'qwen2.5_1.5b': dict(
    num_layers=28,
    d_model=1536,
    num_heads=12,
    num_kv_heads=2,
    head_dim=128,
    d_ff=8960,
    qk_norm=False,
    qkv_bias=True,
    rope_theta=1e6,
    tie_embeddings=True,
    embedding_std=0.02,
    remat='block',
  ),
  'qwen2.5_7b': dict(
    num_layers=28,
    d_model=3584,
    num_heads=28,
    num_kv_heads=4,
    head_dim=128,
    d_ff=18944,
    qk_norm=False,
    qkv_bias=True,
    rope_theta=1e6,
    embedding_std=0.02,
    remat='block',
  ),
  'llama3_8b': dict(
    num_layers=32,
    d_model=4096,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    d_ff=14336,
    qk_norm=False,
    rope_theta=5e5,
    norm_epsilon=1e-5,
    embedding_std=0.02,
    remat='block',
  ),
  'smollm2_135m': dict(
    num_layers=30,
    d_model=576,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    d_ff=1536,
    qk_norm=False,
    rope_theta=1e5,
    norm_epsilon=1e-5,
    tie_embeddings=True,
    embedding_std=0.02,
    remat='block',
  ),
  'mistral_7b': dict(
    num_layers=32,
    d_model=4096,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    d_ff=14336,
    qk_norm=False,
    sliding_window=4096,
    rope_theta=1e4,
    norm_epsilon=1e-5,
    embedding_std=0.02,
    remat='block',
  ),
  'gemma3_1b': dict(
    num_layers=26,
    d_model=1152,
    num_heads=4,
    num_kv_heads=1,
    head_dim=256,
    d_ff=6912,
    activation='gelu_tanh',
    post_norms=True,
    centered_norms=True,
    scale_embeddings=True,
    sliding_window=512,
    sliding_layers=(True, True, True, True, True, False),
    rope_theta=1e6,
    rope_local_theta=1e4,
    tie_embeddings=True,
    embedding_std=0.02,
    remat='block',
  ),
}
