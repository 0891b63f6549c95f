"""Every stage in a minute: the check that nothing is broken, no result.

Claim: data, fine-tuning, sampling, RL, evaluation (sampled and greedy), test,
checkpoints, plots and report all run, on a cold machine.
Command: python experiments/launch.py --config=configs/smoke.py
Hardware: two CPU cores.
Reached: <!-- number: smoke.wall_s .0f -->28<!-- /number --> s cold.
"""

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job in miniature: one leg, a tiny policy."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.env.options = {'legs': 1}
  config.model.num_layers = config.model.scan_unroll = 1
  config.model.d_model = 64
  config.model.num_heads = 2
  config.model.num_kv_heads = 1
  config.model.d_ff = 128
  config.sft.steps = 50
  config.sft.rows = 8
  config.sft.demonstrations = 400
  config.rollout.tasks = 4
  config.rollout.group_size = 4
  config.rollout.max_turns = 8
  config.sampler.slots = 16
  # Successes are rare so early: malformed turns make outcomes differ.
  config.rewards = (('outcome', 1.0), ('invalid', 0.1))
  config.sampler.extend_rows = 8
  config.train.iterations = 3
  config.train.rows = 4
  config.eval.every = 2
  config.eval.tasks = 16
  config.eval.test_tasks = 16
  config.checkpoint.sft_every = 10
  return config
