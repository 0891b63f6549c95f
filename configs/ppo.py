"""PPO with a learned value of the state in which a turn is decided, GAE over turns.

Claim: a learned baseline instead of a group's mean, on the same data path; it uses
groups whose outcomes are all equal as well.
Command: python experiments/launch.py --config=configs/ppo.py
Hardware: two CPU cores.
Reached: test success <!-- number: ppo.test_success .1% -->97.9%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with a value head."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.advantage.estimator = 'gae'
  config.advantage.options = {'gamma': 1.0, 'lam': 0.95}
  config.loss.value_coef = 0.5
  config.train.constant_groups = 'keep'
  return config
