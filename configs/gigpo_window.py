"""Each turn sees the task and the last two turns, else configs/gigpo.py.

Claim: history in a window, rendered again every turn as in GiGPO's own setting,
learns on the same data path: a context a turn, and a trajectory weighs what it
weighed as one context. A demonstration becomes 2.7 times the tokens, so that
fine-tuning takes twice the updates to read about as many turns.
Command: python experiments/launch.py --config=configs/gigpo_window.py
Hardware: two CPU cores.
Reached: test success <!-- number: gigpo_window.test_success .1% -->96.9%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with a short memory."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.rollout.memory = 'window'
  config.rollout.window = 2
  config.rollout.max_context = 128  # demonstrations need 69
  config.sft.steps = 480
  return config
