"""Which values of a configuration are refused, and what is said then.

Faults are found all at once and named by field; nothing here touches a device.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import ml_collections

from agentrl_jax import bounds


def faults(
  config: ml_collections.ConfigDict,
  flat: Mapping[str, Any],
  *,
  tables: Mapping[str, Iterable[str]] | None = None,
  num_devices: int | None = None,
  num_hosts: int = 1,
) -> list[str]:
  """Returns every fault of a configuration whose fields are all there.

  Args:
    config: the whole configuration.
    flat: the same, as `config.flatten` gives it.
    tables, num_devices, num_hosts: as of `config.validate`.
  """
  out = []
  for field, choices in bounds.CHOICES.items():
    if flat[field] not in choices:
      out.append(_choice(field, flat[field], choices))
  for field, low in bounds.AT_LEAST.items():
    if not flat[field] >= low:  # so that NaN is refused as well
      out.append(f'config.{field}={flat[field]}: must be >= {low}')
  for field, high in bounds.POSITIVE.items():
    if not 0 < flat[field] <= high:
      bound = '' if math.isinf(high) else f' and <= {high}'
      out.append(f'config.{field}={flat[field]}: must be > 0{bound}')
  for field, names in (tables or {}).items():
    if ':' not in str(flat[field]) and flat[field] not in names:
      out.append(_choice(field, flat[field], names))
  out += _relations(config) + _watch_faults(config) + _learning_faults(config)
  out += _layer_faults(config.model)
  out += _mesh_faults(config, num_devices)
  return out + _host_faults(config, num_hosts)


def is_correction(part: Any) -> bool:
  """Returns whether a part of `loss.correction` is (name, options)."""
  return (
    isinstance(part, tuple | list)
    and len(part) == 2
    and isinstance(part[0], str)
    and isinstance(part[1], Mapping)
  )


def is_part(part: Any) -> bool:
  """Returns whether it is (name, weight) or (name, weight, options)."""
  return (
    isinstance(part, tuple | list)
    and len(part) in (2, 3)
    and isinstance(part[0], str)
    and isinstance(part[1], int | float)
    and math.isfinite(part[1])
    and all(isinstance(options, Mapping) for options in part[2:])
  )


def unknown(field: str, known: Iterable[str]) -> str:
  """Returns the fault of a field that does not exist."""
  near = difflib.get_close_matches(field, list(known), n=1)
  hint = f'; did you mean config.{near[0]}?' if near else ''
  return f'config.{field}: unknown field{hint}'


def _choice(field: str, value: Any, names: Iterable[str]) -> str:
  names = sorted(names)
  near = difflib.get_close_matches(str(value), names, n=1)
  hint = f' (did you mean {near[0]!r}?)' if near else ''
  return f'config.{field}={value!r}: not one of {", ".join(names)}{hint}'


def _relations(c: ml_collections.ConfigDict) -> list[str]:
  """Faults between fields."""
  faults = []

  def check(good, message):
    if not good:
      faults.append(message)

  check(
    c.model.num_kv_heads < 1 or c.model.num_heads % c.model.num_kv_heads == 0,
    f'config.model.num_heads={c.model.num_heads}: not a multiple of '
    f'config.model.num_kv_heads={c.model.num_kv_heads}',
  )
  check(
    c.model.head_dim % 2 == 0,
    f'config.model.head_dim={c.model.head_dim}: must be even (rotary pairs)',
  )
  check(
    c.rollout.max_context % 64 == 0,
    f'config.rollout.max_context={c.rollout.max_context}: must be a multiple '
    'of 64',
  )
  check(
    c.rollout.max_turn_tokens < c.rollout.max_context,
    f'config.rollout.max_turn_tokens={c.rollout.max_turn_tokens}: must be '
    f'below config.rollout.max_context={c.rollout.max_context}',
  )
  check(
    c.train.row_length >= c.rollout.max_context,
    f'config.train.row_length={c.train.row_length}: must hold a context '
    f'(config.rollout.max_context={c.rollout.max_context})',
  )
  check(
    c.sampler.lanes < 1 or c.sampler.slots % c.sampler.lanes == 0,
    f'config.sampler.lanes={c.sampler.lanes}: must divide '
    f'config.sampler.slots={c.sampler.slots}',
  )
  check(
    c.sampler.extend_rows * c.sampler.lanes <= c.sampler.slots,
    f'config.sampler.extend_rows={c.sampler.extend_rows}: more than '
    f'config.sampler.slots={c.sampler.slots}',
  )
  check(
    c.train.rows < 1 or c.sft.rows % c.train.rows == 0,
    f'config.sft.rows={c.sft.rows}: must be a multiple of '
    f'config.train.rows={c.train.rows}',
  )
  check(
    c.loss.weighting != 'constant' or c.loss.weighting_constant > 0,
    "config.loss.weighting_constant: must be > 0 when weighting='constant'",
  )
  check(
    len(c.rewards) > 0 and all(map(is_part, c.rewards)),
    'config.rewards: a non-empty tuple of (name, weight) or '
    '(name, weight, options)',
  )
  check(
    c.env.isolation not in ('process', 'ray') or c.env.workers > 0,
    f'config.env.isolation={c.env.isolation!r}: needs config.env.workers >= 1',
  )
  return faults


def _layer_faults(c: ml_collections.ConfigDict) -> list[str]:
  """Faults of `config.model` about its layers and experts."""
  faults = []
  if len(c.sliding_layers) > max(c.num_layers, 0) or not all(
    isinstance(slides, bool) for slides in c.sliding_layers
  ):
    faults.append(
      f'config.model.sliding_layers={c.sliding_layers}: true or false for '
      'each of the layers, or for the first of them (it is repeated)'
    )
  given = c.num_experts, c.experts_per_token, c.d_expert
  if given != (0, 0, 0) and not (1 <= given[1] <= given[0] and given[2] >= 1):
    faults.append(
      'config.model: (num_experts, experts_per_token, d_expert)='
      f'{given}: experts_per_token must be in 1..num_experts and d_expert >= '
      '1, or all three 0 (a decoder without experts)'
    )
  if c.num_experts and c.activation != 'silu':
    faults.append(
      f'config.model.activation={c.activation!r}: with config.model.num_experts'
      f"={c.num_experts} only 'silu', which experts compute"
    )
  return faults


def _watch_faults(c: ml_collections.ConfigDict) -> list[str]:
  faults = []
  if 0 < c.watch.length_drift <= 1:
    faults.append(
      f'config.watch.length_drift={c.watch.length_drift}: a factor above 1, or '
      '0 for none'
    )
  if c.audit_reward in (part[0] for part in c.rewards if is_part(part)):
    faults.append(
      f'config.audit_reward={c.audit_reward!r}: it is among config.rewards; an '
      'audit is by a part that nobody trains on'
    )
  return faults


def _learning_faults(c: ml_collections.ConfigDict) -> list[str]:
  faults = []
  if not all(map(is_correction, c.loss.correction)):
    faults.append(
      'config.loss.correction: a tuple of (name, options) pairs, such as '
      "(('tis', {'cap': 2.0}),)"
    )
  faults += _shape_faults(c)
  if c.loss.correction and c.loss.proximal == 'behavior':
    faults.append(
      "config.loss.correction: with config.loss.proximal='behavior' the two "
      'policies that it compares are one; set proximal to recomputed, latest '
      'or interpolated'
    )
  estimator = c.advantage.estimator
  if c.advantage.kl_in_reward and estimator not in bounds.KL_IN_REWARD:
    faults.append(
      f'config.advantage.kl_in_reward={c.advantage.kl_in_reward}: estimator '
      f'{estimator!r} compares outcomes within groups, none of which would be '
      f'constant; allowed with {", ".join(bounds.KL_IN_REWARD)}; set '
      'config.loss.kl_coef instead'
    )
  if c.advantage.whiten and estimator not in bounds.WHITEN:
    faults.append(
      f'config.advantage.whiten: estimator {estimator!r} compares within '
      'groups, whose constant ones would no longer be 0, or is whitened '
      f'already; allowed with {", ".join(bounds.WHITEN)}'
    )
  if c.rollout.group_size == 1 and c.train.constant_groups != 'keep':
    faults.append(
      'config.train.constant_groups='
      f'{c.train.constant_groups!r}: with config.rollout.group_size=1 every '
      "group is constant and nothing would be learnt; set it to 'keep'"
    )
  return faults


def _shape_faults(c: ml_collections.ConfigDict) -> list[str]:
  """Faults of what the learner's programs look like."""
  faults, length = [], c.train.row_length
  shorter = list(c.train.shorter_rows)
  if not all(isinstance(n, int) and 0 < n < length for n in shorter) or any(
    length % n for n in shorter
  ):
    faults.append(
      f'config.train.shorter_rows={tuple(shorter)}: lengths that divide '
      f'config.train.row_length={length} and are below it'
    )
  elif shorter != sorted(set(shorter), reverse=True):
    faults.append(
      f'config.train.shorter_rows={tuple(shorter)}: must descend, each once'
    )
  if shorter and c.distributed.coordinator:
    faults.append(
      f'config.train.shorter_rows={tuple(shorter)}: several hosts compute in '
      'one shape; leave it () with config.distributed.coordinator='
      f'{c.distributed.coordinator!r}'
    )
  if c.train.param_dtype == 'bfloat16':
    if c.model.dtype != 'bfloat16':
      faults.append(
        f"config.train.param_dtype='bfloat16': config.model.dtype="
        f"{c.model.dtype!r} must be 'bfloat16' as well, or the sampler's "
        'weights would not be those that are trained'
      )
    if c.lora.rank:
      faults.append(
        "config.train.param_dtype='bfloat16': with config.lora.rank="
        f'{c.lora.rank} adapters are float32; set config.lora.base_dtype for '
        'the frozen weights and leave this float32'
      )
  return faults


