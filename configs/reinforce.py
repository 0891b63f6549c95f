"""REINFORCE with a batch-mean baseline: the null hypothesis.

Claim: what any estimator gains is gained over this one.
Command: python experiments/launch.py --config=configs/reinforce.py
Hardware: two CPU cores.
Reached: test success <!-- number: reinforce.test_success .1% -->97.9%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with the plainest estimator."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.advantage.estimator = 'reinforce'
  config.advantage.options = {'baseline': 'mean'}
  return config
