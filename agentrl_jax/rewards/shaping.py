"""How can a reward come earlier and leave the best policy where it was?

F_t = γ Φ(s_{t+1}) - Φ(s_t), with Φ = 0 after the last turn. The discounted sum
over an episode is -Φ(s_0) whatever was done (Ng, Harada & Russell 1999; Grzes
2017 for the end of an episode), so no optimal policy changes.

The same sum says what shaping cannot do: members of a group share s_0 and
turns of an anchor group share s_t, so returns centred within either are what
they were without it, if γ is the estimator's. It moves advantages where the
baseline is a mean over other states, and where γ differs.
"""

import re
from collections.abc import Callable, Sequence

from agentrl_jax import tables, types

Potential = Callable[[types.Task, str], float]


def flight_progress(task: types.Task, key: str) -> float:
  """Share of a flight task's legs that are ordered and were not sold out."""
  found = re.search(r'^orders (.*)$', key, re.M)
  if found is None:
    raise ValueError(f'no line of orders in the state {key!r:.80}')
  return found.group(1).split().count('placed') / len(task.data['legs'])


def grid_nearness(task: types.Task, key: str) -> float:
  """1 - Manhattan distance from @ to G, in sides of the grid, at most 1."""
  del task
  cells = {
    letter: (i, j)
    for i, row in enumerate(key.splitlines())
    for j, letter in enumerate(row.split())
    if letter in ('@', 'G')
  }
  if len(cells) < 2:
    return 1.0 if '@' in cells else 0.0  # G is covered where @ stands on it
  (i, j), (k, m) = cells['@'], cells['G']
  return 1 - (abs(i - k) + abs(j - m)) / (2 * len(key.splitlines()[0].split()))


POTENTIALS: dict[str, Potential] = {
  'flight_progress': flight_progress,
  'grid_nearness': grid_nearness,
}


def differences(potentials: Sequence[float], gamma: float) -> list[float]:
  """F_t = γ Φ_{t+1} - Φ_t.

  Args:
    potentials: [S], Φ of the state before each turn; after the last it is 0.
    gamma: discount a turn, [0, 1].

  Returns:
    [S]; Σ_t γ^t F_t = -Φ_0.
  """
  after = [*potentials[1:], 0.0]
  return [gamma * then - now for now, then in zip(potentials, after)]


def shaping(
  trajectory: types.Trajectory, *, potential: str, gamma: float
) -> list[float]:
  """Potential-based shaping on the states that the anchors are made of.

  Args:
    trajectory: of an environment with state keys.
    potential: a name in `POTENTIALS`, or 'package.module:name' of a function
      (task, state key) -> number. What it knows need not be known to the agent.
    gamma: must be the estimator's: 1 where returns are not discounted.

  Raises:
    ValueError: unknown potential, γ out of range, no state key.
  """
  phi = tables.resolve(POTENTIALS, potential)
  if not 0 <= gamma <= 1:
    raise ValueError(f'gamma={gamma}: give 0 to 1')
  values = []
  for s, turn in enumerate(trajectory.turns):
    if turn.state_key is None:
      raise ValueError(
        f'turn {s} has no state key: {trajectory.task.env} cannot be shaped'
      )
    values.append(float(phi(trajectory.task, turn.state_key)))
  return differences(values, gamma)
