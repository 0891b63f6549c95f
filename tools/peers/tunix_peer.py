"""The workloads of `tools/bench.py` by tunix 0.1.7 (Google, JAX and nnx).

  python3.11 -m venv DIR && DIR/bin/pip install google-tunix==0.1.7 jax==0.10.2
  DIR/bin/python tools/peers/tunix_peer.py sample multiturn train logprobs grpo
  DIR/bin/python tools/peers/tunix_peer.py agentic

Its sampler has no keys and values between calls: each turn of `multiturn`
prefills the whole conversation, all rows in one call, the best that its API
allows. `agentic` is its own learner of agents, from nothing, compiles included.
"""

import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import workloads as w
from flax import nnx
from tunix import (
  CacheConfig,
  ClusterConfig,
  GRPOConfig,
  GRPOLearner,
  PeftTrainer,
  RLCluster,
  RLTrainingConfig,
  Role,
  RolloutConfig,
  Sampler,
  TrainingConfig,
)
from tunix.models.qwen3 import model as qwen3
from tunix.rl import (
  algo_core,  # noqa: F401 (registers the losses)
  common,
  function_registry,
)


def policy():
  """Returns its own Qwen3 with random weights."""
  config = qwen3.ModelConfig(
    num_layers=w.LAYERS,
    vocab_size=w.VOCAB,
    embed_dim=w.WIDTH,
    hidden_dim=w.FFW,
    num_heads=w.HEADS,
    head_dim=w.HEAD_DIM,
    num_kv_heads=w.KV_HEADS,
    rope_theta=1_000_000,
    norm_eps=1e-6,
    use_tied_embedding=True,
    dtype=jnp.float32,
    param_dtype=jnp.float32,
  )
  return qwen3.Qwen3(config, rngs=nnx.Rngs(0))


def sampler(length: int):
  """Returns f(histories, new, seed) -> tokens, with log-probs."""
  cache = CacheConfig(
    cache_size=length,
    num_layers=w.LAYERS,
    num_kv_heads=w.KV_HEADS,
    head_dim=w.HEAD_DIM,
  )
  draw = Sampler(policy(), w.Digits(), cache)

  def call(histories, new, seed):
    return draw(
      [w.words(history) for history in histories],
      max_generation_steps=new,
      max_prompt_length=len(histories[0]),
      eos_tokens=[w.NEVER],
      temperature=1.0,
      top_p=1.0,
      return_logprobs=True,
      seed=seed,
    ).tokens

  return call


def sample() -> None:
  """32 prompts, 128 new tokens each."""
  call, prompts, count = (
    sampler(w.PROMPT + w.NEW),
    w.draw(0, w.BATCH, w.PROMPT),
    [0],
  )

  def work():
    count[0] += 1
    drawn = call(prompts, w.NEW, count[0])
    assert sum(map(len, drawn)) == w.BATCH * w.NEW

  w.measure('sample', w.BATCH * w.NEW, work)


def multiturn() -> None:
  """32 conversations of 4 turns."""
  call = sampler(w.PROMPT + w.TURNS * (w.TURN_NEW + w.TURN_OBSERVED))
  replies = w.draw(5, w.BATCH * w.TURNS, w.TURN_OBSERVED)
  count = [0]

  def work():
    histories = w.draw(0, w.BATCH, w.PROMPT).tolist()
    for turn in range(w.TURNS):
      count[0] += 1
      drawn = call(histories, w.TURN_NEW, count[0])
      histories = [
        [
          *h,
          *(max(4, int(t)) for t in d),
          *replies[turn * w.BATCH + i].tolist(),
        ]
        for i, (h, d) in enumerate(zip(histories, drawn, strict=True))
      ]

  w.measure('multiturn', w.BATCH * w.TURNS * w.TURN_NEW, work)


