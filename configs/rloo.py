"""Leave-one-out baseline (RLOO) on the same data path as configs/gigpo.py.

Claim: against GRPO, what dividing by the group's deviation is worth.
Command: python experiments/launch.py --config=configs/rloo.py
Hardware: two CPU cores.
Reached: test success <!-- number: rloo.test_success .1% -->98.2%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with the leave-one-out estimator."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.advantage.estimator = 'rloo'
  return config
