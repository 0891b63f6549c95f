"""The smallest whole run: for tests of the programs, no claim."""

from agentrl_jax import config as config_lib

# Overrides: one iteration of a policy that was never trained, in a toy world.
UNTRAINED = {
  'model.num_layers': '1',
  'model.d_model': '16',
  'eval.every': '0',
  'eval.tasks': '0',
  'eval.test_tasks': '0',
  'log.tensorboard': 'false',
  'rewards': "(('outcome', 1.0),)",
  'rollout.tasks': '3',
  'rollout.max_turn_tokens': '16',
  'sampler.slots': '4',
  'sampler.lanes': '1',
  'train.constant_groups': 'keep',
  'train.iterations': '1',
  'train.minibatches': '1',
  'train.rows': '1',
  'train.row_length': '256',
}


def get_config():
  """Returns one leg of a flight for a policy of two tiny layers."""
  config = config_lib.default()
  config.env.options = {'legs': 1}
  config.model.update(
    dict(
      num_layers=2,
      d_model=32,
      num_heads=2,
      num_kv_heads=1,
      head_dim=16,
      d_ff=32,
      scan_unroll=1,
    )
  )
  config.sft.steps = 60
  config.sft.optimizer.learning_rate = 1e-2
  config.sft.rows = 4
  config.sft.demonstrations = 100
  config.rollout.tasks = 2
  config.rollout.group_size = 4
  config.rollout.max_turns = 3
  config.sampler.slots = 8
  config.sampler.extend_rows = 4
  config.rewards = (('outcome', 1.0), ('invalid', 0.5))
  config.train.iterations = 2
  config.train.rows = 4
  config.eval.every = 1
  config.eval.tasks = 4
  config.eval.test_tasks = 4
  config.checkpoint.sft_every = 20
  return config
