"""Which fields an experiment has, and their defaults, section by section."""

import ml_collections


def _optimizer(name: str, learning_rate: float, warmup: int, schedule: str):
  return dict(
    name=name,  # adam | adamw | muon | sgd
    learning_rate=learning_rate,  # peak, > 0
    warmup=warmup,  # optimizer updates of linear warm-up, >= 0
    schedule=schedule,  # constant | cosine | linear, over all updates
    b1=0.9,  # first-moment decay
    b2=0.99,  # second-moment decay
    epsilon=1e-8,  # Adam's
    weight_decay=0.0,  # decoupled, >= 0
    clip_norm=1.0,  # global gradient norm, > 0
  )


def _rollout_fields():
  return dict(
    tasks=16,  # tasks an iteration
    group_size=8,  # trajectories of a task
    max_turns=16,  # model turns of an episode; 1 = single-turn RL
    max_turn_tokens=32,  # sampled tokens of a turn
    max_context=256,  # tokens of a context, multiple of 64
    temperature=1.0,  # > 0
    top_p=1.0,  # (0, 1]
    top_k=0,  # 0 = all
    order='given',  # given | longest: which episodes get a slot first
    yield_s=0.0,  # from a tool's call on until others get the slot; 0 = never
    max_staleness=0,  # iterations that weights may lag; 0 = never collect ahead
    oversample=0,  # tasks more, the last to end being dropped
    max_refills=3,  # further collections of constant_groups='refill'
    malformed_limit=4,  # malformed turns in a row that end the episode
    memory='append',  # append | window, or 'package.module:name' of a function
    window=2,  # last turns that memory='window' shows, >= 1
    thinking='keep',  # keep | strip: <think> traces of earlier turns
    drift='split',  # split | mask | raise: a prompt that rewrites history
    failure_limit=0.5,  # share of infrastructure failures that stops the run
    failure_count=0,  # failures of a collection that stop it; 0 = by share
    episode_deadline_s=0.0,  # of an episode, seconds on the clock; 0 = none
    long_prompt='drop',  # refuse | drop | truncate a first prompt beyond it
    long_observation='stop',  # stop | truncate where a reply does not fit
  )


def world_fields():
  """Returns the fields of the run itself, the environment and the text."""
  return dict(
    seed=0,  # of the run: weights, data order, sampling
    init_from='',  # run directory to warm-start the policy from
    compilation_cache='auto',  # directory; auto: the user's; '' = none
    env=dict(
      name='flight',  # a name in ENVS or 'package.module:Class'
      options=ml_collections.ConfigDict(),  # keyword arguments of the env
      curriculum='none',  # none | pass_rate: how often levels are trained on
      workers=0,  # threads that step environments; 0 = in the loop itself
      isolation='none',  # none | process (one an episode) | ray (actors)
      latency_s=0.0,  # median of an artificial delay of each step, seconds
      deadline_s=60.0,  # of one call, seconds (a slow machine stays inside)
    ),
    text=dict(
      style='tiny',  # a name in chat.STYLES, or 'NAME+CALLS': 'tiny+xml'
      vocab_size=512,  # of the tokenizer trained from the env's text
      tokenizer='',  # directory of a ready tokenizer; '' = train one
    ),
  )


def _model_fields():
  return dict(
    num_layers=3,  # decoder blocks
    d_model=128,  # residual width
    num_heads=4,  # query heads
    num_kv_heads=2,  # divides num_heads
    head_dim=32,  # even
    d_ff=320,  # width of the feed-forward, unused with experts
    activation='silu',  # silu | gelu_tanh: of its gate
    num_experts=0,  # of a feed-forward; 0 = one that all tokens use
    experts_per_token=0,  # 1..num_experts, where there are experts
    d_expert=0,  # width of an expert, where there are experts
    norm_topk=True,  # the weights of a token's experts add up to 1
    balance_coef=0.001,  # of the load-balance loss, >= 0
    expert_compute='auto',  # auto | dense | grouped | ragged: same results
    rope_theta=1e4,  # rotary base
    norm_epsilon=1e-6,  # RMSNorm
    qk_norm=True,  # RMSNorm on queries and keys
    qkv_bias=False,  # on queries, keys and values
    post_norms=False,  # RMSNorm behind attention and feed-forward too
    centered_norms=False,  # norms scale by 1 + weight
    scale_embeddings=False,  # by the root of d_model
    query_scalar=0.0,  # scores are divided by its root; 0 = head_dim
    sliding_window=0,  # tokens that a sliding layer sees; 0 = all
    sliding_layers=(),  # which layers slide, repeated, bools; () = all
    rope_local_theta=0.0,  # rotary base of sliding layers; 0 = rope_theta
    tie_embeddings=False,  # one matrix for input and output
    embedding_std=0.5,  # at initialisation
    attention='auto',  # auto | xla | dot_product | cudnn | splash
    remat='none',  # none | block | dots: recomputed in the backward pass
    scan_unroll=3,  # layers of one step of the learner's scan
    dtype='auto',  # auto | float32 | bfloat16; auto: float32 on CPU
    # To begin with, and their shape: a Hugging Face directory, a GGUF file,
    # or 'PACKAGE:NAME' of one in a package; '' = drawn by the seed.
    weights='',
  )


