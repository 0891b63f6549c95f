"""Which published decoders are known, and how do they name their parts?

A family is data: what its `config.json` fixes about our decoder, which fields
it adds, and where its tensors have other names. Both directions read it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import ModelConfig


class Name(NamedTuple):
  """Where a weight lies over there.

  Attributes:
    path: tensor name; the first `{}` is the layer, the second the expert.
    inputs: leading axes of ours that are the input of a matrix, which is
      stored as [outputs, inputs]; 0 = a vector of outputs; None = as it is.
  """

  path: str
  inputs: int | None = None

  @property
  def stacks(self) -> int:
    """How many leading axes of ours number tensors over there."""
    return self.path.count('{}')


_BLOCK = 'model.layers.{}.'
_EXPERT = _BLOCK + 'mlp.experts.{}.'
# Names of most families, in the order of the files.
NAMES = {
  ('embed', 'table'): Name('model.embed_tokens.weight'),
  ('layers', 'attention_norm'): Name(_BLOCK + 'input_layernorm.weight'),
  ('layers', 'q'): Name(_BLOCK + 'self_attn.q_proj.weight', 1),
  ('layers', 'q_bias'): Name(_BLOCK + 'self_attn.q_proj.bias', 0),
  ('layers', 'k'): Name(_BLOCK + 'self_attn.k_proj.weight', 1),
  ('layers', 'k_bias'): Name(_BLOCK + 'self_attn.k_proj.bias', 0),
  ('layers', 'v'): Name(_BLOCK + 'self_attn.v_proj.weight', 1),
  ('layers', 'v_bias'): Name(_BLOCK + 'self_attn.v_proj.bias', 0),
  ('layers', 'o'): Name(_BLOCK + 'self_attn.o_proj.weight', 2),
  ('layers', 'q_norm'): Name(_BLOCK + 'self_attn.q_norm.weight'),
  ('layers', 'k_norm'): Name(_BLOCK + 'self_attn.k_norm.weight'),
  ('layers', 'mlp_norm'): Name(_BLOCK + 'post_attention_layernorm.weight'),
  ('layers', 'gate'): Name(_BLOCK + 'mlp.gate_proj.weight', 1),
  ('layers', 'up'): Name(_BLOCK + 'mlp.up_proj.weight', 1),
  ('layers', 'down'): Name(_BLOCK + 'mlp.down_proj.weight', 1),
  ('layers', 'router'): Name(_BLOCK + 'mlp.gate.weight', 1),
  ('layers', 'expert_gate'): Name(_EXPERT + 'gate_proj.weight', 1),
  ('layers', 'expert_up'): Name(_EXPERT + 'up_proj.weight', 1),
  ('layers', 'expert_down'): Name(_EXPERT + 'down_proj.weight', 1),
  ('final_norm',): Name('model.norm.weight'),
  ('head',): Name('lm_head.weight', 1),
}

# What a family does not mention, it does not have.
_PLAIN = {
  'qk_norm': False,
  'qkv_bias': False,
  'activation': 'silu',
  'post_norms': False,
  'centered_norms': False,
  'scale_embeddings': False,
}


@dataclasses.dataclass(frozen=True)
class Family:
  """A published architecture.

  Attributes:
    architecture: its class in `transformers`.
    features: fields of ours that it fixes, where they differ from `_PLAIN`.
    constants: fields of config.json that may have this value only.
    fields: further fields of config.json -> ours.
    defaults: fields of config.json that may be missing -> value, or a function
      of the others.
    sliding: which layers slide: 'none'; 'all', if there is a window; 'flag',
      those from `max_window_layers` on, if `use_sliding_window` is set;
      'pattern', all but each `sliding_window_pattern`-th.
    local_rope: sliding layers have a rotary base of their own.
    names: where names differ from `NAMES`.
  """

  architecture: str
  features: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  constants: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
  defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  sliding: str = 'none'
  local_rope: bool = False
  names: Mapping[tuple[str, ...], Name] = dataclasses.field(
    default_factory=dict
  )

  @property
  def fixed(self) -> dict[str, Any]:
    """All fields of ours that it fixes."""
    return {**_PLAIN, **self.features}


def _even_heads(fields: Mapping[str, Any]) -> int:
  return fields['hidden_size'] // fields['num_attention_heads']


def _no_groups(fields: Mapping[str, Any]) -> int:
  return fields['num_attention_heads']


_SILU = {'hidden_act': 'silu', 'attention_dropout': 0.0}
_QWEN_WINDOW = {'sliding_window': 4096, 'max_window_layers': 28}

# model_type -> family; a config is exported as the first that can express it.
FAMILIES = {
  'qwen3': Family(
    'Qwen3ForCausalLM',
    features={'qk_norm': True},
    constants={**_SILU, 'attention_bias': False},
    defaults={'head_dim': 128, **_QWEN_WINDOW},
    sliding='flag',
  ),
  'qwen3_moe': Family(
    'Qwen3MoeForCausalLM',
    features={'qk_norm': True},
    constants={
      **_SILU,
      'attention_bias': False,
      'decoder_sparse_step': 1,
      'mlp_only_layers': [],
    },
    fields={
      'num_experts': 'num_experts',
      'num_experts_per_tok': 'experts_per_token',
      'moe_intermediate_size': 'd_expert',
      'norm_topk_prob': 'norm_topk',
    },
    defaults={'head_dim': _even_heads, 'norm_topk_prob': False},
  ),
  'qwen2': Family(
    'Qwen2ForCausalLM',
    features={'qkv_bias': True},
    constants=_SILU,
    defaults={'head_dim': _even_heads, **_QWEN_WINDOW},
    sliding='flag',
  ),
  'llama': Family(
    'LlamaForCausalLM',
    constants={
      **_SILU,
      'attention_bias': False,
      'mlp_bias': False,
      'pretraining_tp': 1,
    },
    defaults={'head_dim': _even_heads, 'num_key_value_heads': _no_groups},
  ),
  'mistral': Family(
    'MistralForCausalLM',
    constants=_SILU,
    defaults={'head_dim': _even_heads, 'sliding_window': 4096},
    sliding='all',
  ),
  'gemma3_text': Family(
    'Gemma3ForCausalLM',
    features={
      'qk_norm': True,
      'activation': 'gelu_tanh',
      'post_norms': True,
      'centered_norms': True,
      'scale_embeddings': True,
    },
    constants={
      'hidden_activation': 'gelu_pytorch_tanh',
      'attention_bias': False,
      'attention_dropout': 0.0,
      'attn_logit_softcapping': None,
      'final_logit_softcapping': None,
      'use_bidirectional_attention': False,
    },
    fields={'query_pre_attn_scalar': 'query_scalar'},
    defaults={
      'head_dim': 256,
      'query_pre_attn_scalar': 256,
      'sliding_window': 4096,
      'sliding_window_pattern': 6,
      'tie_word_embeddings': True,
    },
    sliding='pattern',
    local_rope=True,
    names={
      ('layers', 'attention_post_norm'): Name(
        _BLOCK + 'post_attention_layernorm.weight'
      ),
      ('layers', 'mlp_norm'): Name(_BLOCK + 'pre_feedforward_layernorm.weight'),
      ('layers', 'mlp_post_norm'): Name(
        _BLOCK + 'post_feedforward_layernorm.weight'
      ),
    },
  ),
}


def family_of(config: ModelConfig) -> str:
  """Returns the model type that a shape is exported as.

  Raises:
    ValueError: no family expresses it; says what the nearest lacks.
  """
  lacks = {name: _lacks(family, config) for name, family in FAMILIES.items()}
  best = min(lacks, key=lambda name: len(lacks[name]))
  if lacks[best]:
    raise ValueError(
      f'no published family is such a decoder; the nearest, {best!r}, has not '
      + ', '.join(lacks[best])
    )
  return best


def _lacks(family: Family, config: ModelConfig) -> list[str]:
  """Fields of a config that a family cannot express."""
  own = family.fields.values()
  windows: dict[str, Callable[[tuple[bool, ...]], bool]] = {
    'none': lambda slides: not any(slides),
    'all': lambda slides: any(slides) and all(slides),
    'flag': lambda _: True,
    'pattern': lambda _: True,
  }
  wrong = [
    name
    for name, value in family.fixed.items()
    if getattr(config, name) != value
  ]
  if bool(config.num_experts) != ('num_experts' in own):
    wrong.append('num_experts')
  if config.query_scalar and 'query_scalar' not in own:
    wrong.append('query_scalar')
  if config.rope_local_theta and not family.local_rope:
    wrong.append('rope_local_theta')
  scaled = config.rope_scaling is not None and not config.rope_local_theta
  if family.local_rope and scaled and any(config.slides):
    wrong.append('rope_scaling')  # there, of layers that do not slide
  if not windows[family.sliding](config.slides):
    wrong.append('sliding_window')
  return [f'{name}={getattr(config, name)!r}' for name in wrong]


def weights(
  config: ModelConfig,
) -> Iterator[tuple[tuple[str, ...], params_lib.Weight, Name]]:
  """Walks the names of a config's family, over the weights there are.

  Yields:
    (path in the tree of parameters, weight, name).
  """
  described = params_lib.describe(config)
  names = NAMES | dict(FAMILIES[family_of(config)].names)
  for keys, name in names.items():
    weight: Any = described
    for key in keys:
      weight = weight.get(key) if weight else None
    if weight is not None:
      yield keys, weight, name
