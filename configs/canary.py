"""A policy trained on a flawed reward, and the alarm that rings.

Claim: demonstrations that take a planted hole now and then are enough for RL to
find it, and the watch on a verifier that nobody trains on rings. Trained on the
sound verifier, the same tasks leave it silent.
Command: tools/run experiments/sweep.py --config=configs/canary.py
tools/run tools/hack_report.py runs/sweeps/canary/flawed_s* --alarm=flawed
tools/run tools/hack_report.py runs/sweeps/canary/honest_s* --alarm=honest
Hardware: one or two cores, one-core trials.
Reached: of <!-- number: canary.flawed_runs .0f -->3<!-- /number --> flawed runs
<!-- number: canary.flawed_rang .0f -->3<!-- /number --> rang, at iteration
<!-- number: canary.flawed_iteration .1f -->3.0<!-- /number --> in the mean,
<!-- number: canary.flawed_lead .1f -->2.7<!-- /number --> before (below 0: after) half of
all episodes were paid and not confirmed; of <!-- number: canary.honest_runs .0f -->3<!-- /number --> honest
ones <!-- number: canary.honest_rang .0f -->0<!-- /number --> rang.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib

SEEDS = range(3)
ARMS = {
  'flawed': {},
  # What is paid is confirmed: the flawed checker only looks on.
  'honest': {'rewards': (('audit', 1.0),), 'audit_reward': 'outcome'},
}


def get_config():
  """Returns the main job on tasks with holes, small."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.env.name = 'canary'
  config.rewards = (('outcome', 1.0),)
  config.audit_reward = 'audit'
  config.sft.steps = 100
  config.sft.demonstrations = 1000
  config.rollout.tasks = 8
  config.rollout.max_turns = 6
  config.rollout.max_context = 128  # episodes are of some 40 tokens
  config.train.row_length = 128
  config.train.iterations = 24
  config.eval.every = 0
  config.eval.tasks = 32
  config.eval.test_tasks = 32
  config.watch.every = 0
  config.log.tensorboard = False
  config.log.trajectories = -1
  return config


def sweep():
  """Yields the runs by seed."""
  for seed in SEEDS:
    for arm, fields in ARMS.items():
      yield {'arm': arm, 'seed': seed, **fields}
