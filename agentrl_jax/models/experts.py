"""The experts of a layer, on one device or many, and what they tell.

On a mesh each device holds E / n experts, n being the size of the axis
`expert`. Rows go over that axis too, so that attention is shared out; around
the experts the n devices gather each other's tokens, compute the part of their
own experts for all of them, and add up.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from agentrl_jax import sharding
from agentrl_jax.models import moe
from agentrl_jax.models.config import ModelConfig

_MATRICES = {
  'expert_gate': ('experts', None, 'mlp'),
  'expert_up': ('experts', None, 'mlp'),
  'expert_down': ('experts', 'mlp', None),
}


class Block(NamedTuple):
  """What a layer's experts gave.

  Attributes:
    out: [R, T, D].
    choices: [R, T, k] int32.
    balance: [] float32, see `moe.balance_loss`.
    load: [E] float32, see `moe.load`.
    kept: [] float32, mean of `moe.Routes.kept` over the tokens that count.
  """

  out: jax.Array
  choices: jax.Array
  balance: jax.Array
  load: jax.Array
  kept: jax.Array


def block(
  config: ModelConfig,
  layer: dict,
  x: jax.Array,
  mask: jax.Array,
  replay: jax.Array | None = None,
) -> Block:
  """Applies a layer's experts.

  Args:
    config: the shape.
    layer: router [D, E] and what `mixture` takes.
    x: [R, T, D].
    mask: [R, T] bool, tokens that count in the statistics.
    replay: [R, T, k] integers, see `moe.route`.

  Returns:
    Block.
  """
  shape = (*x.shape[:2], config.experts_per_token)
  counted = mask.reshape(-1)
  routes = moe.route(
    x.reshape(-1, x.shape[-1]),
    layer['router'],
    config.experts_per_token,
    renormalise=config.norm_topk,
    replay=None if replay is None else replay.reshape(-1, shape[-1]),
  )
  choices = routes.choices.reshape(shape)
  kept = jnp.where(counted, routes.kept.mean(-1), 0.0).sum()
  return Block(
    out=mixture(
      config.expert_compute, layer, x, choices, routes.weights.reshape(shape)
    ),
    choices=choices,
    balance=moe.balance_loss(routes, counted),
    load=moe.load(routes, counted),
    kept=kept / jnp.maximum(counted.sum(), 1),
  )


def on(
  config: ModelConfig, mesh: jax.sharding.Mesh, function: Callable
) -> Callable:
  """Returns a function that tells experts their mesh while it is traced.

  Args:
    config: of the decoder that `function` runs, or a foreign `Policy`.
    mesh: devices.
    function: to be jitted by the caller.
  """
  if not getattr(config, 'num_experts', 0):
    return function
  return sharding.traced_on(mesh, function)


def mixture(
  method: str,
  layer: dict,
  x: jax.Array,
  choices: jax.Array,
  weights: jax.Array,
) -> jax.Array:
  """Adds up the experts of each token, over the mesh that `on` tells, if any.

  Args:
    method: a name in `moe.EXPERTS`.
    layer: expert_gate, expert_up [E, D, F], expert_down [E, F, D].
    x: [R, T, D].
    choices: [R, T, k] int32.
    weights: [R, T, k] float32.

  Returns:
    [R, T, D].

  Raises:
    ValueError: the axis `expert` does not divide E.
  """
  mesh = jax.sharding.get_abstract_mesh()
  matrices = {name: layer[name] for name in _MATRICES}
  if mesh.empty or mesh.size == 1:
    return _flat(method, matrices, x, choices, weights)
  num_experts, parts = layer['expert_gate'].shape[0], mesh.shape['expert']
  if num_experts % parts:
    raise ValueError(
      f'{num_experts} experts do not divide over {parts} devices: change '
      'config.mesh.expert'
    )
  places = {
    name: sharding.spec(axes, layer[name].shape, mesh)
    for name, axes in _MATRICES.items()
  }
  # Rows that do not divide (slots of a sampler) are everywhere.
  rows = sharding.spec(('rows', None, None), x.shape, mesh)
  part = functools.partial(
    _part, method, rows[0] is not None, places['expert_gate'][2] is not None
  )
  return jax.shard_map(
    part,
    mesh=mesh,
    in_specs=(places, rows, rows, rows),
    out_specs=rows,
    check_vma=False,
  )(matrices, x, choices, weights)


def _part(method, rows_split, width_split, matrices, x, choices, weights):
  """What this device adds to its tokens and its neighbours'."""
  several = jax.lax.axis_size('expert') > 1
  if several and rows_split:
    x, choices, weights = (
      jax.lax.all_gather(array, 'expert', tiled=True)
      for array in (x, choices, weights)
    )
  if several:
    num_own = matrices['expert_gate'].shape[0]
    choices -= jax.lax.axis_index('expert') * num_own
    own = (choices >= 0) & (choices < num_own)
    choices = jnp.where(own, choices, num_own)
    weights = jnp.where(own, weights, 0.0)
  out = _flat(method, matrices, x, choices, weights)
  if width_split:
    out = jax.lax.psum(out, 'tensor')
  if several and rows_split:
    return jax.lax.psum_scatter(out, 'expert', tiled=True)
  return jax.lax.psum(out, 'expert') if several else out


def _flat(method, matrices, x, choices, weights):
  num_choices = choices.shape[-1]
  out = moe.EXPERTS[method](
    x.reshape(-1, x.shape[-1]),
    matrices,
    choices.reshape(-1, num_choices),
    weights.reshape(-1, num_choices),
  )
  return out.reshape(x.shape)
