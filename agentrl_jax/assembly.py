"""From a config to the parts of a run: the one place that reads both."""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import ml_collections
import numpy as np

from agentrl_jax import (
  __version__,
  adapters,
  advantages,
  data,
  envs,
  losses,
  pretrained,
  rewards,
  sharding,
  tables,
  validation,
)
from agentrl_jax import config as config_lib
from agentrl_jax.batch import TurnBatch
from agentrl_jax.envs import latency, remote
from agentrl_jax.models import cache as cache_lib
from agentrl_jax.models import fused, moe
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.rollout import ahead, breaker, loop
from agentrl_jax.rollout.episode import Language, Limits
from agentrl_jax.sampler.engine import Engine
from agentrl_jax.text import chat, templates, tools
from agentrl_jax.text import memory as memory_lib
from agentrl_jax.text import tokenizer as tokenizer_lib

# Conversations that the tokenizer is trained on.
_TOKENIZER_TEXTS = 400

# `config.sampler.weights` -> where the sampler's copy lies.
_SAMPLER_RULES = {'whole': sharding.SAMPLER_RULES, 'split': sharding.RULES}

# Names that a config may use, for `config.validate`.
TABLES = {
  'env.name': envs.ENVS,
  'advantage.estimator': (advantages.ESTIMATORS | advantages.TOKEN_ESTIMATORS),
  'loss.name': losses.LOSSES,
  'rollout.memory': memory_lib.MEMORIES,
}


def cache_root() -> pathlib.Path:
  """`$AGENTRL_JAX_CACHE`, or ~/.cache/agentrl_jax."""
  given = os.environ.get('AGENTRL_JAX_CACHE')
  return pathlib.Path(given or pathlib.Path.home() / '.cache' / 'agentrl_jax')


def faults(config: ml_collections.ConfigDict) -> list[str]:
  """Returns what is wrong with names and options that tables explain."""
  out = []
  parts = list(filter(validation.is_part, config.rewards))
  out += [f'config.rewards: {fault}' for fault in rewards.faults(parts)]
  try:
    auditor(config)
  except ValueError as e:
    out.append(f'config.audit_reward: {e}')
  try:
    chat.style(config.text.style)
  except ValueError as e:
    out.append(f'config.text.style: {e}')
  try:
    if config.sft.data:
      data.Conversations(config.sft.data)
  except ValueError as e:
    out.append(f'config.sft.data: {e}')
  if config.rejection.every and config.distributed.coordinator:
    out.append('config.rejection.every: several hosts cannot; set it to 0')
  if config.env.isolation == 'ray' and not remote.has_ray():
    out.append("config.env.isolation='ray': ray is not installed (extra `ray`)")
  try:
    env = envs.make(config.env.name, **env_options(config))
    env.close()
    if config.advantage.estimator == 'vineppo':
      out += _snapshot_faults(config.env.name, env)
    wall_s, deadline_s = getattr(env, 'wall_s', 0.0), config.env.deadline_s
    if wall_s >= deadline_s:
      out.append(
        f'config.env.deadline_s={deadline_s}: must be above the wall_s={wall_s}'
        ' that commands of a turn have (config.env.options.wall_s)'
      )
  except (TypeError, ValueError) as e:
    out.append(f'config.env.options: {e}')
  floats = jax.ShapeDtypeStruct((1, 2), np.float32)
  ids, mask = (jax.ShapeDtypeStruct((1, 2), t) for t in (np.int32, np.bool_))
  out += ahead.faults(config) + _model_faults(config)
  out += _advantage_faults(config.advantage)
  sequences = {'turn': ids, 'sequence': ids}
  for part in filter(validation.is_correction, config.loss.correction):
    out += _correction_faults(part, (floats, floats, sequences, mask))
  out += _call_faults(
    'loss',
    _table_entry(losses.LOSSES, config.loss.name),
    config.loss.options,
    (floats, floats, floats, ids, mask),
  )
  if (
    config.init_from
    and not pathlib.Path(config.init_from, 'checkpoints').is_dir()
  ):
    out.append(
      f'config.init_from={config.init_from}: no checkpoints/ in it; give a run '
      'directory'
    )
  return out


def auditor(config: ml_collections.ConfigDict) -> Callable | None:
  """Returns the part that judges and never trains, if there is one."""
  name = config.audit_reward
  return rewards.compose([(name, 1.0)])[0][name] if name else None


