"""The world: environments by name, their tasks and demonstrations.

To add an environment: one file, one line in `ENVS`, `contract.check_env` in its
test.
"""

from typing import Any

from agentrl_jax import tables
from agentrl_jax.envs import (
  arithmetic,
  base,
  canary,
  desk,
  file_questions,
  flight,
  frozen_lake,
  mix,
  panels,
  repair,
  research,
  search,
  sokoban,
  sql,
  trips,
)

ENVS = {
  'flight': flight.FlightEnv,
  'arithmetic': arithmetic.ArithmeticEnv,
  'frozen_lake': frozen_lake.FrozenLakeEnv,
  'sokoban': sokoban.SokobanEnv,
  'sql': sql.SqlEnv,
  'search': search.SearchEnv,
  'research': research.ResearchEnv,
  'desk': desk.DeskEnv,
  'trips': trips.TripsEnv,
  'canary': canary.CanaryEnv,
  'repair': repair.RepairEnv,
  'file_questions': file_questions.FileQuestionsEnv,
  'mix': mix.MixEnv,
}


def make(name: str, **options: Any) -> base.Env:
  """Makes a single-use environment.

  Args:
    name: a key of `ENVS` or `'package.module:Name'`.
    **options: of the environment; those of its tasks are passed over, so that
      one dictionary serves `make` and `tasks`.

  Raises:
    ValueError: unknown name or option; says what is known.
  """
  env_class = tables.resolve(ENVS, name)
  return env_class(**base.split_options(env_class, options)[0])


def tasks(name: str, split: str, **options: Any) -> panels.Dataset:
  """Opens a fixed panel of tasks; `panels.tasks` says the options."""
  env_class = tables.resolve(ENVS, name)
  return panels.tasks(name, env_class, split, **options)


def demonstrations(name: str, **options: Any) -> panels.Dataset:
  """Opens scripted episodes; `panels.demonstrations` says the options."""
  env_class = tables.resolve(ENVS, name)
  return panels.demonstrations(name, env_class, **options)
