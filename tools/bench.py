"""How fast are the programs that a run is made of, by core and by the clock?

  tools/run tools/bench.py sample multiturn train logprobs [--cores=0]
    [--repeats=5] [--rows=4] [--lanes=1] [--cache=DIR]

Prints one JSON object a line; `tools/record.py FILE --name=bench` keeps them.
Every workload runs the product's own engine, learner and scorer on a random
policy of 4.98 M parameters (4 layers, d 256, vocabulary 4,096, tied, float32):

  sample     32 prompts of 128 tokens, 128 new ones each, with log-probs
  multiturn  32 episodes, 4 turns of 32 sampled and 32 observed tokens, after a
             first prompt of 128; conversations keep their keys and values
  train      a GRPO update with a KL term on 32 sequences of 256 tokens
  logprobs   log-probs of 32 sequences of 256 tokens
  grpo       a whole GRPO step: 4 prompts x 8 samples (as `sample`), log-probs
             of the reference, an update (as `train`), weights to the sampler
  agentic    3 such steps of 4 x 8 episodes of at most 4 turns, in a process
             that has compiled nothing: a turn ends on any of 128 tokens (32 on
             average), an observation has 32, a response at most 256; once, all
             compiles included; --cache keeps them for a second process
  latency    schedules on a simulated device, a line a load (tools/latency.py)

`tok_per_cpu_s` counts the CPU seconds of this process alone, so that it says
what one quiet core gives when the machine is not quiet (use --cores=0);
`tok_s_best` is the fastest repetition by the clock. `gemm_share` is the share
of the rate of a train-shaped matrix product, measured in the same process.
`compiles` counts programs built after the first repetition: it must be 0; all
of them for `agentic`. By default the sampler has a lane a core.
"""

import argparse
import contextlib
import functools
import importlib
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator

from agentrl_jax import runtime

BATCH, PROMPT, NEW, LENGTH = 32, 128, 128, 256
TURNS, TURN_NEW, TURN_OBSERVED = 4, 32, 32
GROUP = 8  # samples of a prompt
STEPS, EPISODE_PROMPT, ENDS = 3, 64, 128  # of `agentic`; tokens that end a turn
VOCAB, RESERVED = 4096, 4  # ids below are never in a prompt
PRESET = '5m'
GEMM = 8192, 256, 1024  # a train-shaped matrix product


