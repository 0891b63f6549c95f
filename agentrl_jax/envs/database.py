"""What do environments over an SQLite database share?

A world's database is built once and kept as bytes; each episode opens a copy in
memory, which is quick, and is freed with the environment.
"""

import sqlite3
from collections.abc import Callable

from agentrl_jax.envs import scripted


def packed(fill: Callable[[sqlite3.Connection], None]) -> bytes:
  """Builds a database in memory.

  Args:
    fill: creates its tables and fills them.

  Returns:
    The database as bytes, for `opened`.
  """
  database = sqlite3.connect(':memory:')
  try:
    fill(database)
    database.commit()
    return database.serialize()
  finally:
    database.close()


def opened(blob: bytes) -> sqlite3.Connection:
  """Opens a copy in memory, usable from any thread, one at a time."""
  database = sqlite3.connect(':memory:', check_same_thread=False)
  database.deserialize(blob)
  return database


class DatabaseEnv(scripted.ScriptedEnv):
  """A subclass gives `_blob() -> bytes`, its world's database."""

  held = ('_database',)

  def __init__(self):
    super().__init__()
    self._database = None

  def close(self) -> None:
    """Frees the database; may be called twice."""
    super().close()
    if self._database is not None:
      self._database.close()
      self._database = None

  def _acquire(self) -> None:
    self._database = opened(self._blob())

  def _blob(self) -> bytes:
    raise NotImplementedError
