"""An edit of one environment regenerates its panels and no other's."""

import pathlib
import sys

import pytest

from agentrl_jax import envs
from agentrl_jax.envs import flight, panels, sources, sql

FOLDER = pathlib.Path(sources.__file__).parent


def names(env_class):
  return {str(path.relative_to(FOLDER)) for path in sources.files(env_class)}


def test_what_a_function_imports_counts():
  found = names(flight.FlightEnv)
  assert {'flight.py', 'flight_db.py', 'flight_world.py', 'base.py'} <= found
  assert 'flight_agent.py' in found  # plays the demonstrations
  assert {'panels.py', 'builders/records.py'} <= found
  assert not {'sql.py', 'sql_data.py', 'sokoban.py', 'contract.py'} & found


def test_bases_count():
  assert {'sql.py', 'sql_data.py', 'scripted.py', 'base.py'} <= names(
    sql.SqlEnv
  )


def test_data_counts():
  assert 'code/repairs.json' in names(envs.ENVS['repair'])
  assert 'code/repairs.json' not in names(flight.FlightEnv)


def test_a_mix_depends_on_all_worlds():
  assert {'flight.py', 'sql.py', 'sokoban.py'} <= names(envs.ENVS['mix'])


@pytest.mark.parametrize(
  'edited, changes',
  [
    ('flight_world.py', {'flight'}),
    ('sql_data.py', {'sql'}),
    ('grid.py', {'frozen_lake'}),
    ('base.py', {'flight', 'sql', 'frozen_lake'}),
    ('contract.py', set()),
  ],
)
def test_an_edit_changes_versions_of_those_that_use_it(
  edited, changes, monkeypatch
):
  worlds = {name: envs.ENVS[name] for name in ('flight', 'sql', 'frozen_lake')}
  before = {name: sources.version(w) for name, w in worlds.items()}
  read = pathlib.Path.read_bytes

  def with_edit(path):
    return read(path) + b'#' * (path.name == edited)

  monkeypatch.setattr(pathlib.Path, 'read_bytes', with_edit)
  after = {name: sources.version(w) for name, w in worlds.items()}
  assert {name for name in worlds if before[name] != after[name]} == changes


def test_a_class_from_elsewhere_counts_with_its_bases(tmp_path, monkeypatch):
  monkeypatch.syspath_prepend(str(tmp_path))
  (tmp_path / 'my_world.py').write_text(
    'from agentrl_jax.envs import sokoban\n'
    'class World(sokoban.SokobanEnv):\n  pass\n'
  )
  import my_world  # just written

  found = sources.files(my_world.World)
  assert tmp_path / 'my_world.py' in found and FOLDER / 'sokoban.py' in found
  del sys.modules['my_world']


def test_panels_go_by_it(monkeypatch, tmp_path):
  monkeypatch.setenv('AGENTRL_JAX_DATA', str(tmp_path))
  sizes = {'num_train': 2, 'num_validation': 2, 'num_test': 2}
  one = panels.tasks('flight', flight.FlightEnv, 'test', **sizes).directory
  again = panels.tasks('flight', flight.FlightEnv, 'test', **sizes).directory
  monkeypatch.setattr(sources, 'version', lambda env_class: 'edited')
  other = panels.tasks('flight', flight.FlightEnv, 'test', **sizes).directory
  assert one == again != other
