"""A service desk: messages beside tool calls, and a policy to keep.

Claim: a policy whose demonstrations trust customers and skip questions learns
to ask what the policy needs before it decides.
Command: python experiments/launch.py --config=configs/desk.py
Hardware: two CPU cores.
Reached: test success <!-- number: desk.test_success .1% -->87.0%<!-- /number -->,
after fine-tuning <!-- number: desk.eval_success_start .1% -->50.5%<!-- /number -->;
seeds: <!-- number: desk.runs -->3<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job at the desk."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.env.name = 'desk'
  config.rollout.max_turns = 8
  config.rollout.max_context = 320
  config.sft.steps = 360  # with fewer it does not read states and days yet
  config.eval.test_tasks = 512
  return config
