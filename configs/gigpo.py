"""State-anchored advantages (GiGPO) on two-leg flight booking.

Claim: a 0.6 M policy that has learnt the call format from demonstrations which
succeed in at most 20 % of cases learns to book right by RL.
Command: python experiments/launch.py --config=configs/gigpo.py
Hardware: two CPU cores.
Reached: test success <!-- number: gigpo.test_success .1% -->97.8%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job."""
  config = config_lib.default()
  config.sft.steps = 240
  config.train.iterations = 36
  config.advantage.estimator = 'gigpo'
  return config