def example():
  """32 sequences, as its losses want them."""
  ids = w.draw(1, w.BATCH, w.PROMPT + w.NEW)
  shape = (w.BATCH, w.NEW)
  guess = jnp.full(shape, -np.log(w.VOCAB), jnp.float32)
  draws = np.random.default_rng(1)
  return common.TrainExample(
    prompt_ids=jnp.asarray(ids[:, : w.PROMPT]),
    prompt_mask=jnp.ones((w.BATCH, w.PROMPT), bool),
    completion_ids=jnp.asarray(ids[:, w.PROMPT :]),
    completion_mask=jnp.ones(shape, jnp.int32),
    advantages=jnp.asarray(draws.normal(size=w.BATCH), jnp.float32),
    ref_per_token_logps=guess,
    old_per_token_logps=guess,
  )


def train() -> None:
  """A GRPO update with a KL term."""
  options = TrainingConfig(eval_every_n_steps=10**9, max_steps=10**9)
  trainer = PeftTrainer(policy(), optax.adamw(w.RATE), options)
  config = GRPOConfig(
    num_generations=w.GROUP, num_iterations=1, beta=w.KL, epsilon=w.CLIP
  )
  config.temperature = 1.0
  loss = function_registry.get_policy_loss_fn(config.policy_loss_fn)
  trainer.with_loss_fn(
    lambda model, train_example: loss(
      model, train_example, algo_config=config, pad_id=0, eos_id=2
    ),
    has_aux=True,
  )
  trainer.with_gen_model_input_fn(lambda x: {'train_example': x})
  step, _ = trainer.jit_train_and_eval_step()
  given = example()
  w.measure(
    'train',
    w.BATCH * (w.PROMPT + w.NEW),
    lambda: jax.block_until_ready((step(given)[0], nnx.state(trainer.model))),
  )


def logprobs() -> None:
  """Log-probs of the sequences."""
  graph, state = nnx.split(policy())
  given = example()
  w.measure(
    'logprobs',
    w.BATCH * (w.PROMPT + w.NEW),
    lambda: jax.block_until_ready(
      common.compute_per_token_logps(
        graph,
        state,
        prompt_tokens=given.prompt_ids,
        completion_tokens=given.completion_ids,
        pad_id=0,
        eos_id=2,
      )
    ),
  )


def cluster(rollout: RolloutConfig, steps: int):
  """Returns its cluster of roles on one device."""
  devices = np.array(jax.devices()).reshape(1, 1)
  mesh = jax.sharding.Mesh(devices, ('fsdp', 'tp'))
  prompts = w.BATCH // w.GROUP
  single = rollout.return_logprobs  # its agents ask for one row at a time
  training = RLTrainingConfig(
    actor_optimizer=optax.adamw(w.RATE),
    eval_every_n_steps=10**9,
    max_steps=steps,
    mini_batch_size=prompts,
    train_micro_batch_size=prompts,
    rollout_micro_batch_size=1 if single else prompts,
    compute_logps_micro_batch_size=prompts,
  )
  roles = (Role.ACTOR, Role.REFERENCE, Role.ROLLOUT)
  config = ClusterConfig(
    role_to_mesh=dict.fromkeys(roles, mesh),
    rollout_engine='vanilla',
    training_config=training,
    rollout_config=rollout,
  )
  made = RLCluster(
    actor=policy(),
    reference=policy(),
    tokenizer=w.Digits(),
    cluster_config=config,
  )
  return made, mesh


def distinct(prompts, completions, **_) -> list[float]:
  """The reward: how many tokens are distinct."""
  return [float(len(set(text.split()))) for text in completions]