def policy_fields():
  """Returns the fields of model, tuning, rollout and sampler."""
  return dict(
    model=_model_fields(),
    lora=dict(
      rank=0,  # of adapters, the base being frozen; 0 = none, all is trained
      alpha=16.0,  # they count alpha / rank times, > 0
      targets=('q', 'k', 'v', 'o', 'gate', 'up', 'down'),  # matrices of blocks
      adapter='',  # PEFT directory to begin with; '' = A drawn, B zero
      sft=False,  # fine-tuning trains adapters too, not all weights
      publish='merged',  # merged | beside: how the sampler holds them
      base_dtype='auto',  # of frozen weights; auto: as activations
    ),
    sft=dict(
      steps=0,  # updates of supervised fine-tuning; 0 = none
      rows=12,  # packed rows of a batch, a multiple of train.rows
      demonstrations=4000,  # scripted episodes
      data='',  # chat JSON lines to learn from instead; '' = those episodes
      observation_weight=0.1,  # loss weight of tokens not by the agent
      optimizer=_optimizer('adamw', 3e-3, 20, 'cosine'),
    ),
    rejection=dict(
      every=0,  # iterations after which the policy imitates its best; 0 = never
      above=0.0,  # an episode is imitated whose outcome is higher
      per_task=2,  # episodes of a task, >= 1
      updates=4,  # of a fine-tuning, in batches of sft.rows
      optimizer=_optimizer('adamw', 3e-4, 0, 'constant'),
    ),
    rollout=_rollout_fields(),
    sampler=dict(
      slots=64,  # contexts decoded side by side
      lanes=2,  # parts of the slots that compute side by side; divides slots
      decode_chunk=8,  # tokens of one decode call
      extend_rows=16,  # contexts prefilled or extended in one call
      extend_chunk=18,  # tokens a row of one extend call
      router_replay=True,  # the learner uses the experts that the sampler used
      weights='whole',  # whole | split: over fsdp, where they do not fit
      extend_steps=0.0,  # decode steps that an extend call lasts; 0 = by tokens
      kv_gb=0.0,  # keys and values of all slots of a host at most; 0 = any
    ),
  )


def _watch_fields():
  """Thresholds, and when they count; a threshold of 0 is off."""
  return dict(
    every=10,  # iterations between measures of input dependence; 0 = never
    tasks=8,  # whose first responses are scored under each other's prompts
    audit_trajectories=64,  # that audit_reward judges an iteration; -1 = all
    patience=3,  # values in a row beyond a threshold before a warning
    quiet=10,  # iterations before the same warning comes again
    solved=0.9,  # success from which a narrow policy is no collapse
    entropy=0.01,  # nats a token, lowest
    repeated_calls=0.5,  # share of calls, highest
    distinct_sequences=0.1,  # share of a group that acts differently, lowest
    input_dependence=0.3,  # share of the highest so far, lowest
    length_drift=3.0,  # factor of the response length at the start, > 1
    dead_groups=0.95,  # share of groups, highest
    clip_fraction=0.4,  # share of tokens, highest
    ess=0.3,  # effective share of the sample, lowest
    grounded_arguments=0.5,  # share of the highest so far, lowest
    audit_gap=0.1,  # growth of the unconfirmed share of success, highest
    audit_pull=0.2,  # unconfirmed share of what is rewarded, highest
  )


