"""How good is the policy on tasks that it was not trained on?"""

from collections.abc import Sequence

from agentrl_jax import types
from agentrl_jax.rollout import loop, measures

# Drawn at temperature 1, and greedily: purpose of the keys, temperature.
_MODES = {'': 1.0, '_greedy': 0.0}


def evaluate(
  collector: loop.Collector,
  tasks: Sequence[types.Task],
  *,
  seed: int,
  name: str = 'eval',
  iteration: int = 0,
  modes: Sequence[str] = tuple(_MODES),
) -> tuple[dict[str, float], list[types.Trajectory]]:
  """Plays every task once sampled at temperature 1 and once greedily.

  Args:
    collector: with the weights to judge published.
    tasks: a fixed panel.
    seed: of the run.
    name: prefix of the metrics, 'eval' or 'test'.
    iteration: enters the sampling keys of the sampled episodes.
    modes: '' (sampled), '_greedy'.

  Returns:
    Metrics (`NAME/success`, `NAME/success_greedy`, `NAME/interval`, ...) and
    the sampled trajectories (greedy ones if nothing was sampled).
  """
  entries = [loop.Entry(task, 0) for task in tasks]
  metrics, shown = {}, []
  for mode in modes:
    draws = loop.Draws(seed, name + mode, iteration, _MODES[mode])
    played = collector.collect(entries, draws)
    shown = shown or played
    numbers = measures.summarize(played, name)
    kept = [key for key in numbers if key.startswith(f'{name}/success')]
    for key in ('turns', 'invalid_turns', 'grounded_arguments'):
      kept.append(f'{name}/{key}')
    metrics |= {key + mode: numbers[key] for key in kept}
    if not mode:
      success = numbers[f'{name}/success']
      metrics[f'{name}/interval'] = measures.interval(success, len(tasks))
  return metrics, shown