def grpo() -> None:
  """Whole steps: 4 prompts x 8 samples, reference, update."""
  steps = 2 + int(os.environ.get('BENCH_REPEATS', '3'))
  rollout = RolloutConfig(
    max_tokens_to_generate=w.NEW,
    max_prompt_length=w.PROMPT,
    kv_cache_size=w.PROMPT + w.NEW,
    temperature=1.0,
    top_p=1.0,
    top_k=None,
    eos_tokens=[w.NEVER],
  )
  made, mesh = cluster(rollout, steps)
  config = GRPOConfig(
    num_generations=w.GROUP, num_iterations=1, beta=w.KL, epsilon=w.CLIP
  )
  learner = GRPOLearner(
    rl_cluster=made, algo_config=config, reward_fns=distinct
  )
  ends, after = [], made.actor_trainer._post_process_train_step

  def noted(aux):
    jax.block_until_ready(aux)
    ends.append((time.perf_counter(), time.process_time()))
    return after(aux)

  made.actor_trainer._post_process_train_step = noted
  data = [
    {'prompts': np.array([w.words(p) for p in w.draw(s, 4, w.PROMPT)])}
    for s in range(steps)
  ]
  with mesh:
    learner.train(data)
  pairs = list(zip(ends[1:-1], ends[2:], strict=True))  # the first compiles
  w.tell(
    'grpo',
    w.BATCH * w.NEW,
    [b[0] - a[0] for a, b in pairs],
    [b[1] - a[1] for a, b in pairs],
  )


def agentic() -> None:
  """3 steps of 4 x 8 episodes of at most 4 turns."""
  from tunix import AgenticGRPOConfig, AgenticGRPOLearner
  from tunix.rl.agentic.agents.model_agent import ModelAgent
  from tunix.rl.agentic.environments import base_environment
  from tunix.rl.agentic.parser.chat_template_parser import parser

  drawn, draws = [], np.random.default_rng(0)

  class Plain(parser.BaseChatTemplateParser):
    """Messages side by side."""

    def _init_tokens(self):
      return parser.TokenConfig(message_separator=' ')

    def _init_generation_prompt(self):
      return '3'

    def update_assistant_end_tokens(self, tokens):
      """Nothing ends a message."""
      return tokens, 0

  class Noise(base_environment.BaseTaskEnv):
    """Answers random tokens; counts those that were drawn."""

    def __init__(self, single_example, max_steps=w.TURNS, **more):
      task = dict(single_example.items())
      super().__init__(task=task, max_steps=max_steps, **more)

    def _initial_observation(self):
      return {'prompts': str(np.asarray(self.task['prompts']).ravel()[0])}

    def _step_impl(self, action):
      ids = str(getattr(action, 'action', action)).split()
      drawn.append(len(ids))
      reply = w.words(draws.integers(200, w.VOCAB, w.TURN_OBSERVED))
      return base_environment.EnvStepResult(
        reply, float(len(set(ids))), False, {}
      )

  start, cpu = time.perf_counter(), time.process_time()
  rollout = RolloutConfig(
    max_tokens_to_generate=w.RESPONSE,
    max_prompt_length=w.EPISODE_PROMPT,
    kv_cache_size=1024,
    temperature=1.0,
    top_p=1.0,
    top_k=None,
    return_logprobs=True,
    eos_tokens=list(range(w.RESERVED, w.RESERVED + w.ENDS)),
  )
  made, mesh = cluster(rollout, w.STEPS)
  config = AgenticGRPOConfig(
    num_generations=w.GROUP,
    num_iterations=1,
    beta=w.KL,
    epsilon=w.CLIP,
    max_concurrency=w.BATCH,
    max_response_length=w.RESPONSE,
    system_prompt='',
  )
  learner = AgenticGRPOLearner(
    rl_cluster=made,
    reward_fns=lambda prompts, completions, **_: [
      float(len(text) % 7) for text in completions
    ],
    agent_class=ModelAgent,
    agent_kwargs={},
    env_class=Noise,
    env_kwargs={},
    algo_config=config,
    chat_parser=Plain(made.tokenizer),
  )
  data = [
    {
      'prompts': np.array(
        [w.words(p) for p in w.draw(100 + s, 4, w.EPISODE_PROMPT - 4)]
      )
    }
    for s in range(w.STEPS)
  ]
  with mesh:
    learner.train(data)
  wall, cpu = time.perf_counter() - start, time.process_time() - cpu
  w.tell('agentic', sum(drawn), [wall], [cpu], drawn=sum(drawn))


if __name__ == '__main__':
  for name in sys.argv[1:]:
    globals()[name]()
  sys.stdout.flush()
  os._exit(0)  # its threads outlive it