def _model_faults(config: ml_collections.ConfigDict) -> list[str]:
  """Faults of weights and of the adapters beside them."""
  out = adapters.faults(config)
  out += pretrained.faults(
    config.model.to_dict(), config_lib.default().model.to_dict()
  )
  if config.lora.rank and not out:
    try:
      params_lib.describe(model_config(config, 1))
    except config_lib.ConfigError as e:
      out += e.faults
    except ValueError as e:  # a target that this model does not have
      out.append(f'config.{e}')
  return out


def _advantage_faults(c: ml_collections.ConfigDict) -> list[str]:
  """Faults of an estimator's options, with the values that a run gives it."""
  if c.estimator in advantages.TOKEN_ESTIMATORS:
    tokens = jax.ShapeDtypeStruct((2, 3), np.float32)
    groups = jax.ShapeDtypeStruct((2,), np.int32)
    mask = jax.ShapeDtypeStruct((2, 3), np.bool_)
    estimator = advantages.TOKEN_ESTIMATORS[c.estimator]
    given = (tokens, tokens, groups, mask)
    return _call_faults('advantage', estimator, c.options, given)
  estimator = _table_entry(advantages.ESTIMATORS, c.estimator)
  if c.estimator in advantages.VALUE_ESTIMATORS:
    estimator = functools.partial(estimator, values=np.zeros((2, 2)))
  played = {
    'remax': {'greedy_returns': np.zeros(2, np.float32)},
    'vineppo': {'continuation_returns': np.zeros((2, 2, 1), np.float32)},
  }
  if c.estimator in played:
    estimator = functools.partial(estimator, **played[c.estimator])
  given = (_turns(c.history_levels),)
  return _call_faults('advantage', estimator, c.options, given)


def _snapshot_faults(name: str, env: Any) -> list[str]:
  if hasattr(env, 'snapshot') and hasattr(env, 'restore'):
    return []
  return [
    f"config.advantage.estimator='vineppo': goes on from snapshots, which "
    f'{name!r} does not offer; give it snapshot() and restore(), or choose '
    'another estimator'
  ]


def _correction_faults(part, arguments) -> list[str]:
  """Faults of one (name, options) of `loss.correction`."""
  name, options = part
  try:
    correction = tables.resolve(losses.CORRECTIONS, name)
    jax.eval_shape(functools.partial(correction, **options), *arguments)
  except (AssertionError, KeyError, TypeError, ValueError) as e:
    return [f'config.loss.correction: {name}: {str(e).splitlines()[0]}']
  return []


def _table_entry(table, name):
  try:
    return tables.resolve(table, name)
  except ValueError:
    return None  # reported under its own field


def model_config(
  config: ml_collections.ConfigDict, vocab_size: int
) -> ModelConfig:
  """Returns the policy's shape; dtype 'auto' is float32 on a CPU.

  Weights of somebody else bring their shape and their vocabulary.

  Raises:
    ConfigError: their vocabulary is smaller than the tokenizer's.
  """
  fields = config.model.to_dict()
  weights = fields.pop('weights')
  if fields['dtype'] == 'auto':
    on_cpu = jax.default_backend() == 'cpu'
    fields['dtype'] = 'float32' if on_cpu else 'bfloat16'
  if fields['expert_compute'] == 'auto':
    fields['expert_compute'] = moe.fastest(jax.default_backend())
  fields['lora'] = adapters.of_config(config)
  if not weights:
    return _attending(config, ModelConfig(vocab_size=vocab_size, **fields))
  theirs = pretrained.shape(weights)
  if theirs.vocab_size < vocab_size:
    raise config_lib.ConfigError(
      [
        f'config.model.weights={weights}: they know {theirs.vocab_size} '
        f'tokens, the tokenizer has {vocab_size}; set config.text.tokenizer to '
        'the one that belongs to them'
      ]
    )
  how = {
    name: fields[name] for name in (*pretrained.HOW, 'lora') if name in fields
  }
  return _attending(config, dataclasses.replace(theirs, **how))


def _attending(config: ml_collections.ConfigDict, model: ModelConfig):
  """Chooses attention by device and shapes, and refuses what cannot be."""
  lengths = config.train.row_length, *config.train.shorter_rows
  shapes = [(model.dtype, model.head_dim, length) for length in lengths]
  if model.attention == 'auto':
    best = {fused.best(jax.default_backend(), *shape) for shape in shapes}
    name = best.pop() if len(best) == 1 else 'xla'
    return dataclasses.replace(model, attention=name)
  wrong = [w for shape in shapes for w in fused.faults(model.attention, *shape)]
  wrong = list(dict.fromkeys(wrong))
  if wrong:
    raise config_lib.ConfigError(f'config.model.attention: {w}' for w in wrong)
  return model


