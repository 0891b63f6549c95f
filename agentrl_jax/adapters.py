"""What a run with adapters stands on: a base that is frozen, and kept track of.

Checkpoints hold adapters and their optimizer only. The base is read again from
where it came, and a digest in each checkpoint says whether it is the same.
"""

import functools
import hashlib
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections

from agentrl_jax import checkpoint, rng, sharding
from agentrl_jax import config as config_lib
from agentrl_jax.models import lora, peft
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import ModelConfig


def of_config(config: ml_collections.ConfigDict) -> lora.Lora | None:
  """Returns which adapters a config asks for, None for rank 0."""
  c = config.lora
  if not c.rank:
    return None
  return lora.Lora(rank=c.rank, alpha=c.alpha, targets=tuple(c.targets))


def faults(config: ml_collections.ConfigDict) -> list[str]:
  """Returns what is wrong with `config.lora` beside ranges and choices."""
  c = config.lora
  out = [f'config.lora.targets: {f}' for f in lora.faults(c.targets)]
  if c.adapter and not c.rank:
    out.append('config.lora.adapter: needs config.lora.rank, that of the file')
  if c.adapter and c.rank and not out:
    try:
      peft.check(c.adapter, of_config(config))
    except (OSError, ValueError) as e:
      out.append(f'config.lora.adapter={c.adapter}: {e}')
  return out


def base_dtype(
  config: ml_collections.ConfigDict, model: ModelConfig
) -> jnp.dtype:
  """Returns the type of frozen weights; 'auto' is that of activations."""
  name = config.lora.base_dtype
  return jnp.dtype(model.dtype if name == 'auto' else name)


def attach(
  config: ml_collections.ConfigDict,
  model: ModelConfig,
  params: Any,
  mesh: jax.sharding.Mesh,
) -> Any:
  """Returns params with the adapters that the config asks for.

  Where they are missing, the base is frozen from here on and gets its type.
  Drawn adapters depend on the run's seed; those of `lora.adapter` are read.
  """
  if model.lora is None or lora.adapters(params):
    return params
  wanted, _ = lora.split(params_lib.abstract(model))
  wanted.pop('value', None)
  axes, _ = lora.split(params_lib.logical_axes(model))
  axes.pop('value', None)
  placed = sharding.shardings(axes, wanted, mesh)
  if config.lora.adapter:
    drawn = jax.device_put(peft.load(config.lora.adapter, model), placed)
  else:
    draw = functools.partial(params_lib.adapters, model)
    draw = jax.jit(draw, out_shardings=placed)
    drawn = draw(rng.stream(config.seed, 'lora'))
  return lora.join(frozen(params, base_dtype(config, model)), drawn)


def frozen(params: Any, dtype: jnp.dtype) -> Any:
  """Returns params in the type of a base, shared where it is theirs."""
  if all(x.dtype == dtype for x in jax.tree.leaves(params)):
    return params
  return jax.jit(lambda p: jax.tree.map(lambda x: x.astype(dtype), p))(params)


def digest(params: Any) -> str:
  """Returns a hash of weights, to which each adds 64 bits."""
  sums = jax.device_get(_sums(params))
  content = [
    (jax.tree_util.keystr(path), [int(x) for x in pair])
    for path, pair in jax.tree_util.tree_leaves_with_path(sums)
  ]
  return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


@jax.jit
def _sums(tree: Any) -> Any:
  """Two sums a weight, of its bits and of its bits by place, modulo 2^32."""

  def one(x):
    unsigned = {2: jnp.uint16, 4: jnp.uint32}[x.dtype.itemsize]
    bits = jax.lax.bitcast_convert_type(x, unsigned).astype(jnp.uint32)
    place = jnp.ones(x.shape, jnp.uint32)
    for axis in range(x.ndim):
      steps = jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis)
      place = place * jnp.uint32(0x9E3779B1) + steps
    return jnp.stack([bits.sum(), (bits * (2 * place + 1)).sum()])

  return jax.tree.map(one, tree)


def keep(config: ml_collections.ConfigDict, workdir: str, params: Any) -> str:
  """Returns the digest of what is frozen, '' if nothing is.

  Writes the base to WORKDIR/base once, where nothing else holds it. That is so
  after fine-tuning of all weights: its result lies in a cache that may be
  emptied.
  """
  if not lora.adapters(params):
    return ''
  base = lora.base(params_lib.policy(params))
  if config.sft.steps and not config.lora.sft:

    def fill(directory):
      checkpoint.write_tree(f'{directory}/params', base)

    checkpoint.publish_directory(f'{workdir}/base', fill)
  return digest(base)


def sizes(state: Any, params: Any) -> str:
  """Returns a line on what is trained: a learner's state, and all weights."""
  trained = sum(x.size for x in jax.tree.leaves(state.params))
  total = sum(x.size for x in jax.tree.leaves(params))
  moments = sum(x.nbytes for x in jax.tree.leaves(state.opt_state))
  return (
    f'{trained:,} of {total:,} weights are trained; optimizer state '
    f'{moments / 1e6:.1f} MB'
  )


def kept(run: str, like: Any) -> Any | None:
  """Returns the base that a run keeps, None if it keeps none."""
  directory = pathlib.Path(run, 'base', 'params')
  if not directory.is_dir():
    return None
  return checkpoint.read_tree(str(directory), like)


def check(run: str, saved: str, now: str) -> None:
  """Raises ConfigError unless a checkpoint's adapters belong to this base.

  Args:
    run: directory of the checkpoint, for the message.
    saved: digest in the checkpoint.
    now: digest of the base at hand.
  """
  if saved != now:
    raise config_lib.ConfigError(
      [
        f'{run}: its adapters were trained beside another base (digest '
        f'{saved}, here {now}): the weights behind config.init_from or '
        'config.model.weights, the seed or config.lora.base_dtype changed; '
        'put back what the run began with'
      ]
    )
