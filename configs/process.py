"""Outcome and a rule that scores the steps (ORM + PRM).

Claim: the main job learns as well when right steps are paid at once: +1 a right
step, -0.5 a wrong one, +0.3 a detour, a tenth of it.
Command: python experiments/launch.py --config=configs/process.py
Hardware: two CPU cores.
Reached: test success <!-- number: process.test_success .1% -->98.1%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with a second part of the reward."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.rewards = (('outcome', 1.0), ('process', 0.1))
  return config
