"""What does a `config.json` say about our decoder, and ours about theirs?

A field that would change the mathematics and is not supported is an error that
names it; a field that nobody here knows is refused where it is set.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from agentrl_jax.models import rope
from agentrl_jax.models.config import ModelConfig, RopeScaling
from agentrl_jax.models.families import FAMILIES, Family, family_of

# config.json field -> ours; they must be there, or a family has a default.
_FIELDS = {
  'num_hidden_layers': 'num_layers',
  'hidden_size': 'd_model',
  'num_attention_heads': 'num_heads',
  'num_key_value_heads': 'num_kv_heads',
  'intermediate_size': 'd_ff',
  'vocab_size': 'vocab_size',
  'rms_norm_eps': 'norm_epsilon',
  'head_dim': 'head_dim',
  'tie_word_embeddings': 'tie_embeddings',
}
# Read by `_sliding` and `_rotary`.
_LAYERS = ('full_attention', 'sliding_attention')
_WINDOW_FIELDS = {
  'none': (),
  'all': ('sliding_window',),
  'flag': ('sliding_window', 'use_sliding_window', 'max_window_layers'),
  'pattern': (
    'sliding_window',
    'sliding_window_pattern',
    '_sliding_window_pattern',
  ),
}
# What transformers 5 calls a field -> what files are published with.
_RENAMED = {'num_local_experts': 'num_experts'}
_ROPE_FIELDS = ('rope_theta', 'rope_parameters', 'rope_scaling')
# Fields without a say in the logits. Any other field that is set (neither
# null, false, 0 nor empty) is refused: it may change them.
_HARMLESS = frozenset(
  (
    'architectures',
    'model_type',
    'dtype',
    'torch_dtype',
    'transformers_version',
    '_name_or_path',
    'initializer_range',
    'max_position_embeddings',
    'max_window_layers',  # of a sliding window, which is refused if on
    'bos_token_id',
    'eos_token_id',
    'pad_token_id',
    'use_cache',
    'cache_implementation',
    'return_dict',
    'id2label',
    'label2id',
    'is_llama_config',
    'transformers.js_config',
    'router_aux_loss_coef',  # of their training; ours is in our config
  )
)


def read_config(
  fields: Mapping[str, Any], *, where: str = 'config.json'
) -> ModelConfig:
  """Reads the shape from the fields of a `config.json`.

  Raises:
    ValueError: lists every field that is missing or not supported.
  """
  family = FAMILIES.get(fields.get('model_type'))
  if family is None:
    raise ValueError(
      f'{where}: model_type={fields.get("model_type")!r} is not one of '
      f'{sorted(FAMILIES)}'
    )
  missing, fields = _with_defaults(fields, family)
  theta, local_theta, scaling, rope_faults = _rotary(fields, family)
  slides, window_faults = _sliding(fields, family)
  faults = [f'{name} is missing' for name in missing]
  faults += _unsupported(fields, family) + rope_faults + window_faults
  if faults:
    raise ValueError(f'{where}: ' + '; '.join(faults))
  ours = {
    name: fields[theirs]
    for theirs, name in {**_FIELDS, **family.fields}.items()
  }
  if ours.get('query_scalar') == ours['head_dim']:
    ours['query_scalar'] = 0.0
  if any(slides):
    ours['sliding_window'] = fields['sliding_window']
    ours['sliding_layers'] = _period(slides)
    if family.local_rope and (local_theta != theta or scaling):
      ours['rope_local_theta'] = local_theta
  return ModelConfig(
    **ours, **family.fixed, rope_theta=theta, rope_scaling=scaling
  )


def write_config(config: ModelConfig) -> dict[str, Any]:
  """Returns the fields of `config.json`; `read_config` gives config back.

  Raises:
    ValueError: no family is such a decoder.
  """
  name = family_of(config)
  family = FAMILIES[name]
  shape = {
    theirs: getattr(config, ours)
    for theirs, ours in {**_FIELDS, **family.fields}.items()
  }
  if 'query_pre_attn_scalar' in shape:
    shape['query_pre_attn_scalar'] = int(config.query_scalar or config.head_dim)
  context = 32768
  if config.rope_scaling is not None:
    original = config.rope_scaling.original_max_position_embeddings
    context = int((original or context) * config.rope_scaling.factor)
  return {
    'architectures': [family.architecture],
    'model_type': name,
    **shape,
    **family.constants,
    **_rotary_fields(config, family),
    **_sliding_fields(config, family),
    'max_position_embeddings': context,
    'initializer_range': 0.02,
  }


def _with_defaults(
  fields: Mapping[str, Any], family: Family
) -> tuple[list[str], dict[str, Any]]:
  """Returns what is missing, and the fields with what their absence means."""
  fields = dict(fields)
  for late, name in _RENAMED.items():
    if name in family.fields and late in fields:
      fields.setdefault(name, fields.pop(late))
  needed = [*_FIELDS, *family.fields]
  defaults = {'tie_word_embeddings': False, **family.defaults}
  missing = [
    name for name in needed if fields.get(name) is None and name not in defaults
  ]
  for name, value in defaults.items():
    # A null window says that there is none.
    absent = name not in fields or (name in needed and fields[name] is None)
    if absent and not (callable(value) and missing):
      fields[name] = value(fields) if callable(value) else value
  return missing, fields


def _unsupported(fields: Mapping[str, Any], family: Family) -> list[str]:
  known = {*_HARMLESS, *_FIELDS, *family.fields, *_ROPE_FIELDS, 'layer_types'}
  known |= {*_WINDOW_FIELDS[family.sliding]}
  if family.local_rope:
    known.add('rope_local_base_freq')
  faults = []
  for name, value in fields.items():
    if name in family.constants:
      only = family.constants[name]
      if value is not None and value != only:
        faults.append(f'{name}={value!r}: only {only!r} is supported')
    elif value and name not in known:
      faults.append(f'{name}={value!r} is not supported')
  return faults


def _sliding(
  fields: Mapping[str, Any], family: Family
) -> tuple[tuple[bool, ...], list[str]]:
  """Returns which layers slide, and faults."""
  count, window = (
    fields.get('num_hidden_layers') or 0,
    fields.get('sliding_window'),
  )
  flag = family.sliding != 'flag' or fields.get('use_sliding_window')
  window = window if flag and family.sliding != 'none' else None
  first = fields.get('max_window_layers') or 0
  pattern = fields.get('sliding_window_pattern') or 1
  rules = {
    'none': lambda i: False,
    'all': lambda i: True,
    'flag': lambda i: i >= first,
    'pattern': lambda i: (i + 1) % pattern > 0,
  }
  slides = tuple(
    bool(window) and rules[family.sliding](i) for i in range(count)
  )
  types = fields.get('layer_types')
  if not types:
    return slides, []
  told = tuple(kind == _LAYERS[1] for kind in types)
  faults = []
  if set(types) - {*_LAYERS} or len(types) != count:
    faults.append(
      f'layer_types={types!r}: must be {count} of {" and ".join(_LAYERS)}'
    )
  elif any(told) and not window:
    faults.append('layer_types: layers slide, but there is no sliding_window')
  elif family.sliding == 'all' and told != slides:
    faults.append('layer_types: in this family all layers are alike')
  return told, faults


def _sliding_fields(config: ModelConfig, family: Family) -> dict[str, Any]:
  slides = config.slides
  window = config.sliding_window if any(slides) else None
  types = [_LAYERS[slide] for slide in slides]
  if family.sliding == 'flag':
    first = slides.index(True) if any(slides) else len(slides)
    return {
      'use_sliding_window': any(slides),
      'sliding_window': window,
      'max_window_layers': first,
      'layer_types': types,
    }
  if family.sliding == 'pattern':
    return {'sliding_window': window, 'layer_types': types}
  return {'sliding_window': window} if family.sliding == 'all' else {}


def _period(slides: tuple[bool, ...]) -> tuple[bool, ...]:
  """The shortest pattern that repeats to `slides`; () = all."""
  length = next(
    n
    for n in range(1, len(slides) + 1)
    if all(slide == slides[i % n] for i, slide in enumerate(slides))
  )
  return () if all(slides) else slides[:length]


def _rotary(
  fields: Mapping[str, Any], family: Family
) -> tuple[float, float, RopeScaling | None, list[str]]:
  """Returns bases (of sliding layers last), scaling, faults.

  Both spellings are read: `rope_parameters`, and `rope_theta` beside
  `rope_scaling`. A family with a local base has parameters by kind of layer.
  """
  new, old = (dict(fields.get(name) or {}) for name in _ROPE_FIELDS[1:])
  local: Mapping[str, Any] = {}
  if family.local_rope:
    if set(new) - {*_LAYERS}:
      return 0.0, 0.0, None, [f'rope_parameters={new!r}: not by kind of layer']
    new, local = (dict(new.get(kind) or {}) for kind in _LAYERS)
  default = 1e6 if family.local_rope else 1e4
  thetas = [
    given['rope_theta']
    for given in (new, old, fields)
    if given.get('rope_theta') is not None
  ]
  local_theta = local.get(
    'rope_theta', fields.get('rope_local_base_freq') or 1e4
  )
  scalings, faults = [], []
  for name, given in (('rope_parameters', new), ('rope_scaling', old)):
    scaling, fault = _scaling(given, fields)
    faults += [f'{name}={given!r}: {fault}'] if fault else []
    scalings += [scaling] if scaling else []
  if _scaling(local, fields) != (None, ''):
    faults.append(f'rope_parameters: sliding layers are not scaled: {local!r}')
  if len({*thetas}) > 1 or len({*scalings}) > 1:
    faults.append('rope_theta, rope_parameters and rope_scaling disagree')
  theta = thetas[0] if thetas else default
  return (
    float(theta),
    float(local_theta),
    scalings[0] if scalings else None,
    faults,
  )


def _scaling(
  given: Mapping[str, Any], fields: Mapping[str, Any]
) -> tuple[RopeScaling | None, str]:
  """Reads one mapping of rotary parameters: scaling, or what is wrong."""
  rest = {key: value for key, value in given.items() if value is not None}
  kind = rest.pop('rope_type', rest.pop('type', 'default'))
  rest.pop('type', None)
  rest.pop('rope_theta', None)
  if rest.get('partial_rotary_factor') == 1.0:
    del rest['partial_rotary_factor']
  if kind == 'default':
    return None, 'only plain rotary has no further fields' if rest else ''
  if kind not in rope.SCALINGS:
    return None, f'only {["default", *rope.SCALINGS]} are supported'
  known = {field.name for field in dataclasses.fields(RopeScaling)}
  if set(rest) - known:
    return None, f'{sorted(set(rest) - known)} not supported'
  if kind == 'linear':
    rest.pop('original_max_position_embeddings', None)
  else:
    context = fields.get('max_position_embeddings') or 0
    rest.setdefault('original_max_position_embeddings', context)
    if kind == 'yarn' and context and 'factor' not in rest:
      original = rest['original_max_position_embeddings']
      rest['factor'] = context / original
  needed = {'factor'} | (
    {'low_freq_factor', 'high_freq_factor'} if kind == 'llama3' else set()
  )
  if needed - set(rest):
    return None, f'{sorted(needed - set(rest))} missing'
  numbers = {
    key: float(value) if isinstance(value, int | float) else value
    for key, value in rest.items()
  }
  for key, kept in (
    ('original_max_position_embeddings', int),
    ('truncate', bool),
  ):
    numbers |= {key: kept(numbers[key])} if key in numbers else {}
  return RopeScaling(rope_type=kind, **numbers), ''


def _rotary_fields(config: ModelConfig, family: Family) -> dict[str, Any]:
  """Both spellings: `rope_theta` and `rope_scaling` are of transformers 4."""
  theta, scaling = config.rope_theta, config.rope_scaling
  described = {'rope_type': 'default'}
  if scaling is not None:
    described = {
      field.name: getattr(scaling, field.name)
      for field in dataclasses.fields(scaling)
      if field.name in ('rope_type', 'factor')
      or getattr(scaling, field.name) != field.default
    }
    if scaling.rope_type == 'llama3':
      described['low_freq_factor'] = scaling.low_freq_factor
      described['high_freq_factor'] = scaling.high_freq_factor
  new = {**described, 'rope_theta': theta}
  fields = {'rope_theta': theta, 'rope_parameters': new}
  if scaling is not None:
    fields['rope_scaling'] = described
  if family.local_rope:
    local = config.rope_local_theta or theta
    plain = {'rope_type': 'default', 'rope_theta': local}
    fields['rope_parameters'] = dict(zip(_LAYERS, (new, plain), strict=True))
    fields['rope_local_base_freq'] = local
  return fields
