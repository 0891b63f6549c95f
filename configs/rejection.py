"""RL that imitates its own best episodes in between (rejection sampling).

Claim: the main job learns when every fourth iteration the best episodes of the
last four are fine-tuned on as well: those that were paid, each way of doing a
task once, two of a task at most.
Command: python experiments/launch.py --config=configs/rejection.py
Hardware: two CPU cores.
Reached: test success <!-- number: rejection.test_success .1% -->97.9%<!-- /number -->,
after fine-tuning on demonstrations <!-- number: rejection.eval_success_start .1% -->14.8%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with one verb more."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.rejection.every = 4
  return config
