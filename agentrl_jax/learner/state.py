"""What a learner carries from update to update."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax

from agentrl_jax import sharding
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import ModelConfig


@flax.struct.dataclass
class State:
  """Attributes: params, optimizer state, [] int32 counts of updates.

  `skipped` counts updates left out because something was not finite, and
  `skipped_in_row` those since the last good one.
  """

  params: Any
  opt_state: Any
  updates: jax.Array
  skipped: jax.Array
  skipped_in_row: jax.Array


def create(params: Any, tx: optax.GradientTransformation) -> State:
  """Returns the state before the first update."""
  return State(
    params=params,
    opt_state=tx.init(params),
    updates=jnp.zeros((), jnp.int32),
    skipped=jnp.zeros((), jnp.int32),
    skipped_in_row=jnp.zeros((), jnp.int32),
  )


def rounded(params: Any, dtype: str) -> Any:
  """Returns weights in `dtype` as a sampler has them; a value head stays."""
  return {
    name: tree
    if name == 'value'
    else jax.tree.map(lambda x: x.astype(dtype), tree)
    for name, tree in params.items()
  }


def shardings(config: ModelConfig, state: State, mesh) -> State:
  """Returns the tree of shardings of a state (or of its shapes).

  Leaves of the optimizer state that mirror a weight (same place in the tree
  and same shape) are split as the weight is; all others are replicated.
  """
  weights = sharding.shardings(
    params_lib.logical_axes(config), params_lib.abstract(config), mesh
  )
  by_path = {
    jax.tree_util.keystr(path): (placed, leaf.shape)
    for (path, leaf), placed in zip(
      jax.tree_util.tree_leaves_with_path(params_lib.abstract(config)),
      jax.tree.leaves(weights),
      strict=True,
    )
  }

  def place(path, leaf):
    text = jax.tree_util.keystr(path)
    for name, (placed, shape) in by_path.items():
      if text.endswith(name) and leaf.shape == shape:
        return placed
    return sharding.replicated(mesh)

  return jax.tree_util.tree_map_with_path(place, state)
