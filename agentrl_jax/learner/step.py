"""Gradient of a microbatch, and the update: two programs for a whole run."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from agentrl_jax import sharding
from agentrl_jax.batch import TokenBatch
from agentrl_jax.learner import objective as objective_lib
from agentrl_jax.learner import state as state_lib
from agentrl_jax.models import fused, lora
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import ModelConfig


def accumulate(
  objective: Callable,
  config: ModelConfig,
  params: Any,
  gradients: Any,
  metrics: objective_lib.Metrics,
  batch: TokenBatch,
  extra: Mapping[str, jax.Array],
  frozen: Any,
) -> tuple[Any, objective_lib.Metrics]:
  """Adds a microbatch's gradient and metrics to what was added before.

  Of `frozen` weights, the rest of the policy beside `params`, no gradient is
  computed: {} where everything is trained.
  """

  def loss(params):
    return objective(config, lora.join(params, frozen), batch, **extra)

  new, new_metrics = jax.grad(loss, has_aux=True)(params)
  gradients = jax.tree.map(jnp.add, gradients, new)
  return gradients, objective_lib.combine(metrics, new_metrics)


def apply(
  tx: optax.GradientTransformation,
  state: state_lib.State,
  gradients: Any,
  loss: jax.Array,
) -> tuple[state_lib.State, Any, dict[str, jax.Array]]:
  """Updates the weights; where the loss or the gradient is not finite, counts.

  Returns:
    The new state, gradients of zero for the next update (their memory is
    reused), and scalars: grad_norm, update_norm, finite.
  """
  norm = optax.global_norm(gradients)
  finite = jnp.isfinite(norm) & jnp.isfinite(loss)
  safe = jax.tree.map(lambda g: jnp.where(finite, g, 0.0), gradients)
  updates, opt_state = tx.update(safe, state.opt_state, state.params)
  params = optax.apply_updates(state.params, updates)

  def choose(new, old):
    return jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old)

  skipped = 1 - finite.astype(jnp.int32)
  new = state.replace(
    params=choose(params, state.params),
    opt_state=choose(opt_state, state.opt_state),
    updates=state.updates + 1 - skipped,
    skipped=state.skipped + skipped,
    skipped_in_row=(state.skipped_in_row + 1) * skipped,
  )
  info = {
    'grad_norm': norm,
    'update_norm': optax.global_norm(updates),
    'finite': finite.astype(jnp.float32),
  }
  return new, jax.tree.map(jnp.zeros_like, gradients), info


class Learner:
  """Jits the two programs for one mesh, objective and optimizer.

  A policy with adapters trains those and its value head; the rest is frozen,
  is held here and is not part of the state.

  Args:
    config: the policy's shape.
    objective: `f(config, params, batch, **extra) -> (loss, Metrics)`, the loss
      again among the sums.
    tx: the optimizer.
    mesh: devices; rows are split over its data axes.
    num_rows: R of a microbatch.
    param_dtype: of the weights that a gradient is taken at. Below float32 they
      are a copy, made for each update and gone after it; weights, sums of
      gradients and moments are float32 in any case.
  """

  def __init__(
    self,
    config: ModelConfig,
    objective: Callable,
    tx: optax.GradientTransformation,
    mesh: jax.sharding.Mesh,
    num_rows: int,
    param_dtype: str = 'float32',
  ):
    size = sharding.num_row_parts(mesh.shape)
    if num_rows % size:
      raise ValueError(
        f'{num_rows} rows of a microbatch do not divide over {size} devices: '
        'change config.train.rows or config.mesh'
      )
    self.config = config
    self._mesh = mesh
    self._tx = tx
    trained, _ = lora.split(params_lib.abstract(config))
    weights, _ = lora.split(
      sharding.shardings(
        params_lib.logical_axes(config), params_lib.abstract(config), mesh
      )
    )
    self._rows = sharding.rows(mesh)
    full = sharding.replicated(mesh)
    self._accumulate = jax.jit(
      sharding.traced_on(
        mesh, functools.partial(accumulate, objective, config)
      ),
      donate_argnums=(1, 2),
      out_shardings=(weights, full),
    )
    shapes = jax.eval_shape(functools.partial(state_lib.create, tx=tx), trained)
    self._placed = state_lib.shardings(config, shapes, mesh)
    self._shapes = _placed_shapes(shapes, self._placed)
    # Said here as well: what GSPMD chooses would compile `accumulate` again.
    self._apply = jax.jit(
      functools.partial(apply, tx),
      donate_argnums=(0, 1),
      out_shardings=(self._placed, weights, full),
    )
    self._zeros = jax.jit(
      lambda params: jax.tree.map(jnp.zeros_like, params),
      out_shardings=weights,
    )
    self._rounded = jax.jit(
      functools.partial(state_lib.rounded, dtype=param_dtype),
      out_shardings=weights,
    )
    self._rounds = param_dtype != 'float32'
    self._objective = objective
    self._frozen: Any = {}
    self._gradients = None
    self._empty = None

  def create(self, params: Any) -> state_lib.State:
    """Returns the state before the first update, placed on the mesh.

    The weights that are trained are copied: the caller's stay valid. Frozen
    ones are shared with the caller.
    """

    def copy(params):
      return state_lib.create(jax.tree.map(jnp.copy, params), self._tx)

    trained, self._frozen = lora.split(params)
    return jax.jit(copy, out_shardings=self._placed)(trained)

  def policy(self, state: state_lib.State) -> Any:
    """Returns the whole params: those of the state with the frozen ones."""
    return lora.join(state.params, self._frozen)

  def update(
    self,
    state: state_lib.State,
    batches: Sequence[TokenBatch],
    extras: Sequence[Mapping[str, Any]] = (),
  ) -> tuple[state_lib.State, objective_lib.Metrics, dict]:
    """Does one optimizer update; `state` is donated.

    Args:
      state: weights and optimizer.
      batches: this host's microbatches of one shape, as many on every host;
        weights over all of them on all hosts.
      extras: further arrays [R, T] or [] for the objective, by name, one
        mapping a microbatch.

    Returns:
      (state, metrics, info) on the device: nothing waits.
    """
    if self._gradients is None:
      self._gradients = self._zeros(state.params)
    gradients, self._gradients = self._gradients, None
    metrics = self._no_metrics(self.policy(state), batches[0], extras)
    params = self._rounded(state.params) if self._rounds else state.params
    for i, batch in enumerate(batches):
      batch, extra = sharding.put_rows(
        (batch, extras[i] if extras else {}), self._rows
      )
      with fused.scope(self.config.attention, self._mesh):
        gradients, metrics = self._accumulate(
          params, gradients, metrics, batch, extra, self._frozen
        )
    state, self._gradients, info = self._apply(
      state, gradients, metrics.sums['loss']
    )
    return state, metrics, info

  def lower(
    self, batch: TokenBatch, extra: Mapping[str, Any] | None = None
  ) -> dict[str, jax.stages.Lowered]:
    """Lowers the two programs for shapes alone; nothing is computed.

    Args:
      batch: a microbatch, or its shapes.
      extra: as one of `extras` of `update`.

    Returns:
      'accumulate' and 'apply': compiled, they tell memory and cost a device.
    """
    state = self._shapes
    params = jax.eval_shape(self._rounded, state.params)
    params = _placed_shapes(params, self._placed.params)
    abstract = params_lib.abstract(self.config)
    placed = sharding.shardings(
      params_lib.logical_axes(self.config), abstract, self._mesh
    )
    frozen = lora.split(_placed_shapes(abstract, placed))[1]
    rows = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self._rows),
      (batch, dict(extra or {})),
    )
    metrics = jax.eval_shape(
      functools.partial(self._objective, self.config),
      lora.join(params, frozen),
      rows[0],
      **rows[1],
    )[1]
    full = sharding.replicated(self._mesh)
    metrics = _placed_shapes(metrics, jax.tree.map(lambda _: full, metrics))
    with fused.scope(self.config.attention, self._mesh):
      accumulated = self._accumulate.lower(
        params, state.params, metrics, *rows, frozen
      )
    loss = metrics.sums['loss']
    applied = self._apply.lower(state, state.params, loss)
    return {'accumulate': accumulated, 'apply': applied}

  def _no_metrics(self, params, batch, extras):
    """Zeros of the objective's metrics, their shapes found once."""
    if self._empty is None:
      extra = extras[0] if extras else {}
      shapes = jax.eval_shape(
        functools.partial(self._objective, self.config),
        params,
        batch,
        **extra,
      )[1]
      self._empty = jax.tree.map(lambda x: x.dtype.type(0), shapes)
    full = sharding.replicated(self._mesh)
    return sharding.put_same(self._empty, full)


def _placed_shapes(shapes: Any, placed: Any) -> Any:
  """Returns a tree of shapes with the shardings of another."""
  return jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
    shapes,
    placed,
  )
