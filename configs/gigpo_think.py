"""A policy that thinks before it acts, traces stripped, else configs/gigpo.py.

Claim: a trace is removed from what later turns see and still gets its turn's
advantage, in the context in which it was sampled. With
`--config.rollout.thinking=keep` traces stay and a trajectory is one context.
Command: python experiments/launch.py --config=configs/gigpo_think.py
Hardware: two CPU cores.
Reached: test success <!-- number: gigpo_think.test_success .1% -->97.3%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with demonstrations that think."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.env.options = {'traces': True}
  config.text.style = 'tiny_think'
  config.rollout.thinking = 'strip'
  config.rollout.max_context = 320  # demonstrations need 207, kept 259
  config.sft.steps = 480
  return config
