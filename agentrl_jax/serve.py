"""Whose policy is served? A run's, or the one that a config begins with."""

import jax
import ml_collections

from agentrl_jax import assembly, weights
from agentrl_jax import config as config_lib
from agentrl_jax.gateway.batcher import Batcher
from agentrl_jax.gateway.server import Gateway
from agentrl_jax.rollout.episode import Language
from agentrl_jax.sampler.engine import Engine
from agentrl_jax.text import tokenizer as tokenizer_lib


def of_run(
  directory: str, which: str = 'last', **changes: int
) -> tuple[Engine, Language, ml_collections.ConfigDict]:
  """Opens a run's policy.

  Args:
    directory: of the run; nothing in it changes.
    which: checkpoint: 'last', 'best' (by validation) or an iteration.
    **changes: as of `of_config`.

  Returns:
    (engine, language, config): with the weights published.

  Raises:
    ValueError: no run there, no such checkpoint.
  """
  config = _changed(config_lib.of_run(directory), changes)
  tokenizer = tokenizer_lib.load(f'{directory}/tokenizer')
  language = Language(tokenizer, config.text.style, assembly.memory(config))
  model = assembly.model_config(config, tokenizer.vocab_size)
  mesh = assembly.mesh_to_play(config)
  step, params = weights.chosen(directory, which, model, mesh)
  return _opened(config, language, model, mesh, params, step)


def of_config(
  config: ml_collections.ConfigDict, **changes: int
) -> tuple[Engine, Language, ml_collections.ConfigDict]:
  """Opens the policy that a config begins with, without adapters.

  Args:
    config: `model.weights` or `init_from` say which; else it is drawn.
    **changes: `slots`, `context`, `max_tokens`: other sizes than its own.

  Returns:
    As `of_run`.

  Raises:
    ConfigError: the config cannot be run, or there are no such weights.
  """
  config = _changed(config, changes | {'rank': 0})
  language = assembly.language(config)
  model = assembly.model_config(config, language.tokenizer.vocab_size)
  mesh = assembly.mesh_to_play(config)
  params = weights.first_params(config, model, mesh)
  return _opened(config, language, model, mesh, params, 0)


def start(
  opened: tuple[Engine, Language, ml_collections.ConfigDict],
  *,
  name: str,
  host: str = '127.0.0.1',
  port: int = 8000,
) -> Gateway:
  """Makes the server of an opened policy, listening; `serve` answers.

  Raises:
    OSError: the address cannot be had.
  """
  engine, language, config = opened
  batcher = Batcher(engine)
  try:
    return Gateway(
      batcher,
      language.tokenizer,
      language.style,
      name=name,
      host=host,
      port=port,
      top_p=config.rollout.top_p,
      top_k=config.rollout.top_k,
    )
  except BaseException:
    batcher.close()
    raise


# What may differ from the config -> its fields.
_CHANGES = {
  'slots': ('sampler', 'slots'),
  'context': ('rollout', 'max_context'),
  'max_tokens': ('rollout', 'max_turn_tokens'),
  'rank': ('lora', 'rank'),
}


def _changed(config, changes):
  config = config.copy_and_resolve_references()
  with config.unlocked():
    for name, value in changes.items():
      section, field = _CHANGES[name]
      if value is not None:
        config[section][field] = value
    config.sampler.lanes = 1
    config.sampler.extend_steps = 1.0  # a client waits: begin at once
    config.sampler.extend_rows = min(
      config.sampler.extend_rows, config.sampler.slots
    )
    config.train.row_length = max(
      config.train.row_length, config.rollout.max_context
    )
  config_lib.validate(config)
  return config


def _opened(config, language, model, mesh: jax.sharding.Mesh, params, step):
  engine = assembly.engine(config, model, language, mesh)
  engine.publish(params, step)
  return engine, language, config
