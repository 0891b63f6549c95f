"""Episodes are played while the learner updates; weights lag two iterations.

Claim: with `rollout.max_staleness=2` and corrections (decoupled PPO: the ratio
is taken to the policy at the start of the iteration, as the learner computes
it; tokens weigh min(proximal / sampling probability, 2)) the main job reaches
the success that it reaches without staleness, within the seeds' interval.
Command: python experiments/launch.py --config=configs/async.py
Hardware: two CPU cores.
Reached: test success <!-- number: async.lag_2_success .1% -->97.1%<!-- /number --> (without staleness
<!-- number: async.lag_0_success .1% -->97.6%<!-- /number -->, uncorrected
<!-- number: async.lag_2_uncorrected_success .1% -->95.6%<!-- /number -->).
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job, played ahead."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.rollout.max_staleness = 2
  config.loss.proximal = 'recomputed'
  config.loss.correction = (('tis', {'cap': 2.0}),)
  return config


def sweep():
  """Yields what staleness costs, and what corrections give back."""
  for seed in range(3):
    for lag in (0, 1, 2):
      arm = f'lag_{lag}'
      yield {'arm': arm, 'seed': seed, 'rollout.max_staleness': lag}
    yield {
      'arm': 'lag_2_uncorrected',
      'seed': seed,
      'loss.proximal': 'behavior',
      'loss.correction': (),
    }
