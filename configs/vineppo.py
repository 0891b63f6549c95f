"""VinePPO: from states that a trajectory went through, the policy plays on.

Claim: values measured by sampling tell which move cost the crossing, where states
can be restored; no value is learnt, none is shared between trajectories.
Command: python experiments/launch.py --config=configs/vineppo.py
Hardware: two CPU cores.
Reached: test success <!-- number: vineppo.test_success .1% -->45.0%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns frozen lakes; two continuations from three states each."""
  config = config_lib.load_sibling(__file__, 'frozen_lake.py')
  config.advantage.estimator = 'vineppo'
  config.advantage.options = {}
  config.advantage.continuations = 2
  config.advantage.valued_turns = 3
  config.train.constant_groups = 'keep'
  return config
