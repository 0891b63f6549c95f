"""What did each turn earn? Parts that are logged apart and added by weight.

A part that fails is never a zero: either the episode ends as an infrastructure
failure, which is counted and left out of group statistics, or the part is
dropped for the whole group (`parts.Failure` says which).
"""

import concurrent.futures
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from agentrl_jax import types
from agentrl_jax.rewards.parts import Failure, Judged, Row, lift

_THREADS = 16  # groups that wait for judges at the same time


def score(
  group: types.Group,
  parts: Mapping[str, Callable],
  weights: Mapping[str, float],
) -> types.Group:
  """Fills in `rewards` of a group: each part, and `total`, their weighted sum.

  Args:
    group: finished trajectories of one task. Only those that ended in no
      infrastructure failure and have a turn are shown to the parts.
    parts: by name: functions of a trajectory, or marked `over_group`.
    weights: of the parts.

  Returns:
    The group with everything else as it was. Trajectories that failed have
    `info['reward_error']`; those that lost a part, `info['dropped_rewards']`.
  """
  places = [
    i
    for i, t in enumerate(group.trajectories)
    if t.stop_reason.trainable and t.turns
  ]
  shown = dataclasses.replace(
    group, trajectories=tuple(group.trajectories[i] for i in places)
  )
  table = {name: rows(part, shown) for name, part in parts.items()}
  dropped = _dropped(table)
  scored = list(group.trajectories)
  for row, place in enumerate(places):
    found = {name: table[name][row] for name in table if name not in dropped}
    scored[place] = _with_rows(scored[place], found, dropped)
  return dataclasses.replace(
    group, trajectories=tuple(_with_total(t, weights) for t in scored)
  )


def score_groups(
  groups: Sequence[types.Group],
  parts: Mapping[str, Callable],
  weights: Mapping[str, float],
) -> list[types.Group]:
  """Scores groups in order; where a part waits for a judge, side by side."""
  if not any(getattr(part, 'waits', False) for part in parts.values()):
    return [score(group, parts, weights) for group in groups]
  with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
    return list(pool.map(lambda group: score(group, parts, weights), groups))


def turn_rewards(
  trajectory: types.Trajectory, weights: Mapping[str, float]
) -> list[float]:
  """Adds the parts of a scored trajectory: r_t = Σ_p w_p r_{p,t}.

  Args:
    trajectory: scored. An infrastructure failure gives zeros, which nobody may
      learn from (`stop_reason.trainable` is False).
    weights: of each part; one that was dropped is passed over.

  Returns:
    One number a turn.

  Raises:
    ValueError: a part was neither scored nor dropped.
  """
  total = [0.0] * len(trajectory.turns)
  if not (trajectory.stop_reason.trainable and trajectory.turns):
    return total
  for name, weight in weights.items():
    if name in trajectory.info.get('dropped_rewards', ()):
      continue
    if name not in trajectory.rewards:
      raise ValueError(
        f'reward {name!r} was not scored; scored: {sorted(trajectory.rewards)}'
      )
    for turn, value in enumerate(trajectory.rewards[name]):
      total[turn] += weight * value
  return total


def rows(part: Callable, group: types.Group) -> list[Row]:
  """Asks a part; whatever it does wrong becomes a `Failure`.

  Returns:
    One row a trajectory: `Judged` with one finite float a turn, or `Failure`.
  """
  size = len(group.trajectories)
  if not size:
    return []
  try:
    given = list(lift(part)(group))
  except Exception as error:  # noqa: BLE001 (a verifier's fault is data)
    return [Failure(f'{type(error).__name__}: {error}')] * size
  if len(given) != size:
    return [Failure(f'{len(given)} rows for {size} trajectories')] * size
  return [
    row if isinstance(row, Failure) else _checked(row, len(trajectory.turns))
    for row, trajectory in zip(given, group.trajectories)
  ]


def _checked(row: Row, num_turns: int) -> Row:
  notes = row.notes if isinstance(row, Judged) else {}
  try:
    given = row.values if isinstance(row, Judged) else row
    values = tuple(float(value) for value in given)
  except (TypeError, ValueError) as error:
    return Failure(f'{type(error).__name__}: {error}')
  if len(values) != num_turns:
    return Failure(f'{len(values)} values for {num_turns} turns')
  if not all(map(math.isfinite, values)):
    return Failure(f'not finite: {values}')
  return Judged(values, notes)


def _dropped(table: Mapping[str, Sequence[Row]]) -> dict[str, str]:
  """Parts that are missing for a member, so for the group; why."""
  out = {}
  for name, given in table.items():
    for row in given:
      if isinstance(row, Failure) and row.stop is None:
        out.setdefault(name, row.reason)
  return out


def _with_rows(trajectory, found, dropped) -> types.Trajectory:
  """Writes the rows of one trajectory, or what failed."""
  info = dict(trajectory.info)
  failures = {n: row for n, row in found.items() if isinstance(row, Failure)}
  stop = trajectory.stop_reason
  if failures:
    name, failure = next(iter(failures.items()))
    stop, info['reward_error'] = failure.stop, f'{name}: {failure.reason}'
  elif dropped and not found:
    name, reason = next(iter(dropped.items()))
    stop = types.StopReason.REWARD_ERROR
    info['reward_error'] = f'no part is left; {name}: {reason}'
  if dropped:
    info['dropped_rewards'] = dropped
  good = {n: row for n, row in found.items() if n not in failures}
  info |= {name: dict(row.notes) for name, row in good.items() if row.notes}
  rewards = {name: row.values for name, row in good.items()}
  return dataclasses.replace(
    trajectory, rewards=rewards, stop_reason=stop, info=info
  )


def _with_total(trajectory, weights) -> types.Trajectory:
  found = trajectory.rewards
  if not trajectory.turns:  # nothing to judge is no failure
    found = dict.fromkeys(weights, ())
  total = tuple(turn_rewards(trajectory, weights))
  return dataclasses.replace(trajectory, rewards={**found, 'total': total})
