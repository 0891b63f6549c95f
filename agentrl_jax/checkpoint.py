"""Checkpoints: whole or not there, the last few and the best.

A step directory appears by a rename once everything in it is written, so that
a killed run never leaves half a checkpoint that is later loaded.
"""

import json
import logging
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy

from agentrl_jax import config as config_lib

_RESHARD = ', or config.checkpoint.reshard=true to go on from it'

# A value head helps to learn; who plays or exports a policy leaves it there.
_LEARNERS_OWN = 'params.value.'


class Checkpoints:
  """Numbered checkpoints of one run: a state on the device and some JSON.

  Args:
    directory: made if missing.
    keep: how many of the last are kept.
    best_metric: key of the JSON; the checkpoint with its highest value is
      kept besides. '' = none.
    read_only: of a run that may be alive: nothing in it is made or swept.
  """

  def __init__(
    self,
    directory: str,
    *,
    keep: int,
    best_metric: str = '',
    read_only: bool = False,
  ):
    policies = [preservation_policy.LatestN(keep)]
    best_fn = None
    if best_metric:

      def best_fn(metrics):
        return metrics[best_metric]

      policies.append(
        preservation_policy.BestN(
          get_metric_fn=best_fn,
          n=1,
          keep_checkpoints_without_metrics=False,
        )
      )
    self._best_metric = best_metric
    self._manager = ocp.CheckpointManager(
      os.path.abspath(directory),
      options=ocp.CheckpointManagerOptions(
        create=not read_only,
        read_only=read_only,
        cleanup_tmp_directories=not read_only,  # of a killed run
        enable_async_checkpointing=False,
        best_fn=best_fn,  # without it Orbax writes no metrics
        preservation_policy=preservation_policy.AnyPreservationPolicy(policies),
      ),
    )

  @property
  def latest(self) -> int | None:
    """Number of the last whole checkpoint."""
    return self._manager.latest_step()

  @property
  def steps(self) -> list[int]:
    """Numbers of all checkpoints."""
    return sorted(self._manager.all_steps())

  @property
  def best(self) -> int | None:
    """Number of the best checkpoint, None if none has the metric."""
    return self._manager.best_step() if self._best_metric else None

  def save(self, step: int, state: Any, meta: Mapping[str, Any]) -> None:
    """Writes one checkpoint and drops those that need not be kept."""
    metric = meta.get(self._best_metric)
    self._manager.save(
      step,
      args=ocp.args.Composite(
        state=ocp.args.StandardSave(state), meta=ocp.args.JsonSave(dict(meta))
      ),
      metrics=None if metric is None else {self._best_metric: float(metric)},
    )
    self._manager.wait_until_finished()

  def restore(self, step: int, like: Any) -> tuple[Any, dict[str, Any]]:
    """Returns (state, meta) of a checkpoint.

    Args:
      step: its number.
      like: tree of arrays or ShapeDtypeStructs with shardings.

    Raises:
      ValueError: the checkpoint does not fit `like`.
    """
    try:
      restored = self._manager.restore(
        step,
        args=ocp.args.Composite(
          state=ocp.args.StandardRestore(abstract(like)),
          meta=ocp.args.JsonRestore(),
        ),
      )
    except (KeyError, TypeError, ValueError) as e:
      raise ValueError(
        f'checkpoint {step} in {self._manager.directory} does not fit this '
        f'config (another model or optimizer?): {e}'
      ) from e
    return restored['state'], dict(restored['meta'])

  def meta(self, step: int) -> dict[str, Any]:
    """Returns the JSON of a checkpoint."""
    asked = ocp.args.Composite(meta=ocp.args.JsonRestore())
    return dict(self._manager.restore(step, args=asked)['meta'])

  def restore_part(self, step: int, like: Mapping[str, Any]) -> dict[str, Any]:
    """Returns some fields of a saved state, e.g. like={'params': shapes}.

    A value head that is not asked for is left out.

    Raises:
      ValueError: a shape differs, or a field is not there.
    """
    directory = pathlib.Path(self._manager.directory) / str(step) / 'state'
    with ocp.PyTreeCheckpointer() as reader:
      wanted = abstract(dict(like))
      # Compared before anything is read: a read that fails half-way leaves
      # threads behind that complain when the process ends.
      stored = reader.metadata(directory).item_metadata.tree
      _check_shapes(wanted, {key: stored[key] for key in wanted})
      return reader.restore(
        directory,
        args=ocp.args.PyTreeRestore(
          item=wanted,
          restore_args=ocp.checkpoint_utils.construct_restore_args(wanted),
          partial_restore=True,
        ),
      )

  def close(self) -> None:
    """Frees the manager's threads."""
    self._manager.close()


