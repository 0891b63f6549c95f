"""DAPO: clip-higher, every token alike, groups that teach nothing collected anew.

Claim: against GRPO, what an iteration of nothing but varying groups is worth; its
cost are the tasks it plays (rollout/tasks), not the updates.
Command: python experiments/launch.py --config=configs/dapo.py
Hardware: two CPU cores.
Reached: test success <!-- number: dapo.test_success .1% -->97.9%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with dynamic sampling."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.advantage.estimator = 'grpo'
  config.loss.options = {'clip_low': 0.2, 'clip_high': 0.28}
  config.loss.weighting = 'token'
  config.train.constant_groups = 'refill'
  config.train.overlong = 'drop'
  return config
