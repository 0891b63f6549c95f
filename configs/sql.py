"""Questions about a store, answered by SQL over a real database.

Claim: a policy whose demonstrations often query the wrong thing learns which
query a question asks for, on stores and values that it has not seen together.
Command: python experiments/launch.py --config=configs/sql.py
Hardware: two CPU cores.
Reached: test success <!-- number: sql.test_success .1% -->68.6%<!-- /number -->,
after fine-tuning <!-- number: sql.eval_success_start .1% -->28.6%<!-- /number -->;
seeds: <!-- number: sql.runs -->3<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with longer turns: a query is a sentence."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.env.name = 'sql'
  config.rollout.max_turns = 8
  config.rollout.max_turn_tokens = 64
  config.rollout.max_context = 320
  config.eval.test_tasks = 512
  return config
