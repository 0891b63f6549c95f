"""How good is a finished run's policy? Plays a fixed panel with its weights."""

import dataclasses
from typing import Any

from agentrl_jax import assembly, weights
from agentrl_jax import config as config_lib
from agentrl_jax.rollout import evaluation, store
from agentrl_jax.rollout.episode import Language
from agentrl_jax.text import tokenizer as tokenizer_lib

# What training calls a panel: the same name, the same sampling keys.
_NAMES = {'validation': 'eval'}


@dataclasses.dataclass(frozen=True)
class Request:
  """What to play.

  Attributes:
    split: panel, 'train', 'validation' or 'test'.
    tasks: how many of its first tasks; 0 = all.
    modes: of `evaluation.evaluate`: '' (sampled), '_greedy'.
    which: checkpoint: 'last', 'best' (by validation) or an iteration.
    seed: of the sampled episodes; None = the run's.
  """

  split: str = 'test'
  tasks: int = 0
  modes: tuple[str, ...] = ('', '_greedy')
  which: str = 'last'
  seed: int | None = None


def run(directory: str, request: Request, should_stop: Any) -> dict[str, Any]:
  """Plays the panel; writes the trajectories into the run's directory.

  Args:
    directory: of the run; nothing else in it changes.
    request: what to play.
    should_stop: as in `rollout.loop.Collector`.

  Returns:
    Metrics as the run's own row has them (`eval/` for validation), with
    `step`, `tasks` and `seed`.

  Raises:
    ValueError: no run there, no such checkpoint, unknown split.
    loop.Interrupted: `should_stop` said so.
  """
  config = config_lib.of_run(directory)
  tokenizer = tokenizer_lib.load(f'{directory}/tokenizer')
  language = Language(tokenizer, config.text.style, assembly.memory(config))
  model = assembly.model_config(config, tokenizer.vocab_size)
  mesh = assembly.mesh_to_play(config)
  step, params = weights.chosen(directory, request.which, model, mesh)
  panel = assembly.tasks(config, request.split)
  count = min(request.tasks or len(panel), len(panel))
  engine = assembly.engine(config, model, language, mesh)
  engine.publish(params, step)
  collector = assembly.collector(config, engine, language, should_stop)
  seed = config.seed if request.seed is None else request.seed
  name = _NAMES.get(request.split, request.split)
  try:
    metrics, played = evaluation.evaluate(
      collector,
      [panel[i] for i in range(count)],
      seed=seed,
      name=name,
      modes=request.modes,
    )
  finally:
    collector.close()
  store.write(directory, step, played, kind=name)
  return {'step': step, 'tasks': count, 'seed': seed, **metrics}
