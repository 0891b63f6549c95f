"""GRPO without its two divisions (Dr. GRPO), else configs/grpo.py.

Claim: against GRPO, what dividing by the group's deviation and by a trajectory's
length is worth.
Command: python experiments/launch.py --config=configs/dr_grpo.py
Hardware: two CPU cores.
Reached: test success <!-- number: dr_grpo.test_success .1% -->96.8%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job, every token of the same weight."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.advantage.estimator = 'dr_grpo'
  config.loss.weighting = 'constant'
  # Trajectories of an update times the tokens that one may sample.
  trajectories = config.rollout.tasks * config.rollout.group_size
  budget = config.rollout.max_turns * config.rollout.max_turn_tokens
  config.loss.weighting_constant = float(
    trajectories * budget // config.train.minibatches
  )
  return config
