"""What would have come, had the policy drawn otherwise?

Some estimators compare a trajectory with others that are played for nothing
else: the greedy one of its task (ReMax), or continuations from the states that
it went through (VinePPO). Nobody learns from these.

A continuation begins with a snapshot of the world and the very tokens that the
policy had seen. The world's own noise goes on as its snapshot says: where there
is any, a value knows what comes.
"""

from collections.abc import Callable, Mapping, Sequence

import ml_collections
import numpy as np

from agentrl_jax import rng, types
from agentrl_jax.rollout import loop, selection

Score = Callable[[Sequence[types.Group]], Sequence[types.Group]]


class States:
  """The states that the trajectories of an iteration went through."""

  def __init__(self):
    self._starts: dict[tuple[str, int], list[loop.Start]] = {}

  def __call__(self, entry: loop.Entry, start: loop.Start) -> None:
    """Keeps one more; see `Collector.collect`."""
    self._starts.setdefault((entry.task.name, entry.sample), []).append(start)

  def of(self, trajectory: types.Trajectory) -> list[loop.Start]:
    """Returns the state before each turn."""
    return self._starts[trajectory.task.name, trajectory.sample]

  def clear(self) -> None:
    """Forgets all."""
    self._starts.clear()


def explore(
  groups: Sequence[types.Group],
  states: States,
  collector: loop.Collector,
  score: Score,
  c: ml_collections.ConfigDict,
  iteration: int,
) -> dict[str, np.ndarray]:
  """Plays what the estimator of `c.advantage` wants to know besides.

  Args:
    groups: scored, of the iteration.
    states: of their trajectories, where the estimator goes on from them.
    collector: with the weights that played the groups.
    score: fills in rewards, as it did for the groups.
    c: of the run.
    iteration: enters the sampling keys.

  Returns:
    Keyword arguments of the estimator; {} for most.
  """
  if c.advantage.estimator == 'remax':
    returns = greedy_returns(groups, collector, score, c, iteration)
    return {'greedy_returns': returns}
  if c.advantage.estimator == 'vineppo':
    returns = continuation_returns(
      groups, states, collector, score, c, iteration
    )
    return {'continuation_returns': returns}
  return {}


def greedy_returns(
  groups: Sequence[types.Group],
  collector: loop.Collector,
  score: Score,
  c: ml_collections.ConfigDict,
  iteration: int,
) -> np.ndarray:
  """Plays each task once greedily.

  Args:
    groups, collector, score, c, iteration: as of `explore`.

  Returns:
    [B] float32, the return of the greedy episode of the trajectory's task, NaN
    where it failed.
  """
  tasks = {group.task.name: group.task for group in groups}
  played = collector.collect(
    [loop.Entry(task, 0) for task in tasks.values()],
    loop.Draws(c.seed, 'greedy', iteration, 0.0),
  )
  alone = [types.Group(t.task, (t,)) for t in played]
  found = {
    group.task.name: _return(group.trajectories[0], 0, 1.0, 0.0)
    for group in score(alone)
  }
  returns = [found[g.task.name] for g in groups for _ in g.trajectories]
  return np.array(returns, np.float32)


def continuation_returns(
  groups: Sequence[types.Group],
  states: States,
  collector: loop.Collector,
  score: Score,
  c: ml_collections.ConfigDict,
  iteration: int,
) -> np.ndarray:
  """Plays on from states of the trajectories that are trained on.

  `c.advantage.continuations` (K) times each, from all states of a trajectory or
  from `c.advantage.valued_turns` of them: the first, and others at random.

  Args:
    groups, states, collector, score, c, iteration: as of `explore`.

  Returns:
    [B, S, K] float32, what was earned from the state on, discounted and less
    penalties as in the estimator; NaN where nothing was played, or it failed.
  """
  flat = [t for group in groups for t in group.trajectories]
  size, count = c.rollout.max_turns, c.advantage.continuations
  out = np.full((len(flat), size, count), np.nan, np.float32)
  draw = rng.generator(c.seed, 'valued turns', iteration)
  places, entries = [], []
  for b in selection.usable(groups, c.train.constant_groups, c.train.overlong):
    trajectory = flat[b]
    starts = states.of(trajectory)
    chosen = _choose(len(trajectory.turns), c.advantage.valued_turns, draw)
    places += [(b, s) for s in chosen]
    entries += [
      loop.Entry(trajectory.task, trajectory.sample * size + s, k, starts[s])
      for s in chosen
      for k in range(count)
    ]
  played = collector.collect(
    entries, loop.Draws(c.seed, 'vine', iteration, c.rollout.temperature)
  )
  branches = [
    types.Group(flat[b].task, tuple(played[n * count : (n + 1) * count]))
    for n, (b, _) in enumerate(places)
  ]
  gamma = c.advantage.options.get('gamma', 1.0)
  for (b, s), branch in zip(places, score(branches), strict=True):
    out[b, s] = [
      _return(t, s, gamma, c.advantage.invalid_penalty)
      for t in branch.trajectories
    ]
  return out


def measures(
  groups: Sequence[types.Group], extra: Mapping[str, np.ndarray]
) -> dict[str, float]:
  """What was played for comparison: how many episodes, and their return.

  Args:
    groups, extra: given to `explore`, and what it returned.
  """
  out = {}
  for name, returns in extra.items():
    if name == 'greedy_returns':  # told to each trajectory, played by task
      names = [g.task.name for g in groups for _ in g.trajectories]
      returns = returns[np.unique(names, return_index=True)[1]]
    known = returns[~np.isnan(returns)]
    out['counterfactual/episodes'] = float(known.size)
    out['counterfactual/return'] = (
      float(known.mean()) if known.size else float('nan')
    )
  return out


def _choose(num_turns: int, count: int, draw: np.random.Generator) -> list[int]:
  """Returns the first turn and others at random, ascending; 0 = all."""
  if not count or count >= num_turns:
    return list(range(num_turns))
  others = draw.choice(np.arange(1, num_turns), count - 1, replace=False)
  return [0, *sorted(others.tolist())]


def _return(
  trajectory: types.Trajectory, first: int, gamma: float, penalty: float
) -> float:
  """What a scored trajectory earned from a turn on; NaN if it failed."""
  if not trajectory.stop_reason.trainable:
    return np.nan
  total = 0.0
  turns = zip(trajectory.turns, trajectory.rewards['total'], strict=True)
  for turn, reward in reversed(list(turns)[first:]):
    lost = 0.0 if turn.info.get('valid', True) else penalty
    total = reward - lost + gamma * total
  return total
