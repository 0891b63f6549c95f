"""The hard flights: seat maps, moving fares, changes and cancellations.

Claim: a policy whose demonstrations trust stale lists and grant everything
learns to search again and to keep the policy.
Command: python experiments/launch.py --config=configs/trips.py
Hardware: two CPU cores.
Reached: test success <!-- number: trips.test_success .1% -->49.3%<!-- /number -->,
after fine-tuning <!-- number: trips.eval_success_start .1% -->39.6%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job on trips."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.env.name = 'trips'
  config.rollout.max_turns = 20
  config.rollout.max_context = 384
  return config
