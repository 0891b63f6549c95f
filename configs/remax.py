"""ReMax: the baseline of a task is what the greedy policy gets there.

Claim: one more episode a task replaces the group; a task that every sample fails
and the greedy policy solves still teaches.
Command: python experiments/launch.py --config=configs/remax.py
Hardware: two CPU cores.
Reached: test success <!-- number: remax.test_success .1% -->95.6%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with 128 tasks of one trajectory each."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.advantage.estimator = 'remax'
  config.advantage.options = {}
  config.rollout.tasks = 128
  config.rollout.group_size = 1
  config.train.constant_groups = 'keep'
  return config