def _check_shapes(wanted: Any, stored: Any) -> None:
  wanted, stored = (
    {
      jax.tree_util.keystr(path, simple=True, separator='.'): leaf.shape
      for path, leaf in jax.tree_util.tree_leaves_with_path(
        tree, is_leaf=lambda x: hasattr(x, 'shape')
      )
    }
    for tree in (wanted, stored)
  )
  for name in [n for n in stored if n.startswith(_LEARNERS_OWN)]:
    if name not in wanted:
      del stored[name]
  wrong = [
    f'{name}: {stored.get(name, "nothing")} stored, {wanted.get(name)} wanted'
    for name in sorted(wanted.keys() | stored.keys())
    if wanted.get(name) != stored.get(name)
  ]
  if wrong:
    raise ValueError('; '.join(wrong))


def keep_config(workdir: str | os.PathLike[str], config: Any) -> None:
  """Writes `config.json`: what a run is, or goes on as."""
  path = pathlib.Path(workdir, 'config.json')
  partial = path.with_suffix('.tmp')
  partial.write_text(config_lib.to_json(config) + '\n')
  partial.replace(path)


def claim(workdir: str | os.PathLike[str], config: Any) -> None:
  """Writes `config.json`, or checks that the run there has the same config.

  Who a process is (`distributed`) may differ, and with `checkpoint.reshard` so
  may the mesh: arrays are placed anew when they are read.

  Raises:
    ConfigError: another config: every differing field is listed.
  """
  path = pathlib.Path(workdir) / 'config.json'
  mine = json.loads(config_lib.to_json(config))
  if not path.exists():
    keep_config(workdir, config)
    return
  theirs, mine = (_leaves(x) for x in (json.loads(path.read_text()), mine))
  changed = sorted(
    key
    for key in mine.keys() | theirs.keys()
    if mine.get(key) != theirs.get(key) and not _may_differ(key, config)
  )
  if changed:
    raise config_lib.ConfigError(
      f'config.{key}={mine.get(key)!r}: the run in {workdir} has '
      f'{theirs.get(key)!r}; use another --workdir'
      f'{_RESHARD if key.startswith("mesh.") else ""}'
      for key in changed
    )


def _may_differ(key: str, config: Any) -> bool:
  moves = config.checkpoint.reshard and key.startswith('mesh.')
  return moves or key == 'checkpoint.reshard' or key.startswith('distributed.')


def _leaves(tree: Any, prefix: str = '') -> dict[str, Any]:
  if not isinstance(tree, dict) or not tree:
    return {prefix[:-1]: tree}
  out = {}
  for key, value in tree.items():
    out |= _leaves(value, f'{prefix}{key}.')
  return out


def abstract(tree: Any) -> Any:
  """Returns shapes, types and shardings of a tree of arrays."""

  def one(x):
    if isinstance(x, jax.ShapeDtypeStruct):
      return x
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)

  return jax.tree.map(one, tree)


def write_tree(directory: str, tree: Any) -> None:
  """Writes a tree of arrays to a new directory."""
  with ocp.StandardCheckpointer() as writer:
    writer.save(os.path.abspath(directory), tree)


def read_tree(directory: str, like: Any) -> Any:
  """Reads a tree of arrays; `like` as in `Checkpoints.restore`."""
  with ocp.StandardCheckpointer() as reader:
    return reader.restore(os.path.abspath(directory), abstract(like))


def publish_directory(target: str, fill: Callable[[str], None]) -> None:
  """Makes a directory that is whole or not there, once, whoever comes first.

  Args:
    target: nothing is done if it exists.
    fill: writes into the temporary directory that it is given.
  """
  path = pathlib.Path(target)
  if path.exists():
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = tempfile.mkdtemp(prefix=f'.{path.name}.', dir=path.parent)
  try:
    fill(temporary)
    os.rename(temporary, path)
  except OSError:
    if not path.exists():  # otherwise another run was first
      raise
    logging.getLogger(__name__).info('%s was written by another run', path)
  finally:
    shutil.rmtree(temporary, ignore_errors=True)
