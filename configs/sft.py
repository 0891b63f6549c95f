"""Fine-tuning on demonstrations alone: where the RL of the main job starts.

Claim: imitating demonstrations that mostly fail gives an agent that writes
well-formed calls and mostly fails.
Command: python experiments/launch.py --config=configs/sft.py
Hardware: two CPU cores.
Reached: test success <!-- number: sft.test_success .1% -->14.4%<!-- /number -->,
demonstrations <!-- number: baselines.demonstrations_success .1% -->15.8%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job without its RL: evaluates, saves, reports."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.train.iterations = 0
  return config
