"""Frozen lakes: one cell a move, the whole map in view.

Claim: a policy that has seen crossings with many detours learns to cross maps
that it has not seen; states recur exactly, so anchors group many turns.
Command: python experiments/launch.py --config=configs/frozen_lake.py
Hardware: two CPU cores.
Reached: test success <!-- number: frozen_lake.test_success .1% -->45.8%<!-- /number -->,
after fine-tuning <!-- number: frozen_lake.eval_success_start .1% -->32.8%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job on lakes of 4x4."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.env.name = 'frozen_lake'
  config.rollout.max_turns = 10
  config.rollout.max_context = 320
  return config
