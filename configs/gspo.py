"""GSPO: one ratio for a trajectory, clipped tightly, else configs/grpo.py.

Claim: against GRPO, what a ratio of the sequence is worth where an iteration has two
updates.
Command: python experiments/launch.py --config=configs/gspo.py
Hardware: two CPU cores.
Reached: test success <!-- number: gspo.test_success .1% -->96.8%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with the sequence ratio."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.advantage.estimator = 'grpo'
  config.loss.name = 'gspo'
  config.loss.options = {'clip_low': 3e-4, 'clip_high': 4e-4}
  config.loss.sequence = 'trajectory'
  config.loss.weighting = 'sequence_token_mean'
  return config
