"""Which advantage estimator learns most from the same trajectories?

Claim under test: state-anchored credit (GiGPO, HGPO) beats trajectory-level
credit (GRPO, RLOO), and both beat REINFORCE with a batch-mean baseline, from
a hard start (about 5 % after SFT). Only `advantage` differs between arms: SFT
weights, task order and sampling keys of a seed are shared. Five seeds cannot
settle it: a sign test over 5 pairs never falls below p = 0.06.

Command: tools/run experiments/sweep.py --config=configs/ablations/estimator.py
Hardware: two cores, two one-core trials at a time.
Reached: REINFORCE <!-- number: estimator.reinforce_success .1% -->27.5%<!-- /number -->,
GRPO <!-- number: estimator.grpo_success .1% -->20.5%<!-- /number -->,
GiGPO <!-- number: estimator.gigpo_success .1% -->30.3%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config

SEEDS = range(5)

ARMS = {
  'reinforce': {
    'advantage.estimator': 'reinforce',
    'advantage.options': {'baseline': 'mean'},
  },
  'grpo': {'advantage.estimator': 'grpo'},
  'rloo': {'advantage.estimator': 'rloo'},
  'gigpo': {'advantage.estimator': 'gigpo'},
  'hgpo': {'advantage.estimator': 'hgpo', 'advantage.history_levels': 2},
}


def get_config():
  """Returns what all arms share."""
  c = config.load_sibling(__file__, '../gigpo.py')
  c.sft.steps = 120  # fewer than configs/gigpo.py: the hard start
  c.train.iterations = 30
  c.eval.test_tasks = 512
  return c


def sweep():
  """Yields arm by arm, so that trials side by side have different seeds."""
  for arm, fields in ARMS.items():
    for seed in SEEDS:
      yield {'arm': arm, 'seed': seed, **fields}
