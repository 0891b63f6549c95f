"""Which turns stood at the same state? Strings in, int32 ids out.

Keys come as lists: per group, per trajectory, per turn (None = no key). Ids are
unique over the batch, so that turns of two tasks never share one.
"""

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from agentrl_jax.rollout import likeness

Keys = Sequence[Sequence[Sequence[str | None]]]


def exact(keys: Keys, *, num_turns: int | None = None) -> np.ndarray:
  """Gives equal keys of one group the same id.

  Args:
    keys: per group, per trajectory, per turn.
    num_turns: S, default the longest trajectory.

  Returns:
    [B, S] int32, trajectories in order, -1 where there is no key.
  """
  return _number(keys, num_turns, lambda: {}.setdefault)


def similarity(
  keys: Keys, threshold: float, *, num_turns: int | None = None
) -> np.ndarray:
  """Gives similar keys of one group the same id, greedily, by difflib.

  A key joins the first cluster whose first member has a difflib ratio of at
  least `threshold` to it, in order of appearance (so the order matters). From
  200 characters on, difflib looks for no match at a character that is more than
  a hundredth of the text: two long texts must share rarer ones to be alike, and
  thousands of long texts that all differ a little take it seconds.

  Args:
    keys: per group, per trajectory, per turn.
    threshold: in (0, 1]; 1 is `exact`.
    num_turns: S, default the longest trajectory.

  Returns:
    [B, S] int32, -1 where there is no key.

  Raises:
    ValueError: a threshold out of its range.
  """
  return _alike(keys, threshold, num_turns, likeness.Blocks)


def subsequence(
  keys: Keys, threshold: float, *, num_turns: int | None = None
) -> np.ndarray:
  """Gives similar keys of one group the same id, greedily, by edits.

  As `similarity`, with 2 L / T for a ratio: L characters in a longest common
  subsequence, T in both keys. It is never below difflib's, does not depend on
  which text comes first, counts all characters alike at any length, and costs
  a fraction.

  Args:
    keys: per group, per trajectory, per turn.
    threshold: in (0, 1]; 1 is `exact`.
    num_turns: S, default the longest trajectory.

  Returns:
    [B, S] int32, -1 where there is no key.

  Raises:
    ValueError: a threshold out of its range.
  """
  return _alike(keys, threshold, num_turns, likeness.Clusters)


def turn_index(keys: Keys, *, num_turns: int | None = None) -> np.ndarray:
  """Placebo: the state is how many turns were taken."""
  return exact(
    [[[str(t) for t in range(len(row))] for row in group] for group in keys],
    num_turns=num_turns,
  )


def shuffled(
  keys: Keys,
  generator: np.random.Generator,
  *,
  num_turns: int | None = None,
) -> np.ndarray:
  """Placebo: the keys of a group dealt out to its turns at random."""
  dealt = []
  for group in keys:
    flat = [key for row in group for key in row]
    order = iter(generator.permutation(len(flat)))
    dealt.append([[flat[next(order)] for _ in row] for row in group])
  return exact(dealt, num_turns=num_turns)


def history(anchor_ids: np.ndarray, num_levels: int) -> np.ndarray:
  """Gives equal runs of the last l+1 anchors the same id, for HGPO.

  Args:
    anchor_ids: [B, S] int32, unique over groups, -1 = no anchor.
    num_levels: L >= 1.

  Returns:
    [B, S, L] int32; level 0 is `anchor_ids` renumbered, -1 where there are
    fewer than l+1 turns so far or one of them has no anchor.
  """
  out = np.full((*anchor_ids.shape, num_levels), -1, np.int32)
  for level in range(num_levels):
    ids: dict[Hashable, int] = {}
    for b, row in enumerate(anchor_ids.tolist()):
      for t in range(level, len(row)):
        window = tuple(row[t - level : t + 1])
        if min(window) >= 0:
          out[b, t, level] = ids.setdefault(window, len(ids))
  return out


def _alike(
  keys: Keys,
  threshold: float,
  num_turns: int | None,
  clusters: type[likeness.Clusters],
) -> np.ndarray:
  if not 0 < threshold <= 1:
    raise ValueError(f'threshold={threshold}: must be in (0, 1]')

  def new_group():
    found, ids = clusters(threshold), {}
    return lambda key, new_id: ids.setdefault(found.find(key), new_id)

  return _number(keys, num_turns, new_group)


def _number(
  keys: Keys,
  num_turns: int | None,
  new_group: Callable[[], Callable[[str, int], int]],
) -> np.ndarray:
  rows = [row for group in keys for row in group]
  width = max((len(row) for row in rows), default=0)
  num_turns = width if num_turns is None else num_turns
  if width > num_turns:
    raise ValueError(f'{width} turns do not fit num_turns={num_turns}')
  out = np.full((len(rows), num_turns), -1, np.int32)
  b = next_id = 0
  for group in keys:
    find = new_group()
    for row in group:
      for t, key in enumerate(row):
        if key is not None:
          out[b, t] = find(key, next_id)
          next_id = max(next_id, int(out[b, t]) + 1)
      b += 1
  return out
