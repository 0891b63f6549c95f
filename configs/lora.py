"""Low-rank adapters: the fine-tuned policy is frozen, rank 8 learns the strategy.

Claim: the main job's RL needs no more than adapters: they are less than a tenth
of the weights here, and so are optimizer state and checkpoints.
Command: python experiments/launch.py --config=configs/lora.py
Hardware: two CPU cores.
Reached: test success <!-- number: lora.test_success .1% -->96.8%<!-- /number -->
from <!-- number: lora.eval_success_start .1% -->14.8%<!-- /number --> before RL.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with adapters from RL on."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.lora.rank = 8
  config.lora.alpha = 16.0
  config.train.optimizer.learning_rate = 2e-3
  return config
