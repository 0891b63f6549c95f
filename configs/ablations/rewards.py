"""What do rewards beside the outcome change? One estimator, five rewards.

Claim under test: from a start at which few episodes succeed, what scores the
steps (a rule, a head learnt from roll-outs, a judge of known noise) learns
faster than the outcome alone, and shaping changes nothing that is centred in
groups. Only `rewards` differs between arms: SFT weights, task order and
sampling keys of a seed are shared. Runs are short; three seeds settle nothing.

Command: tools/run tools/label_steps.py flight --episodes=300 --rollouts=6
  --hard --rate=skip_check=.2 --rate=no_early=.13 --rate=by_time=.1
  --rate=skip_filter=.07 --rate=malformed=.03
  --out=runs/labels.jsonl
tools/run tools/train_head.py runs/labels.jsonl --to=runs/heads/flight
tools/run experiments/sweep.py --config=configs/ablations/rewards.py
Hardware: one or two cores, one-core trials.
Reached, area under training: ORM <!-- number: rewards.orm_area .1% -->5.6%<!-- /number -->,
with the rule <!-- number: rewards.orm_rule_area .1% -->14.5%<!-- /number -->,
with the head <!-- number: rewards.orm_learned_area .1% -->5.6%<!-- /number -->,
with the judge <!-- number: rewards.orm_ruler_area .1% -->10.6%<!-- /number -->,
with shaping <!-- number: rewards.orm_shaping_area .1% -->4.7%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config

SEEDS = range(3)
HEAD = {
  'score': 'agentrl_jax.scorer:load',
  'options': {'directory': 'runs/heads/flight'},
  'pay': 'progress',
}
ORM = ('outcome', 1.0)

ARMS = {
  'orm': (ORM,),
  'orm_rule': (ORM, ('process', 0.1)),
  'orm_learned': (ORM, ('learned', 0.5, HEAD)),
  'orm_ruler': (ORM, ('stand_in', 0.5, {'noise': 0.1, 'enough': 8})),
  'orm_shaping': (
    ORM,
    ('shaping', 0.5, {'potential': 'flight_progress', 'gamma': 0.95}),
  ),
}


def get_config():
  """Returns what all arms share."""
  c = config.load_sibling(__file__, '../gigpo.py')
  c.sft.steps = 120  # fewer than configs/gigpo.py: the hard start
  c.rollout.tasks = 8
  c.train.iterations = 16
  c.eval.every = 0
  c.eval.tasks = 64
  c.eval.test_tasks = 128
  c.watch.every = 0
  c.log.tensorboard = False
  return c


def sweep():
  """Yields seed by seed, so that what has run so far compares all arms."""
  for seed in SEEDS:
    for arm, rewards in ARMS.items():
      yield {'arm': arm, 'seed': seed, 'rewards': rewards}
