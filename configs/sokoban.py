"""Sokoban: one box, boards of 6x6, where a wrong push cannot be taken back.

Claim: a policy that has seen solutions with many detours learns to push the
box home on boards that it has not seen.
Command: python experiments/launch.py --config=configs/sokoban.py
Hardware: two CPU cores.
Reached: test success <!-- number: sokoban.test_success .1% -->not yet run<!-- /number -->,
after fine-tuning <!-- number: sokoban.eval_success_start .1% -->not yet run<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job on boards of 3-8 moves."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.env.name = 'sokoban'
  config.rollout.max_turns = 12
  config.rollout.max_context = 320
  return config
