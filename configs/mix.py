"""Two worlds, one policy: lakes and boxes in the same run.

Claim: one policy learns both; `rollout/success_WORLD` and `eval/success_WORLD`
tell them apart.
Command: python experiments/launch.py --config=configs/mix.py
Hardware: two CPU cores.
Reached: test success <!-- number: mix.test_success .1% -->not yet run<!-- /number -->
(frozen_lake <!-- number: mix.test_success_frozen_lake .1% -->not yet run<!-- /number -->,
sokoban <!-- number: mix.test_success_sokoban .1% -->not yet run<!-- /number -->).
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the job of `sokoban.py` on two worlds."""
  config = config_lib.load_sibling(__file__, 'sokoban.py')
  config.env.name = 'mix'
  config.env.options = {'weights': {'frozen_lake': 1, 'sokoban': 1}}
  return config
