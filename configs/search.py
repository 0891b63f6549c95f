"""Sources that contradict each other: find, weigh, prove, answer.

Claim: a policy whose demonstrations often believe the first hit learns to open
the most reliable, newest source, and to cite it for every hop.
Command: python experiments/launch.py --config=configs/search.py
Hardware: two CPU cores.
Reached: test success <!-- number: search.test_success .1% -->58.8%<!-- /number -->,
after fine-tuning <!-- number: search.eval_success_start .1% -->39.8%<!-- /number -->;
seeds: <!-- number: search.runs -->1<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job on questions of one and two hops."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.env.name = 'search'
  config.sft.steps = 720  # with fewer it does not copy what it has read
  config.rollout.max_turns = 12
  config.rollout.max_turn_tokens = 48
  config.rollout.max_context = config.train.row_length = 512
  config.eval.test_tasks = 512
  return config
