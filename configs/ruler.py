"""Outcome and a judge that compares the attempts of a group (RULER).

Claim: the main job learns with a noisy judge beside the verifier. The judge is
a stand-in that knows the grade of an attempt and errs by 0.1; for one behind an
endpoint write ('ruler', 0.5, {'model': ..., 'base_url': ...}) instead, see
docs/rewards.md.
Command: python experiments/launch.py --config=configs/ruler.py
Hardware: two CPU cores.
Reached: test success <!-- number: ruler.test_success .1% -->98.5%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with a second part of the reward."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.rewards = (
    ('outcome', 1.0),
    ('stand_in', 0.5, {'noise': 0.1, 'enough': 8}),
  )
  return config
