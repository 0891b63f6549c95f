"""Episodes have copies of their own; closing frees them, twice as well."""

import sqlite3

import pytest

from agentrl_jax.envs import database


def blob():
  def fill(made):
    made.execute('CREATE TABLE t(x)')
    made.execute('INSERT INTO t VALUES(7)')

  return database.packed(fill)


class Env(database.DatabaseEnv):
  def _blob(self):
    return blob()


def test_copies_do_not_see_each_other():
  first, second = database.opened(blob()), database.opened(blob())
  first.execute('UPDATE t SET x=8')
  assert second.execute('SELECT x FROM t').fetchall() == [(7,)]
  assert blob() == blob()


def test_a_failing_build_is_an_error_and_leaves_nothing_open():
  seen = []

  def fill(made):
    seen.append(made)
    made.execute('nonsense')

  with pytest.raises(sqlite3.OperationalError, match='syntax'):
    database.packed(fill)
  with pytest.raises(sqlite3.ProgrammingError, match='closed'):
    seen[0].execute('SELECT 1')


def test_close_frees_the_database():
  env = Env()
  env.close()  # nothing is open yet
  env._acquire()
  opened = env._database
  env.close()
  env.close()
  with pytest.raises(sqlite3.ProgrammingError, match='closed'):
    opened.execute('SELECT 1')
