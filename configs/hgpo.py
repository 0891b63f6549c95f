"""Groups by the last one and the last two states (HGPO), else configs/gigpo.py.

Claim: turns that share their history as well are the better baseline.
Command: python experiments/launch.py --config=configs/hgpo.py
Hardware: two CPU cores.
Reached: test success <!-- number: hgpo.test_success .1% -->97.9%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with the hierarchical estimator."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.advantage.estimator = 'hgpo'
  config.advantage.history_levels = 2
  return config