def main(arguments: list[str] | None = None) -> int:
  """Runs the workloads; returns the exit status."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    'workloads', nargs='+', choices=[*WORKLOADS, *RUNS, 'latency']
  )
  parser.add_argument('--cores', default='', help='pin to these, e.g. 0,1')
  parser.add_argument('--repeats', type=int, default=5)
  parser.add_argument('--rows', type=int, default=4, help='of a microbatch')
  parser.add_argument('--lanes', type=int, default=0, help='of the sampler')
  parser.add_argument('--cache', default='', help='directory of programs')
  options = parser.parse_args(arguments)
  if options.cores:  # before jax counts them
    os.sched_setaffinity(0, {int(core) for core in options.cores.split(',')})
  cores = min(runtime.num_cores(), 8)
  options.lanes = options.lanes or 1 << cores.bit_length() - 1  # 1, 2, 4 or 8
  runtime.tune_allocator()
  if options.cache:
    import jax

    jax.config.update('jax_compilation_cache_dir', options.cache)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  for name in options.workloads:
    for line in _lines(name, options):
      print(json.dumps(line), flush=True)
  return 0


def _lines(name, options):
  if name == 'latency':
    here = f'{__package__}.' if __package__ else ''  # a script has none
    return importlib.import_module(f'{here}latency').lines()
  if name in RUNS:
    return [once(name, RUNS[name], options)]
  tokens, flops, work = WORKLOADS[name](options)
  return [measure(name, tokens, flops, work, options)]


def once(name: str, run: Callable, options) -> dict[str, float]:
  """Times a run from nothing, which returns how many tokens it drew."""
  with _compiles() as built:
    start, cpu = time.perf_counter(), time.process_time()
    tokens = run(options)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
  return {
    'name': name,
    'tok_per_cpu_s': round(tokens / cpu, 1),
    'tok_s_best': round(tokens / wall, 1),
    'tokens': tokens,
    'compiles': len(built),
    'compile_s': round(sum(built), 2),
    **_host(),
  }


@contextlib.contextmanager
def _compiles() -> Iterator[list[float]]:
  """Gives the list of seconds of programs that are built meanwhile."""
  import jax

  built = []

  def listen(event, seconds, **_):
    if event == '/jax/core/compile/backend_compile_duration':
      built.append(seconds)

  jax.monitoring.register_event_duration_secs_listener(listen)
  yield built
  jax.monitoring.unregister_event_duration_listener(listen)


def _host() -> dict[str, float]:
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return {
    'peak_rss_mb': round(peak / 1024 ** (1 + (sys.platform == 'darwin'))),
    'cores': runtime.num_cores(),
    'load': round(os.getloadavg()[0], 2),
  }


def measure(
  name: str,
  tokens: int,
  flops: float,
  work: Callable[[], None],
  options: argparse.Namespace,
) -> dict:
  """Times `work`, which blocks until it is done.

  Args:
    name, options: of the workload; of the command line.
    tokens: that one call is worth.
    flops: multiply-adds x 2 of its matrix products.
    work: the call.
  """
  walls, cpus = [], []
  with _compiles() as built:
    start = time.perf_counter()
    work()
    cold, first = time.perf_counter() - start, len(built)
    for _ in range(options.repeats):
      start, cpu = time.perf_counter(), time.process_time()
      work()
      walls.append(time.perf_counter() - start)
      cpus.append(time.process_time() - cpu)
    late = len(built) - first
  return {
    'name': name,
    'tok_per_cpu_s': round(tokens / min(cpus), 1),
    'tok_s_best': round(tokens / min(walls), 1),
    'tok_s_median': round(tokens / statistics.median(walls), 1),
    'gemm_share': round(flops / min(walls) / _gemm_rate(), 3),
    'compiles': late,
    'compile_s': round(cold - statistics.median(walls), 2),
    **_host(),
  }


def sample(options: argparse.Namespace):
  """Draws completions of fixed length."""
  engine = _engine(LENGTH, NEW, options)
  calls = [0]

  def work():
    calls[0] += 1
    for i, tokens in enumerate(_draw(calls[0], BATCH, PROMPT)):
      _ask(engine, engine.acquire(), tokens, (calls[0], i), NEW)
    for done in _drain(engine):
      engine.release(done.slot)

  return BATCH * NEW, _forward_flops(BATCH * LENGTH), work


def multiturn(options: argparse.Namespace):
  """Alternates completions and observations; nothing is prefilled twice."""
  length = PROMPT + TURNS * (TURN_NEW + TURN_OBSERVED)
  engine = _engine(length, TURN_NEW, options)
  replies = _draw(0, BATCH * TURNS, TURN_OBSERVED).reshape(BATCH, TURNS, -1)
  calls = [0]

  def work():
    calls[0] += 1
    turns, episodes = dict.fromkeys(range(BATCH), 0), {}
    for i, tokens in enumerate(_draw(calls[0], BATCH, PROMPT)):
      episodes[slot := engine.acquire()] = i
      _ask(engine, slot, tokens, (calls[0], i), TURN_NEW)
    while engine.busy:
      for done in engine.pump():
        i = episodes[done.slot]
        turns[i] += 1
        if turns[i] == TURNS:
          engine.release(done.slot)
          continue
        new = [done.tokens[-1], *replies[i, turns[i] - 1].tolist()]
        key = (calls[0], BATCH * turns[i] + i)
        _ask(engine, done.slot, new, key, TURN_NEW)

  return BATCH * TURNS * TURN_NEW, _forward_flops(BATCH * length), work


def train(options: argparse.Namespace):
  """Does a GRPO update with a KL term, microbatch by microbatch."""
  import jax
  import numpy as np

  from agentrl_jax.rollout import collate

  learner, params = _learner(options)
  batches = collate.microbatches(_batch(), options.rows)
  guess = np.full((options.rows, LENGTH), -np.log(VOCAB), np.float32)
  states = [learner.create(params)]

  def work():
    state, *rest = learner.update(
      states.pop(), batches, [{'reference_logprobs': guess}] * len(batches)
    )
    jax.block_until_ready((state, rest))
    states.append(state)

  return BATCH * LENGTH, 3 * _forward_flops(BATCH * LENGTH), work


def logprobs(options: argparse.Namespace):
  """Scores sequences, as a reference policy would."""
  import jax

  from agentrl_jax.learner import estimate
  from agentrl_jax.rollout import collate

  config, mesh, params = _policy()
  scorer = estimate.Estimator(config, mesh, 1.0)
  batches = collate.microbatches(_batch(), options.rows)

  def work():
    jax.block_until_ready(scorer.logprobs(params, batches))

  return BATCH * LENGTH, _forward_flops(BATCH * LENGTH, heads=1), work


def grpo(options: argparse.Namespace):
  """Does all that a step of GRPO does."""
  engine = _engine(LENGTH, NEW, options)
  update = _step(engine, options)
  calls = [0]

  def work():
    calls[0] += 1
    prompts = _draw(calls[0], BATCH // GROUP, PROMPT)
    batch, rows = _empty_batch(LENGTH), {}
    for i in range(BATCH):
      rows[slot := engine.acquire()] = i
      _put(batch, i, 0, prompts[i // GROUP])
      _ask(engine, slot, prompts[i // GROUP].tolist(), (calls[0], i), NEW)
    for done in _drain(engine):
      _put(batch, rows[done.slot], PROMPT, done.tokens, done.logprobs)
      engine.release(done.slot)
    update(batch)

  return BATCH * NEW, 5 * _forward_flops(BATCH * LENGTH), work


def agentic(options: argparse.Namespace) -> int:
  """Trains on episodes of several turns from nothing; returns tokens drawn."""
  engine = _engine(LENGTH + EPISODE_PROMPT, LENGTH, options, range(4, 4 + ENDS))
  update = _step(engine, options)
  for number in range(STEPS):
    update(_episodes(engine, number))
  return engine.counters.sampled_tokens


def _episodes(engine, number: int):
  """Plays 4 x 8 episodes; returns them as rows."""
  batch = _empty_batch(LENGTH + EPISODE_PROMPT)
  prompts = _draw(100 + number, BATCH // GROUP, EPISODE_PROMPT)
  replies = _draw(200 + number, BATCH * TURNS, TURN_OBSERVED)
  places, turns, rows = [EPISODE_PROMPT] * BATCH, [0] * BATCH, {}

  def ask(i, slot, new):
    key = (number, BATCH * turns[i] + i)
    _ask(engine, slot, new, key, LENGTH + EPISODE_PROMPT - places[i])

  for i in range(BATCH):
    rows[slot := engine.acquire()] = i
    _put(batch, i, 0, prompts[i // GROUP])
    ask(i, slot, prompts[i // GROUP].tolist())
  while engine.busy:
    for done in engine.pump():
      i = rows[done.slot]
      _put(batch, i, places[i], done.tokens, done.logprobs)
      reply = replies[BATCH * turns[i] + i].tolist()
      turns[i] += 1
      places[i] += len(done.tokens)
      room = LENGTH + EPISODE_PROMPT - places[i] - len(reply)
      if turns[i] == TURNS or not done.stopped or room < 1:
        engine.release(done.slot)
        continue
      _put(batch, i, places[i], reply)
      places[i] += len(reply)
      ask(i, done.slot, [done.tokens[-1], *reply])
  return batch


WORKLOADS = {w.__name__: w for w in (sample, multiturn, train, logprobs, grpo)}
RUNS = {'agentic': agentic}


@functools.cache
def _policy():
  """Returns (config, mesh, params) of the policy that is measured."""
  import jax

  from agentrl_jax import sharding
  from agentrl_jax.models import config as config_lib
  from agentrl_jax.models import params as params_lib

  shape = config_lib.PRESETS[PRESET]
  config = config_lib.ModelConfig(
    vocab_size=VOCAB, tie_embeddings=True, scan_unroll=4, **shape
  )
  mesh = sharding.make_mesh(dict(data=1, fsdp=1, tensor=1))
  params = jax.jit(functools.partial(params_lib.init, config))(
    jax.random.key(0)
  )
  return config, mesh, params


def _learner(options: argparse.Namespace):
  from agentrl_jax import losses
  from agentrl_jax.learner import objective, optimizer, step

  config, mesh, params = _policy()
  goal = dict(kl_coef=0.04, head_chunk=objective.head_chunk(-1, VOCAB))
  goal = objective.PolicyObjective(losses.LOSSES['ppo_clip'], **goal)
  rates = dict(learning_rate=1e-5, warmup=0, schedule='constant', b1=0.9)
  rates |= dict(name='adamw', b2=0.999, epsilon=1e-8, weight_decay=0.0)
  tx = optimizer.make({**rates, 'clip_norm': 1.0}, 10**6)
  return step.Learner(config, goal, tx, mesh, options.rows), params


def _step(engine, options: argparse.Namespace):
  """Returns what does with rows all that GRPO does after sampling."""
  import jax

  from agentrl_jax.learner import estimate
  from agentrl_jax.rollout import collate

  config, mesh, reference = _policy()
  learner, params = _learner(options)
  scorer = estimate.Estimator(config, mesh, 1.0)
  states = [learner.create(params)]

  def update(batch):
    batches = collate.microbatches(_credited(batch), options.rows)
    scores = scorer.logprobs(reference, batches)
    state, *rest = learner.update(
      states.pop(), batches, [{'reference_logprobs': x} for x in scores]
    )
    engine.publish(state.params, int(state.updates))
    jax.block_until_ready((state, rest))
    states.append(state)

  return update


def _credited(batch):
  """Rewards a row by its distinct tokens, centres and weighs."""
  import numpy as np

  from agentrl_jax import advantages

  rows = zip(batch.tokens, batch.mask, strict=True)
  rewards = [len(set(tokens[mask])) for tokens, mask in rows]
  groups = np.arange(BATCH) // GROUP
  earned = advantages.grpo(
    np.array(rewards, np.float32), groups, np.ones(BATCH, bool)
  )
  batch.advantages[:] = np.where(batch.mask, np.asarray(earned)[:, None], 0)
  batch.weights[:] = batch.mask / batch.mask.sum()
  return batch


def _put(batch, row, start, tokens, logprobs=None) -> None:
  """Writes tokens of a row; sampled ones have log-probs."""
  end = start + len(tokens)
  batch.tokens[row, start:end] = tokens
  batch.segment_ids[row, start:end] = 1
  if logprobs is not None:
    batch.mask[row, start:end] = True
    batch.behavior_logprobs[row, start:end] = logprobs


def _empty_batch(length: int):
  import numpy as np

  from agentrl_jax.rollout import collate

  batch = collate.empty_rows(BATCH, length)
  batch.positions[:] = np.arange(length)
  return batch


def _engine(length: int, new: int, options: argparse.Namespace, stops=(VOCAB,)):
  from agentrl_jax.sampler import engine as engine_lib

  config, mesh, params = _policy()
  engine = engine_lib.Engine(
    config,
    mesh,
    num_slots=BATCH,
    num_lanes=options.lanes,
    context_length=length,
    max_turn_tokens=new,
    extend_rows=BATCH // options.lanes,
    extend_chunk=TURN_OBSERVED + 1,
    decode_chunk=new,
    stop_ids=tuple(stops),  # by default never drawn: turns have full length
  )
  engine.publish(params, 0)
  return engine


def _ask(engine, slot, tokens, key, budget) -> None:
  import numpy as np

  words = np.array(key, np.uint32)
  engine.request(slot, tokens, words=words, temperature=1.0, budget=budget)


def _drain(engine) -> list:
  done = []
  while engine.busy:
    done += engine.pump()
  return done


def _draw(seed: int, rows: int, length: int):
  import numpy as np

  draw = np.random.default_rng(seed).integers
  return draw(RESERVED, VOCAB, (rows, length), dtype=np.int32)


def _batch():
  """Returns 32 rows, each a prompt and a completion that is trained."""
  import numpy as np

  batch = _empty_batch(LENGTH)
  batch.tokens[:] = _draw(1, BATCH, LENGTH)
  batch.segment_ids[:] = 1
  batch.mask[:, PROMPT:] = True
  batch.weights[:, PROMPT:] = 1 / (BATCH * NEW)
  batch.advantages[:] = np.random.default_rng(1).normal(size=(BATCH, 1))
  batch.behavior_logprobs[:, PROMPT:] = -np.log(VOCAB)
  return batch


def _forward_flops(tokens: int, heads: float = 0.5) -> float:
  """Matrix products of the weights; `heads` = share of tokens with logits."""
  import jax

  params = _policy()[2]
  layers = sum(x.size for x in jax.tree.leaves(params['layers']))
  head = params['embed']['table'].size
  return 2.0 * tokens * (layers + heads * head)


@functools.cache
def _gemm_rate() -> float:
  """Multiply-adds x 2 a second of the product `GEMM`."""
  import jax
  import jax.numpy as jnp

  rows, inner, columns = GEMM
  left, right = jnp.ones((rows, inner)), jnp.ones((inner, columns))
  product = jax.jit(jnp.matmul)
  times = []
  for _ in range(20):
    start = time.perf_counter()
    product(left, right).block_until_ready()
    times.append(time.perf_counter() - start)
  return 2.0 * rows * inner * columns / min(times)


if __name__ == '__main__':
  sys.exit(main())
