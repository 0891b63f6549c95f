"""REINFORCE with a batch-mean baseline: the null hypothesis.

Claim: what any estimator gains is gained over this one.
Command: python experiments/launch.py --config=configs/reinforce.py
Hardware: two CPU cores.
Number reached: not yet run.
"""

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with the plainest estimator."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.advantage.estimator = 'reinforce'
  return config
