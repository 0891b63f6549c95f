"""Low-rank adapters: a frozen weight W plus s·A·B, of which A and B learn.

Adapters lie beside the stacked layers, `params['layers']['lora'][name]`, as
{'a': [L, *inputs, r], 'b': [L, r, *outputs]}. Params with them are a policy
like any other; the same params without them are its base. What is trained and
what is frozen are two partial trees of params, and `join` makes one of them.
"""

import dataclasses
import difflib
import math
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from agentrl_jax.models import products

# Matrices of a block that may have an adapter -> how many axes are its input.
INPUTS = {'q': 1, 'k': 1, 'v': 1, 'o': 2, 'gate': 1, 'up': 1, 'down': 1}


@dataclasses.dataclass(frozen=True)
class Lora:
  """Which adapters a policy has; hashable.

  Attributes:
    rank: r >= 1.
    alpha: s = alpha / r.
    targets: names in `INPUTS`.
  """

  rank: int
  alpha: float
  targets: tuple[str, ...]

  @property
  def scale(self) -> float:
    """The factor s of A·B."""
    return self.alpha / self.rank


def faults(targets: Iterable[str], known: Iterable[str] = INPUTS) -> list[str]:
  """Returns what is wrong with names of targets.

  Args:
    targets: names that a config gives.
    known: those that may be given.
  """
  names, known, out = list(targets), list(known), []
  for name in names:
    if name not in known:
      near = difflib.get_close_matches(str(name), known, n=1)
      hint = f' (did you mean {near[0]!r}?)' if near else ''
      out.append(f'{name!r}: not one of {", ".join(known)}{hint}')
  if not names:
    out.append(f'no target: give some of {", ".join(known)}')
  if len(set(names)) < len(names):
    out.append(f'{tuple(names)}: a target is named twice')
  return out


def describe(layers: dict[str, Any], lora: Lora) -> dict[str, Any]:
  """Returns the adapters as `params.Weight`s.

  A is drawn with variance 1 / (3 fan_in), as PEFT does, and B is 0: the policy
  begins as its base.

  Args:
    layers: name -> `params.Weight` of the stacked blocks.
    lora: rank and targets.

  Raises:
    ValueError: a target that is unknown, or that this model does not have.
  """
  wrong = faults(lora.targets, [name for name in INPUTS if name in layers])
  if wrong:
    raise ValueError('lora.targets: ' + '; '.join(wrong))
  return {
    name: _pair(layers[name], INPUTS[name], lora) for name in lora.targets
  }


def _pair(weight, num_inputs: int, lora: Lora) -> dict[str, Any]:
  (stack, *shape), (stacked, *axes) = weight.shape, weight.axes
  ins, outs = shape[:num_inputs], shape[num_inputs:]
  return {
    'a': dataclasses.replace(
      weight,
      shape=(stack, *ins, lora.rank),
      axes=(stacked, *axes[:num_inputs], None),
      std=1 / math.sqrt(3 * math.prod(ins)),
    ),
    'b': dataclasses.replace(
      weight,
      shape=(stack, lora.rank, *outs),
      axes=(stacked, None, *axes[num_inputs:]),
      std=0.0,
      fill=0.0,
    ),
  }


def linear(
  lora: Lora | None, layer: dict[str, Any], name: str, x: jax.Array
) -> jax.Array:
  """Applies a matrix of a block and its adapter, if there is one.

      x·W + s·(x·A)·B

  A·B is never made: its gradient would be that of a whole weight, a third of a
  backward pass. Without an adapter it is one product, x·W.

  Args:
    lora: of the policy; may be None where the layer has no adapters.
    layer: weights of one block.
    name: in `INPUTS`.
    x: [..., *inputs], the type of the result.

  Returns:
    [..., *outputs].
  """
  axes = INPUTS[name]
  y = products.product(x, layer[name].astype(x.dtype), axes)
  if lora is None or name not in layer.get('lora', {}):
    return y
  adapter = layer['lora'][name]
  low = products.product(x, adapter['a'].astype(x.dtype), axes) * lora.scale
  return y + products.product(low, adapter['b'].astype(x.dtype), 1)


def adapters(params: Any) -> dict[str, Any]:
  """Returns the adapters of params by target; {} if there are none."""
  layers = params.get('layers') if isinstance(params, dict) else None
  return layers.get('lora', {}) if isinstance(layers, dict) else {}


def merge(lora: Lora | None, params: dict, dtype: Any = None) -> dict:
  """Returns params without adapters that are the same policy: W + s·A·B.

  The sum is made in float32 and rounded once.

  Args:
    lora: of the policy; may be None where params have no adapters.
    params: layers stacked.
    dtype: of the sums; None = that of W.
  """
  if not adapters(params):
    return params
  layers = base(params)['layers']
  for name, adapter in adapters(params).items():
    a, b = (adapter[key].astype(jnp.float32) for key in 'ab')
    # One product a layer, batched over the stack.
    delta = jax.vmap(lambda a, b: jnp.tensordot(a, b, 1))(a, b)
    weight = layers[name]
    merged = weight.astype(jnp.float32) + lora.scale * delta
    layers[name] = merged.astype(dtype or weight.dtype)
  return {**params, 'layers': layers}


def base(params: dict) -> dict:
  """Returns params without adapters: the frozen policy."""
  layers = {k: v for k, v in params['layers'].items() if k != 'lora'}
  return {**params, 'layers': layers}


def split(params: dict) -> tuple[dict, dict]:
  """Parts any tree like params into (what is trained, what is frozen).

  Adapters and a value head are trained; without adapters, everything is.
  """
  if not adapters(params):
    return params, {}
  frozen = base(params)
  trained = {'layers': {'lora': adapters(params)}}
  if 'value' in frozen:
    trained['value'] = frozen.pop('value')
  return trained, frozen


def join(one: Any, two: Any) -> Any:
  """Returns the union of two partial trees: undoes `split`."""
  if isinstance(two, dict) and not two:
    return one
  if not (isinstance(one, dict) and isinstance(two, dict)):
    raise ValueError('two trees hold the same weight')
  return {
    key: join(one[key], two[key])
    if key in one and key in two
    else (one if key in one else two)[key]
    for key in sorted(one.keys() | two.keys())
  }
