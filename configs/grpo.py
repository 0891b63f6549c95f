"""Trajectory-level baseline (GRPO) on the same data path as configs/gigpo.py.

Claim: the only difference to GiGPO is the grouping of the advantages.
Command: python experiments/launch.py --config=configs/grpo.py
Hardware: two CPU cores.
Reached: test success <!-- number: grpo.test_success .1% -->97.0%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with the trajectory-level estimator."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.advantage.estimator = 'grpo'
  return config
