"""Which values fields may have, taken one by one."""

import math

# field -> what it may be
CHOICES = {
  'sampler.weights': ('whole', 'split'),
  'model.dtype': ('auto', 'float32', 'bfloat16'),
  'model.activation': ('silu', 'gelu_tanh'),
  'lora.publish': ('merged', 'beside'),
  'lora.base_dtype': ('auto', 'float32', 'bfloat16'),
  'model.attention': ('auto', 'xla', 'dot_product', 'cudnn', 'splash'),
  'model.remat': ('none', 'block', 'dots'),
  'model.expert_compute': ('auto', 'dense', 'grouped', 'ragged'),
  'rollout.long_prompt': ('refuse', 'drop', 'truncate'),
  'rollout.long_observation': ('stop', 'truncate'),
  'env.curriculum': ('none', 'pass_rate'),
  'train.constant_groups': ('keep', 'drop', 'refill'),
  'train.overlong': ('keep', 'drop'),
  'train.param_dtype': ('float32', 'bfloat16'),
  'advantage.bootstrap': ('none', 'limit'),
  'loss.proximal': ('behavior', 'recomputed', 'latest', 'interpolated'),
  'loss.kl_estimator': ('k1', 'k2', 'k3', 'k3+'),
  'loss.sequence': ('turn', 'trajectory'),
  'rollout.thinking': ('keep', 'strip'),
  'rollout.order': ('given', 'longest'),
  'rollout.drift': ('split', 'mask', 'raise'),
  'doctor.strict': ('none', 'wrong', 'all'),
  'loss.weighting': (
    'token',
    'sequence_token_mean',
    'sequence_token_sum',
    'trajectory',
    'constant',
  ),
  'env.isolation': ('none', 'process', 'ray'),
  'advantage.anchors': (
    'exact',
    'similarity',
    'subsequence',
    'turn_index',
    'shuffled',
  ),
  **{
    f'{part}.optimizer.name': ('adam', 'adamw', 'muon', 'sgd')
    for part in ('sft', 'rejection', 'train')
  },
  **{
    f'{part}.optimizer.schedule': ('constant', 'cosine', 'linear')
    for part in ('sft', 'rejection', 'train')
  },
}

# Estimators that compare no outcomes within a group, not whitened already.
WHITEN = ('gae', 'token_gae', 'reinforce', 'remax', 'vineppo')

# Estimators that compare no outcomes within a group.
KL_IN_REWARD = ('gae', 'token_gae', 'reinforce_pp', 'rebn', 'reinforce')

# field -> lowest allowed value
AT_LEAST = {
  'seed': 0,
  'env.workers': 0,
  'env.latency_s': 0,
  'text.vocab_size': 272,
  **{
    f'model.{name}': 1
    for name in (
      'num_layers',
      'd_model',
      'num_heads',
      'num_kv_heads',
      'head_dim',
      'd_ff',
      'scan_unroll',
    )
  },
  'lora.rank': 0,
  'model.num_experts': 0,
  'model.query_scalar': 0,
  'model.sliding_window': 0,
  'model.rope_local_theta': 0,
  'model.balance_coef': 0,
  'sft.steps': 0,
  'sft.rows': 1,
  'sft.demonstrations': 1,
  'sft.observation_weight': 0,
  'rejection.every': 0,
  'rejection.per_task': 1,
  'rejection.updates': 1,
  'rollout.tasks': 1,
  'rollout.group_size': 1,
  'rollout.max_turns': 1,
  'rollout.max_turn_tokens': 1,
  'rollout.max_context': 64,
  'rollout.top_k': 0,
  'rollout.max_refills': 1,
  **{f'rollout.{n}': 0 for n in ('max_staleness', 'oversample', 'yield_s')},
  'rollout.malformed_limit': 1,
  'rollout.failure_count': 0,
  'rollout.episode_deadline_s': 0,
  'rollout.window': 1,
  'sampler.slots': 1,
  'sampler.lanes': 1,
  'sampler.decode_chunk': 1,
  'sampler.extend_rows': 1,
  'sampler.extend_chunk': 1,
  'sampler.extend_steps': 0,
  'sampler.kv_gb': 0,
  'advantage.history_levels': 1,
  'advantage.invalid_penalty': 0,
  'advantage.kl_in_reward': 0,
  'advantage.continuations': 1,
  'advantage.valued_turns': 0,
  'loss.kl_coef': 0,
  'loss.entropy_coef': 0,
  'loss.value_coef': 0,
  'loss.value_clip': 0,
  'train.iterations': 0,
  'train.minibatches': 1,
  'train.epochs': 1,
  'train.rows': 1,
  'train.head_chunk': -1,
  'train.max_nonfinite': 1,
  'eval.every': 0,
  'eval.tasks': 0,
  'eval.test_tasks': 0,
  'checkpoint.every': 1,
  'checkpoint.sft_every': 1,
  'checkpoint.keep': 1,
  'distributed.num_processes': 0,
  'distributed.process_id': -1,
  'distributed.heartbeat_timeout_seconds': 5,
  'distributed.initialization_timeout_s': 1,
  'doctor.every': 0,
  'watch.every': 0,
  'watch.tasks': 2,
  'watch.audit_trajectories': -1,
  'watch.patience': 1,
  'watch.quiet': 1,
  **{
    f'watch.{name}': 0
    for name in (
      'solved',
      'entropy',
      'repeated_calls',
      'distinct_sequences',
      'input_dependence',
      'length_drift',
      'dead_groups',
      'clip_fraction',
      'ess',
      'grounded_arguments',
      'audit_gap',
      'audit_pull',
    )
  },
  'log.trajectories': -1,
}

# field -> must be > 0 and, where given, <= the bound
POSITIVE = {
  'rollout.temperature': math.inf,
  'rollout.top_p': 1.0,
  'rollout.failure_limit': 1.0,
  'env.deadline_s': math.inf,
  'advantage.similarity': 1.0,
  'doctor.ratio': math.inf,
  'lora.alpha': math.inf,
  'model.rope_theta': math.inf,
  'model.norm_epsilon': 1.0,
  'model.embedding_std': math.inf,
  **{
    f'{part}.optimizer.{name}': math.inf
    for part in ('sft', 'rejection', 'train')
    for name in ('learning_rate', 'clip_norm')
  },
}
