"""Code repair in the sandbox: run the tests, read, mend, test again.

Claim: a policy that has seen repairs, failed ones too, learns to go on after an
edit that the tests refuse (`rollout/env_recovery`), on functions it never saw.
Command: python experiments/launch.py --config=configs/repair.py
Hardware: two CPU cores; a larger policy wants an accelerator.
Reached: test success <!-- number: repair.test_success .1% -->not yet run<!-- /number -->,
after fine-tuning <!-- number: repair.eval_success_start .1% -->not yet run<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job on short repairs: a module is a screen of text."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.env.name = 'repair'
  config.env.options = {'levels': (1, 2), 'output_chars': 600}
  config.env.workers = 4  # commands run in other processes
  config.sft.demonstrations = 1500  # each is some five commands
  config.rollout.max_turns = 8
  config.rollout.max_turn_tokens = 288  # an edit is a line, or the whole file
  config.rollout.max_context = 1536
  config.train.row_length = 1536
  return config