def _loss_fields():
  return dict(
    name='ppo_clip',  # a name in LOSSES or 'package.module:Name'
    options=ml_collections.ConfigDict(),  # its keyword arguments
    sequence='turn',  # turn | trajectory, for losses with sequence ratios
    weighting='trajectory',  # see losses.token_weights
    weighting_constant=0.0,  # divisor of weighting='constant', > 0 there
    kl_coef=0.0,  # of KL to the reference policy, >= 0
    kl_estimator='k3',  # k1 | k2 | k3 | k3+
    entropy_coef=0.0,  # bonus, >= 0
    # What the ratio is taken to: behavior (at sampling), recomputed (by the
    # learner, once an iteration), latest (before each update), interpolated.
    proximal='behavior',
    # (name, options) pairs from CORRECTIONS, sampling -> proximal policy.
    correction=(),
    value_coef=0.5,  # of the value loss, where the estimator has values
    value_clip=0.0,  # largest step of a value, 0 = off
  )


def _advantage_fields():
  return dict(
    # A name in ESTIMATORS (credit by turn) or TOKEN_ESTIMATORS (by token), or
    # 'package.module:Name' (by turn).
    estimator='gigpo',
    options=ml_collections.ConfigDict(),  # its keyword arguments
    history_levels=1,  # anchors looked back on (hgpo's L)
    invalid_penalty=0.0,  # subtracted from a malformed turn's return
    # exact | similarity, subsequence | turn_index, shuffled (placebos)
    anchors='exact',
    similarity=0.9,  # ratio from which two states are one, (0, 1]
    kl_in_reward=0.0,  # of the k1 to the reference, off each token's reward
    bootstrap='none',  # none | limit: value after a cut episode's last token
    whiten=False,  # to mean 0, std 1 over the trained turns or tokens
    continuations=4,  # vineppo: played from a state, >= 1
    valued_turns=0,  # vineppo: states of a trajectory; 0 = all of them
  )


def learning_fields():
  """Returns the fields of rewards, advantages, updates and what is kept."""
  return dict(
    rewards=(('outcome', 1.0),),  # (name, weight[, options]) parts, added
    audit_reward='',  # a name in REWARDS that judges, never trains; '' = none
    advantage=_advantage_fields(),
    loss=_loss_fields(),
    train=dict(
      iterations=30,  # collect-to-update cycles
      minibatches=2,  # optimizer updates an epoch of an iteration
      epochs=1,  # passes over an iteration's data
      rows=4,  # packed rows of a microbatch (the one learner shape)
      row_length=384,  # tokens of a row, >= rollout.max_context
      shorter_rows=(),  # lengths, descending, that divide row_length, each the
      # shape of microbatches without a longer context; () = one shape
      param_dtype='float32',  # float32 | bfloat16: of weights in a gradient
      head_chunk=-1,  # tokens of a row with logits at once; 0 = all, -1 = by V
      constant_groups='drop',  # keep | drop | refill groups of equal outcomes
      overlong='keep',  # keep | drop what ran out of tokens (LENGTH, context)
      max_nonfinite=3,  # skipped updates in a row that stop the run
      optimizer=_optimizer('adam', 5e-4, 5, 'linear'),
    ),
    mesh=dict(data=1, fsdp=1, tensor=1, expert=1),  # devices; one may be -1
    distributed=dict(
      coordinator='',  # HOST:PORT of process 0, or auto; '' = one process
      num_processes=0,  # 0 = the cluster says
      process_id=-1,  # of this one; -1 = the cluster says
      heartbeat_timeout_seconds=20,  # silence after which a process is dead
      initialization_timeout_s=300,  # patience with hosts not there yet
    ),
    eval=dict(
      every=10,  # iterations; 0 = only before and after training
      tasks=128,  # held-out validation tasks
      test_tasks=1024,  # at the end, once
    ),
    checkpoint=dict(
      every=1,  # iterations
      sft_every=50,  # updates
      keep=2,  # last checkpoints kept, best by validation besides
      reshard=False,  # go on from a run of another mesh or number of hosts
    ),
    doctor=dict(
      every=0,  # iterations between examinations; 0 = the first one only
      strict='wrong',  # none | wrong | all: which failed checks stop the run
      ratio=1e-4,  # worst |ratio - 1| at first, float32; > 0, deep models more
    ),
    watch=_watch_fields(),
    log=dict(
      trajectories=16,  # written an iteration; -1 = all
      tensorboard=True,  # event files beside metrics.jsonl
    ),
  )
