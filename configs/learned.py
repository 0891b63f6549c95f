"""Outcome and a learned process head: what a turn added to the odds.

Claim: a head trained on labels of roll-outs tells good steps from bad ones that
it has not seen, and is of use as a part of the reward.
Command: tools/run tools/label_steps.py flight --episodes=300 --rollouts=6
  --hard --rate=skip_check=.2 --rate=no_early=.13 --rate=by_time=.1
  --rate=skip_filter=.07 --rate=malformed=.03 --out=runs/labels.jsonl
tools/run tools/train_head.py runs/labels.jsonl --to=runs/heads/flight
python experiments/launch.py --config=configs/learned.py
Hardware: two CPU cores.
Reached: AUC of the head on held-out steps <!-- number: heads.process_auc .3f -->0.896<!-- /number -->,
of an outcome head on held-out episodes <!-- number: heads.outcome_auc .3f -->0.464<!-- /number -->;
test success <!-- number: learned.test_success .1% -->96.6%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with a second part of the reward."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.rewards = (
    ('outcome', 1.0),
    (
      'learned',
      0.5,
      {
        'score': 'agentrl_jax.scorer:load',
        'options': {'directory': 'runs/heads/flight'},
        'pay': 'progress',
      },
    ),
  )
  return config