def _mesh_faults(c: ml_collections.ConfigDict, num_devices) -> list[str]:
  sizes = c.mesh.to_dict()
  if sum(size == -1 for size in sizes.values()) > 1:
    return [f'config.mesh={sizes}: at most one axis may be -1']
  if any(size == 0 or size < -1 for size in sizes.values()):
    return [f'config.mesh={sizes}: sizes are >= 1, or -1 for the rest']
  product = math.prod(size for size in sizes.values() if size > 0)
  if num_devices is None:
    return []
  if (
    product != num_devices
    if -1 not in sizes.values()
    else (num_devices % product)
  ):
    return [f'config.mesh={sizes}: does not fit {num_devices} device(s)']
  sizes = {k: v if v > 0 else num_devices // product for k, v in sizes.items()}
  parts = sizes['data'] * sizes['fsdp'] * sizes['expert']
  if c.train.rows % parts:
    return [
      f'config.train.rows={c.train.rows}: must be a multiple of {parts} '
      '(config.mesh.data x config.mesh.fsdp x config.mesh.expert)'
    ]
  if c.model.num_experts % sizes['expert']:
    return [
      f'config.mesh.expert={sizes["expert"]}: must divide '
      f'config.model.num_experts={c.model.num_experts}'
    ]
  return []


def _host_faults(c: ml_collections.ConfigDict, num_hosts: int) -> list[str]:
  d, out = c.distributed, []
  where = d.coordinator
  if where not in ('', 'auto') and not where.rpartition(':')[2].isdigit():
    out.append(
      f'config.distributed.coordinator={where!r}: HOST:PORT of process 0, '
      "auto, or '' for one process"
    )
  if 0 < d.num_processes <= d.process_id:
    out.append(
      f'config.distributed.process_id={d.process_id}: must be below '
      f'config.distributed.num_processes={d.num_processes}'
    )
  if not where and d.num_processes > 1:
    out.append(
      f'config.distributed.num_processes={d.num_processes}: needs '
      'config.distributed.coordinator'
    )
  if where and c.lora.rank > 0 and c.sft.steps > 0 and not c.lora.sft:
    out.append(
      f'config.lora.sft=False: with config.lora.rank={c.lora.rank} and '
      f'config.sft.steps={c.sft.steps} a run keeps the base that it tuned, '
      'which several hosts cannot; set config.lora.sft=True, or fine-tune in a '
      'run of one process and start with config.init_from'
    )
  for field, value in (
    ('rollout.tasks', c.rollout.tasks),
    ('train.rows', c.train.rows),
    ('sft.rows', c.sft.rows),
  ):
    if value % num_hosts:
      out.append(
        f'config.{field}={value}: must be a multiple of {num_hosts}, the '
        'number of hosts'
      )
  return out