def env_options(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns the keyword arguments of the environment and of its tasks."""
  return config.env.options.to_dict()


def demonstrations(config: ml_collections.ConfigDict, seed: int = 0):
  """Opens what SFT and the tokenizer read: scripted episodes, or a file's."""
  if config.sft.data:
    return data.Conversations(config.sft.data)
  return envs.demonstrations(
    config.env.name,
    num=config.sft.demonstrations,
    seed=seed,
    **env_options(config),
  )


def tasks(config: ml_collections.ConfigDict, split: str):
  """Opens a fixed panel of tasks."""
  return envs.tasks(config.env.name, split, **env_options(config))


def language(config: ml_collections.ConfigDict) -> Language:
  """Loads the tokenizer, or trains it on the environment's own text.

  It depends on the environment and on `config.text`, not on the run's seed:
  runs of a study share it. Weights of another run, or of somebody else, come
  with their tokenizer.
  """
  inherited = pathlib.Path(config.init_from, 'tokenizer')
  tokenizer = None
  if config.text.tokenizer:
    tokenizer = tokenizer_lib.load(config.text.tokenizer)
  elif config.init_from and inherited.is_dir():
    tokenizer = tokenizer_lib.load(inherited)
  elif config.model.weights:
    tokenizer = pretrained.tokenizer(config.model.weights)
  if tokenizer is None:
    records = with_tools(config, demonstrations(config), _TOKENIZER_TEXTS)
    style = config.text.style
    texts = [
      tools.written(message['content'], message.get('calls', ()), style)
      for record in records
      for message in templates.translated(style, record['messages'])
    ]
    # Seldom in demonstrations, often read by a policy that makes mistakes.
    errors = [f'error: {e}' for e in tools.error_texts(style)]
    texts += errors * 3
    # As often as prompts show them.
    usual = schemas(config)
    texts += [templates.shown(style, r.get('tools', usual)) for r in records]
    tokenizer = tokenizer_lib.train(
      texts, vocab_size=config.text.vocab_size, style=style
    )
  return Language(tokenizer, config.text.style, memory(config))


def schemas(config: ml_collections.ConfigDict) -> tuple[Any, ...]:
  """Returns the tool schemas that prompts show.

  () if the style shows none, or if the tools differ from task to task.
  """
  if chat.style(config.text.style).schemas is None:
    return ()
  env = envs.make(config.env.name, **env_options(config))
  try:
    return tuple(env.tools)
  finally:
    env.close()


def with_tools(
  config: ml_collections.ConfigDict, records: Any, most: int | None = None
) -> list[dict[str, Any]]:
  """Returns demonstrations, with `tools` where those differ between tasks.

  Args:
    config: of the run.
    records: as of `demonstrations`.
    most: how many of them; None = all.
  """
  count = len(records) if most is None else min(most, len(records))
  found = [records[i] for i in range(count)]
  env_class = tables.resolve(envs.ENVS, config.env.name)
  shows = chat.style(config.text.style).schemas is not None
  if config.sft.data or not shows or not hasattr(env_class, 'task_tools'):
    return found
  options = envs.base.split_options(env_class, env_options(config))[0]
  return [
    {**record, 'tools': env_class.task_tools(record['task'], **options)}
    for record in found
  ]


def memory(config: ml_collections.ConfigDict) -> memory_lib.Memory:
  """Returns what of the past a turn sees, in rollouts and demonstrations."""
  c = config.rollout
  return memory_lib.Memory(
    name=c.memory, window=c.window, thinking=c.thinking, drift=c.drift
  )


def limits(config: ml_collections.ConfigDict) -> Limits:
  """Returns the budgets of an episode."""
  c = config.rollout
  return Limits(
    max_turns=c.max_turns,
    max_turn_tokens=c.max_turn_tokens,
    max_context=c.max_context,
    malformed_limit=c.malformed_limit,
    long_prompt=c.long_prompt,
    long_observation=c.long_observation,
  )


def mesh(config: ml_collections.ConfigDict) -> jax.sharding.Mesh:
  """Returns the mesh of `config.mesh` over this process's devices."""
  return sharding.make_mesh(config.mesh.to_dict())


def mesh_to_play(config: ml_collections.ConfigDict) -> jax.sharding.Mesh:
  """Returns the run's mesh, or one of all devices where it does not fit.

  Who plays a policy need not have the machines that trained it.
  """
  try:
    return mesh(config)
  except ValueError:
    return sharding.make_mesh(dict.fromkeys(config.mesh, 1) | {'fsdp': -1})


def engine(
  config: ml_collections.ConfigDict,
  model: ModelConfig,
  lang: Language,
  mesh: jax.sharding.Mesh,
) -> Engine:
  """Returns the sampler.

  Raises:
    ConfigError: keys and values outgrow `sampler.kv_gb`.
  """
  fault = _cache_fault(config, model)
  if fault:
    raise config_lib.ConfigError([fault])
  return Engine(
    model,
    mesh,
    num_slots=config.sampler.slots,
    num_lanes=config.sampler.lanes,
    context_length=config.rollout.max_context,
    max_turn_tokens=config.rollout.max_turn_tokens,
    extend_rows=config.sampler.extend_rows,
    extend_chunk=config.sampler.extend_chunk,
    decode_chunk=config.sampler.decode_chunk,
    extend_steps=config.sampler.extend_steps,
    stop_ids=templates.stop_ids(lang.tokenizer, lang.style),
    top_p=config.rollout.top_p,
    top_k=config.rollout.top_k,
    record_routes=config.sampler.router_replay,
    adapters=config.lora.publish,
    weight_rules=_SAMPLER_RULES[config.sampler.weights],
  )


def _cache_fault(config: ml_collections.ConfigDict, model: ModelConfig) -> str:
  """Says how many slots would fit, where those of the config do not."""
  budget, slots = config.sampler.kv_gb * 1e9, config.sampler.slots
  one = cache_lib.num_bytes(model, 1, config.rollout.max_context)
  if not budget or slots * one <= budget:
    return ''
  fit = int(budget // one)
  return (
    f'config.sampler.kv_gb={config.sampler.kv_gb:g}: keys and values of '
    f'config.sampler.slots={slots} contexts of config.rollout.max_context='
    f'{config.rollout.max_context} tokens take {slots * one / 1e9:.3g} GB; '
    + (f'{fit} slots fit' if fit else 'not one slot fits')
  )


def collector(
  config: ml_collections.ConfigDict, engine: Engine, lang: Language, should_stop
) -> loop.Collector:
  """Returns the rollout loop's host side."""
  make_env = functools.partial(
    envs.make, config.env.name, **env_options(config)
  )
  if config.env.latency_s:
    make_env = functools.partial(latency.make, make_env, config.env.latency_s)
  if config.env.isolation != 'none':
    kind, deadline_s = config.env.isolation, config.env.deadline_s
    make_env = remote.Maker(make_env, kind, deadline_s)
  return loop.Collector(
    engine,
    make_env,
    lang,
    limits(config),
    workers=config.env.workers,
    deadline_s=config.env.deadline_s,
    episode_deadline_s=config.rollout.episode_deadline_s,
    breaker=breaker.make(config.rollout),
    order=config.rollout.order,
    yield_s=config.rollout.yield_s,
    should_stop=should_stop,
  )


def shared_facts(
  config: ml_collections.ConfigDict, lang: Language
) -> dict[str, str]:
  """Returns digests of what every process of a run must have alike."""
  fields = config.to_dict()
  del fields['distributed']  # who this process is
  return {
    'config': digest(fields),
    'tokenizer': digest(lang.tokenizer.files()),
    'version': f'{__version__}, jax {jax.__version__}',
  }


def digest(value: Any) -> str:
  """Returns a short hash of JSON-like content."""
  text = json.dumps(value, sort_keys=True, default=list)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def _turns(num_levels: int) -> TurnBatch:
  """Returns shapes of a batch of two trajectories of two turns."""

  def array(dtype, *shape):
    return jax.ShapeDtypeStruct(shape, dtype)

  return TurnBatch(
    turn_rewards=array(np.float32, 2, 2),
    turn_mask=array(np.bool_, 2, 2),
    group_ids=array(np.int32, 2),
    anchor_ids=array(np.int32, 2, 2),
    history_ids=array(np.int32, 2, 2, max(num_levels, 1)),
    turn_penalties=array(np.float32, 2, 2),
    action_ids=array(np.int32, 2, 2),
  )


def _call_faults(field: str, function: Any, options, arguments) -> list[str]:
  """Faults of keyword arguments, found by tracing the function once."""
  if function is None:
    return []
  try:
    jax.eval_shape(functools.partial(function, **options.to_dict()), *arguments)
  except (AssertionError, KeyError, TypeError, ValueError) as e:
    return [f'config.{field}.options: {str(e).splitlines()[0]}']
  return []
