"""Several hosts: how they find each other, and how they stay in step.

Every process runs the same program. What one host does alone (playing its
episodes) is `together`: afterwards all go on, all stop, or all fail. What only
one host knows is told to the others by `exchange` and `gather`. With a single
process each of these is the identity, at no cost.
"""

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

T = TypeVar('T')

# Messages are padded to a multiple: few programs for any length.
_QUANTUM = 4096
_POLITE = 'stop'

# What the runtime says when an exchange in the midst of a program breaks off.
_BROKEN = re.compile(
  r'gloo|by peer|heartbeat|connection|socket closed|coordination|barrier'
  r'|remote process exited|network error',
  re.IGNORECASE,
)


class Unlike(ValueError):
  """Processes of a run were given different things."""


class NotJoined(RuntimeError):
  """This process did not find the others."""


class PeerFailed(RuntimeError):
  """Another process could not go on, and said so."""


class Lost(RuntimeError):
  """An exchange broke off: another process is gone, the run can go on."""


def initialize(
  *,
  coordinator: str,
  num_processes: int = 0,
  process_id: int = -1,
  heartbeat_timeout_seconds: int = 20,
  initialization_timeout_s: int = 300,
) -> None:
  """Joins the other processes; must come before any device is touched.

  Args:
    coordinator: 'HOST:PORT' of process 0; 'auto' asks the cluster (SLURM, TPU,
      Kubernetes, Open MPI); '' = this process is alone.
    num_processes: of the run; 0 = the cluster says.
    process_id: of this one; -1 = the cluster says.
    heartbeat_timeout_seconds: silence after which a process counts as dead and
      the runtime ends the others.
    initialization_timeout_s: patience with those that are not there yet.

  Raises:
    NotJoined: the others did not come, or who this is cannot be found out.
  """
  if not coordinator:
    return
  # It would take SIGTERM for itself; hosts agree on that in `together`.
  jax.config.update('jax_enable_preemption_service', False)
  try:
    jax.distributed.initialize(
      None if coordinator == 'auto' else coordinator,
      num_processes or None,
      None if process_id < 0 else process_id,
      heartbeat_timeout_seconds=heartbeat_timeout_seconds,
      initialization_timeout=initialization_timeout_s,
      shutdown_timeout_seconds=heartbeat_timeout_seconds,
    )
  except (RuntimeError, ValueError, TypeError) as e:
    raise NotJoined(
      f'config.distributed.coordinator={coordinator!r}: cannot join the other '
      f'processes: {str(e).splitlines()[0]}. Start the same command on every '
      'host, with its own config.distributed.process_id unless the cluster '
      'tells it'
    ) from e


def shutdown() -> None:
  """Leaves; waits a little until all others leave as well."""
  if count() > 1:
    with contextlib.suppress(RuntimeError):  # they may have gone already
      jax.distributed.shutdown()


def count() -> int:
  """Returns the number of processes."""
  return jax.process_count()


def index() -> int:
  """Returns the number of this one, 0 = the one that writes."""
  return jax.process_index()


def is_first() -> bool:
  """Whether this process writes what there is one of: metrics, reports."""
  return index() == 0


def share(total: int) -> int:
  """Returns this host's part of something that divides over the hosts."""
  return total // count()


def own(total: int) -> slice:
  """Returns which of `total` things are this host's; shares differ by one."""
  first, rest = divmod(total, count())
  start = index() * first + min(index(), rest)
  return slice(start, start + first + (index() < rest))


def exchange(value: Any) -> list[Any]:
  """Tells all processes a JSON value; returns everybody's, in order.

  Raises:
    Lost: another process is gone.
  """
  if count() == 1:
    return [value]
  text = json.dumps(value).encode()
  sizes = _allgather(np.array(len(text), np.int32))
  width = -(-int(sizes.max()) // _QUANTUM) * _QUANTUM
  padded = np.zeros(width, np.uint8)
  padded[: len(text)] = np.frombuffer(text, np.uint8)
  rows = _allgather(padded)
  return [json.loads(bytes(row[:n])) for row, n in zip(rows, sizes)]


def gather(tree: Any) -> Any:
  """Concatenates every process's arrays [N, ...], in order, on the host.

  Args:
    tree: NumPy arrays of the same shape in every process.

  Raises:
    Lost: another process is gone.
  """
  if count() == 1:
    return tree
  return _allgather(tree, tiled=True)


def _allgather(tree: Any, **options: Any) -> Any:
  try:
    return multihost_utils.process_allgather(tree, **options)
  except jax.errors.JaxRuntimeError as e:
    if not is_lost(e):
      raise
    raise Lost(f'an exchange broke off: {e}') from e


def is_lost(error: BaseException) -> bool:
  """Whether an error says that another process of several is gone."""
  if isinstance(error, Lost):
    return True
  return (
    count() > 1
    and isinstance(error, jax.errors.JaxRuntimeError)
    and _BROKEN.search(str(error)) is not None
  )


def most(number: int) -> int:
  """Returns the largest of every process's number."""
  return max(exchange(number))


def together(
  work: Callable[[], T], polite: type[Exception] | tuple[()] = ()
) -> T:
  """Does this host's part; all hosts go on from here, or none does.

  Args:
    work: without a collective operation, so that it cannot wait for others.
    polite: what `work` raises when it was asked to end.

  Returns:
    What `work` returned, if it did so in every process.

  Raises:
    Exception: what `work` raised here.
    polite: it was raised in another process.
    PeerFailed: another process failed; the first is named.
  """
  if count() == 1:
    return work()
  result, fault, word = None, None, ''
  try:
    result = work()
  except Exception as e:  # noqa: BLE001 (raised again, once all know)
    fault = e
    word = _POLITE if polite and isinstance(e, polite) else _words(e)
  words = exchange(word)
  failed = [i for i, w in enumerate(words) if w not in ('', _POLITE)]
  if failed and (fault is None or word == _POLITE):
    raise PeerFailed(
      f'process {failed[0]} cannot go on, so that all stop: {words[failed[0]]}'
    )
  if fault is not None:
    raise fault
  if _POLITE in words:
    raise polite
  return result


def require_equal(facts: Mapping[str, str]) -> None:
  """Checks that every process was given the same.

  Args:
    facts: name -> digest.

  Raises:
    Unlike: in every process, when one differs from the first.
  """
  everybody = exchange(dict(facts))
  for i, theirs in enumerate(everybody):
    wrong = [k for k in facts if theirs.get(k) != everybody[0].get(k)]
    if wrong:
      raise Unlike(
        f'process {i} has another {", ".join(wrong)} than process 0: start the '
        'same command, of the same code, on every host'
      )


def _words(error: Exception) -> str:
  return f'{type(error).__name__}: {error}'[:1000]
