"""Questions about a folder, through a shell: "how many .md files are there?"

Claim: a policy whose demonstrations often look at the wrong thing learns which
command answers which question, on folders it never saw.
Command: python experiments/launch.py --config=configs/file_questions.py
Hardware: two CPU cores.
Reached: test success <!-- number: file_questions.test_success .1% -->not yet run<!-- /number -->,
after fine-tuning <!-- number: file_questions.eval_success_start .1% -->not yet run<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with a command a turn."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.env.name = 'file_questions'
  config.env.options = {'output_chars': 300}
  config.env.workers = 4  # commands run in other processes
  config.rollout.max_turns = 4
  config.rollout.max_turn_tokens = 96
  config.rollout.max_context = 384
  return config
