"""The world: environments by name, their tasks and demonstrations.

To add an environment: one file, one line in `ENVS`, `contract.check_env` in its
test.
"""

from typing import Any

from agentrl_jax import tables
from agentrl_jax.envs import arithmetic, base, flight

ENVS = {
  'flight': flight.FlightEnv,
  'arithmetic': arithmetic.ArithmeticEnv,
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
