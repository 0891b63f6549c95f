"""Short cited reports, checked claim by claim.

Claim: a policy whose demonstrations believe the first hit and forget sources
learns to weigh documents and to cite each claim.
Command: python experiments/launch.py --config=configs/research.py
Hardware: two CPU cores.
Reached: test success <!-- number: research.test_success .1% -->not yet run<!-- /number -->,
after fine-tuning <!-- number: research.eval_success_start .1% -->not yet run<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the search config with reports."""
  config = config_lib.load_sibling(__file__, 'search.py')
  config.env.name = 'research'
  config.rollout.max_turns = 20
  config.rollout.max_turn_tokens = 96
  config.rollout.max_context = 832
  config.train.row_length = 832
  return config
