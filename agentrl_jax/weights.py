"""Where a policy's weights come from: a seed, a run, somebody else's files."""

import dataclasses
import functools
import pathlib
from typing import Any

import jax
import ml_collections
import numpy as np

from agentrl_jax import adapters, checkpoint, pretrained, rng, sharding
from agentrl_jax import config as config_lib
from agentrl_jax.models import lora
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import ModelConfig


def first_params(
  config: ml_collections.ConfigDict, model: ModelConfig, mesh: jax.sharding.Mesh
) -> Any:
  """Returns the weights to begin with, without adapters.

  They are those of `init_from` or `model.weights`, or drawn by the seed.
  """
  if config.init_from:
    return saved_params(config.init_from, model, mesh)
  model = dataclasses.replace(model, lora=None)
  placed = jax.tree.map(lambda x: x.sharding, abstract_params(model, mesh))
  if config.model.weights:
    all_trained = not config.lora.rank or (
      config.sft.steps and not config.lora.sft
    )
    dtype = np.float32 if all_trained else adapters.base_dtype(config, model)
    return pretrained.load(config.model.weights, dtype=dtype, shardings=placed)
  init = jax.jit(
    functools.partial(params_lib.init, model), out_shardings=placed
  )
  return init(rng.stream(config.seed, 'init'))


def saved_params(run: str, model: ModelConfig, mesh: jax.sharding.Mesh) -> Any:
  """Returns the weights of a run's last checkpoint, placed on the mesh.

  Raises:
    ConfigError: no checkpoint there, or of another shape.
  """
  directory = pathlib.Path(run) / 'checkpoints'
  saved = checkpoint.Checkpoints(str(directory), keep=1, read_only=True)
  if saved.latest is None:
    saved.close()
    raise _no_weights(run, 'no whole checkpoint in it')
  try:
    return restored(saved, saved.latest, run, model, mesh)
  except config_lib.ConfigError:
    raise
  except (KeyError, TypeError, ValueError) as e:
    reason = f'weights of another model: {str(e).splitlines()[0]}'
    raise _no_weights(run, reason) from e
  finally:
    saved.close()


def chosen(
  run: str, which: str, model: ModelConfig, mesh: jax.sharding.Mesh
) -> tuple[int, Any]:
  """Returns (iteration, weights) of one of a run's checkpoints.

  Args:
    run: directory.
    which: 'last', 'best' (by validation) or an iteration.
    model: shape of the policy.
    mesh: devices.

  Raises:
    ValueError: no such checkpoint, or of another shape.
  """
  saved = checkpoint.Checkpoints(
    f'{run}/checkpoints', keep=1, best_metric='eval/success', read_only=True
  )
  try:
    step = step_of(saved, which, run)
    return step, restored(saved, step, run, model, mesh)
  finally:
    saved.close()


def step_of(saved: checkpoint.Checkpoints, which: str, run: str) -> int:
  """Returns the iteration of a checkpoint.

  Args:
    saved: checkpoints of the run, with the metric that says which is best.
    which: as of `chosen`.
    run: its directory, for the error.

  Raises:
    ValueError: no such checkpoint.
  """
  step = {'last': saved.latest, 'best': saved.best}.get(which)
  if step is None and which.isdigit() and int(which) in saved.steps:
    step = int(which)
  if step is None:
    raise ValueError(
      f'{run} has no checkpoint {which!r}: give last, best or one of '
      f'{saved.steps}'
    )
  return step


def restored(
  saved: checkpoint.Checkpoints,
  step: int,
  run: str,
  model: ModelConfig,
  mesh: jax.sharding.Mesh,
) -> Any:
  """Returns the policy in a checkpoint, its adapters merged into the weights.

  Args:
    saved: checkpoints of the run.
    step: which one.
    run: its directory.
    model: shape of the policy; adapters are as the run's own config says.
    mesh: devices.

  Raises:
    ValueError: weights of another shape.
    ConfigError: the base of its adapters is not what it was.
  """
  model = dataclasses.replace(model, lora=None)
  known = pathlib.Path(run, 'config.json').is_file()
  config = config_lib.of_run(run) if known else None
  if config is None or not config.lora.rank:
    like = {'params': abstract_params(model, mesh)}
    return saved.restore_part(step, like)['params']
  params = adapted(saved, step, run, config, model, mesh)

  def whole(params):
    merged = lora.merge(adapters.of_config(config), params, np.float32)
    return jax.tree.map(lambda x: x.astype(np.float32), merged)

  return jax.jit(whole)(params)


def adapted(
  saved: checkpoint.Checkpoints,
  step: int,
  run: str,
  config: ml_collections.ConfigDict,
  model: ModelConfig,
  mesh: jax.sharding.Mesh,
) -> Any:
  """Returns the frozen base and the adapters of a checkpoint.

  Args:
    saved, step, run, mesh: as of `restored`, which merges them.
    config: of the run, with adapters.
    model: shape of the base.
  """
  own = dataclasses.replace(model, lora=adapters.of_config(config))
  like, _ = lora.split(abstract_params(own, mesh))
  trained = saved.restore_part(step, {'params': like})['params']
  meta = saved.meta(step)
  # 'auto' may be another type on the device of whoever reads.
  config = config.copy_and_resolve_references()
  config.lora.base_dtype = meta.get('base_dtype', config.lora.base_dtype)
  base = kept_base(config, model, mesh, run)
  if base is None:
    dtype = adapters.base_dtype(config, model)
    base = adapters.frozen(first_params(config, model, mesh), dtype)
  adapters.check(run, meta['base'], adapters.digest(base))
  return lora.join(base, trained)


def kept_base(
  config: ml_collections.ConfigDict,
  model: ModelConfig,
  mesh: jax.sharding.Mesh,
  run: str,
) -> Any | None:
  """Returns the tuned base that a run keeps; None if it keeps none."""
  dtype = adapters.base_dtype(config, model)
  model = dataclasses.replace(model, lora=None)
  shapes = jax.tree.map(
    lambda x: x.update(dtype=dtype), abstract_params(model, mesh)
  )
  return adapters.kept(run, shapes)


def _no_weights(run: str, reason: str) -> config_lib.ConfigError:
  return config_lib.ConfigError([f'config.init_from={run}: {reason}'])


def abstract_params(model: ModelConfig, mesh: jax.sharding.Mesh) -> Any:
  """Returns shapes and shardings of the weights."""
  shapes = params_lib.abstract(model)
  placed = sharding.shardings(params_lib.logical_axes(model), shapes, mesh)
  return jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
    shapes,
    placed,
  )
