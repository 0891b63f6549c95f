"""REINFORCE++: returns-to-go by token, whitened over the batch, KL in the reward.

Claim: against GRPO, a batch instead of a group as baseline; by token, with the
distance to the first policy paid where it arises.
Command: python experiments/launch.py --config=configs/reinforce_pp.py
Hardware: two CPU cores.
Reached: test success <!-- number: reinforce_pp.test_success .1% -->97.1%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with credit by token."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.advantage.estimator = 'reinforce_pp'
  config.advantage.options = {'gamma': 1.0}
  config.advantage.kl_in_reward = 0.01
  config.loss.weighting = 'token'
  config.train.constant_groups = 'keep'
  return config
