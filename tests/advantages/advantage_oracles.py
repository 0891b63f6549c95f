"""Slow and plain: every estimator again, in float64, by loops over lists."""

import numpy as np

B, S, L = 8, 6, 3
FLOOR = 1e-5


def random_turns(seed):
  """One padded batch [8, 6]: ragged, loops, singletons, -1 beside the last id.

  Returns are small multiples of 1/4 or constants, so that no group sits at the
  edge of the constant test; about a third of the groups are constant.
  """
  rng = np.random.default_rng(seed)
  num_groups = rng.integers(1, 5)
  group_ids = rng.integers(-1, num_groups, B)
  group_ids[rng.integers(B)] = B - 1  # a singleton with the last id
  lengths = rng.integers(0, S + 1, B)
  mask = np.arange(S) < lengths[:, None]
  if seed % 3 == 0:  # holes, as when a turn is not trainable
    mask &= rng.random((B, S)) < 0.8
  rewards = rng.integers(-2, 5, (B, S)) / 4.0
  if seed % 2:  # terminal rewards only, equal within some groups
    rewards[:] = 0
    rewards[np.arange(B), np.maximum(lengths - 1, 0)] = rng.integers(0, 2, B)
  if seed % 5 == 0:
    rewards[group_ids == 0] = 10 * 0.95 ** rng.integers(20)
  num_anchors = rng.integers(1, 8)
  anchor_ids = rng.integers(-1, num_anchors, (B, S))
  anchor_ids[rng.random((B, S)) < 0.1] = B * S - 1
  action_ids = rng.integers(-1, 3, (B, S))
  penalties = np.where(rng.random((B, S)) < 0.2, 0.125, 0.0)
  garbage = np.float32('nan') if seed % 4 == 0 else 7.0
  return dict(
    turn_rewards=np.where(mask, rewards, garbage).astype(np.float32),
    turn_mask=mask,
    group_ids=group_ids.astype(np.int32),
    anchor_ids=np.where(mask, anchor_ids, -1).astype(np.int32),
    history_ids=history(np.where(mask, anchor_ids, -1), L),
    turn_penalties=np.where(mask, penalties, 0).astype(np.float32),
    action_ids=np.where(mask, action_ids, -1).astype(np.int32),
  )


def history(anchor_ids, num_levels):
  """Numbers runs of the last j+1 anchors of a padded row."""
  num_rows, num_turns = anchor_ids.shape
  ids = np.full((num_rows, num_turns, num_levels), -1, np.int32)
  seen = {}
  for b in range(num_rows):
    for s in range(num_turns):
      for j in range(min(s + 1, num_levels)):
        run = tuple(anchor_ids[b, s - j : s + 1].tolist())
        if min(run) >= 0:
          ids[b, s, j] = seen.setdefault(run, len(seen))
  return ids


def members(keys):
  """Yields the indices of each group of equal keys; None is in no group."""
  groups = {}
  for i, key in enumerate(keys):
    if key is not None:
      groups.setdefault(key, []).append(i)
  return groups.values()


def center(values, keys, scale='none', ddof=1, eps=1e-6, raw=False):
  out = np.zeros(len(values))
  for group in members(keys):
    v = np.array([values[i] for i in group], np.float64)
    if len(v) == 1:
      out[group] = v if raw else 0
      continue
    std = v.std(ddof=min(ddof, len(v) - 1))
    if std > FLOOR * np.abs(v).max():
      out[group] = (v - v.mean()) / (std + eps if scale == 'std' else 1)
  return out


def leave_trajectory_out(values, keys, owners, scale, ddof=1, eps=1e-6):
  out = np.zeros(len(values))
  for group in members(keys):
    v = np.array([values[i] for i in group], np.float64)
    if len(v) < 2:
      continue
    std = v.std(ddof=ddof)
    if std <= FLOOR * np.abs(v).max():
      continue
    for i in group:
      others = [values[k] for k in group if owners[k] != owners[i]]
      if others:
        out[i] = values[i] - np.mean(others)
        out[i] /= std + eps if scale == 'std' else 1
  return out


def discounted(rewards, mask, gamma):
  out = np.zeros(rewards.shape)
  for b in range(len(rewards)):
    later = 0.0
    for s in reversed(range(rewards.shape[1])):
      if mask[b, s]:
        later = float(rewards[b, s]) + gamma * later
        out[b, s] = later
  return out


def gae(rewards, values, mask, gamma, lam, bootstrap):
  out = np.zeros(rewards.shape)
  for b in range(len(rewards)):
    later_value, later = float(bootstrap[b]), 0.0
    for s in reversed(range(rewards.shape[1])):
      if mask[b, s]:
        value = float(values[b, s])
        delta = float(rewards[b, s]) + gamma * later_value - value
        later = delta + gamma * lam * later
        later_value, out[b, s] = value, later
  return out


def vineppo(rewards, continuations, mask, gamma):
  """Differences of means from one state with a mean to the next."""
  out = np.zeros(rewards.shape)
  for b in range(len(rewards)):
    turns = np.flatnonzero(mask[b])
    seen = {s: continuations[b, s].astype(np.float64) for s in turns}
    seen = {s: x[~np.isnan(x)] for s, x in seen.items()}
    known = [k for k, s in enumerate(turns) if seen[s].size]
    for k, end in zip(known, [*known[1:], len(turns)]):
      earned = [
        gamma**i * float(rewards[b, s]) for i, s in enumerate(turns[k:end])
      ]
      after = seen[turns[end]].mean() if end < len(turns) else 0.0
      value = sum(earned) + gamma ** (end - k) * after - seen[turns[k]].mean()
      out[b, turns[k:end]] = value
  return out


def outcomes(t):
  return np.where(t['turn_mask'], t['turn_rewards'], 0).astype(float).sum(-1)


def trajectory_keys(t):
  real = t['turn_mask'].any(-1)
  return [
    int(g) if g >= 0 and r else None for g, r in zip(t['group_ids'], real)
  ]


def turn_keys(t, ids=None):
  """(group, id) of each turn, flat; None where it is in no group."""
  if ids is None:
    ids = np.zeros(t['turn_mask'].shape, int)
  return [
    (int(t['group_ids'][b]), int(ids[b, s]))
    if t['turn_mask'][b, s] and t['group_ids'][b] >= 0 and ids[b, s] >= 0
    else None
    for b in range(ids.shape[0])
    for s in range(ids.shape[1])
  ]


def episode_part(t, scale, stats='trajectories', ddof=1, raw=False):
  mask, penalties = t['turn_mask'], t['turn_penalties'].astype(float)
  total = outcomes(t)
  if stats == 'turns':
    scores = (total[:, None] - penalties).ravel()
    return center(scores, turn_keys(t), scale, ddof, raw=raw).reshape(
      mask.shape
    )
  out = np.zeros(mask.shape)
  for group in members(trajectory_keys(t)):
    v = total[group]
    std = v.std(ddof=ddof) if len(v) > 1 else 0
    for b in group:
      if len(v) == 1:
        out[b] = total[b] - penalties[b] if raw else 0
      elif std > FLOOR * np.abs(v).max():
        out[b] = total[b] - penalties[b] - v.mean()
        out[b] /= std + 1e-6 if scale == 'std' else 1
  return np.where(mask, out, 0)


def turn_returns(t, gamma):
  returns = discounted(t['turn_rewards'], t['turn_mask'], gamma)
  return returns - np.where(t['turn_mask'], t['turn_penalties'], 0)


def gigpo(t, gamma, weight, scale, stats, baseline, raw, ddof=1):
  q = turn_returns(t, gamma).ravel()
  keys = turn_keys(t, t['anchor_ids'])
  if baseline == 'group':
    anchor = center(q, keys, scale, ddof)
  else:
    owners = np.repeat(np.arange(B), S)
    anchor = leave_trajectory_out(q, keys, owners, scale, ddof)
  shape = t['turn_mask'].shape
  return episode_part(t, scale, stats, ddof, raw) + weight * anchor.reshape(
    shape
  )


def hgpo(t, weights, base_weight, gamma, scale, averaged=False, skip=False):
  """`averaged`: the base is one more level; `skip`: zeros are no level."""
  q = turn_returns(t, gamma).ravel()
  total, norm = np.zeros(B * S), np.zeros(B * S)

  def add(i, weight, advantage):
    if not (skip and advantage == 0):
      total[i] += weight * advantage
      norm[i] += weight

  for j, w in enumerate(weights):
    keys = turn_keys(t, t['history_ids'][..., j])
    advantages = center(q, keys, scale, ddof=0)
    for group in members(keys):
      for i in group:
        if len(group) > 1:
          add(i, w, advantages[i])
  base = episode_part(t, scale)
  if averaged:
    for i in np.flatnonzero(t['turn_mask']):
      add(i, base_weight, base.ravel()[i])
  mean = np.divide(total, norm, out=np.zeros(B * S), where=norm > 0)
  return (0 if averaged else base_weight * base) + mean.reshape(B, S)


def distances(t, success):
  """Breadth-first search from the goal, one task at a time."""
  mask, ids = t['turn_mask'], t['anchor_ids']
  out = np.zeros(mask.shape)
  for g in set(t['group_ids'].tolist()):
    rows = [b for b in range(B) if t['group_ids'][b] == g]
    edges = []
    for b in rows:
      turns = [s for s in range(S) if mask[b, s]]
      for s, after in zip(turns, turns[1:] + [None]):
        if after is not None:
          head = int(ids[b, after]) if ids[b, after] >= 0 and g >= 0 else None
        else:
          head = 'goal' if success[b] else None
        tail = int(ids[b, s]) if ids[b, s] >= 0 and g >= 0 else None
        edges.append((b, s, tail, head))
    dist = {'goal': 0}
    frontier = ['goal']
    while frontier:
      found = {e[2] for e in edges if e[3] in frontier} - {None} - dist.keys()
      step = dist[frontier[0]] + 1
      dist |= dict.fromkeys(found, step)
      frontier = list(found)
    unreachable = max(dist.values()) + 1
    for b, s, _, head in edges:
      out[b, s] = dist.get(head, unreachable)
  return out


def graphgpo(t, gamma, goal, weight, scale):
  q = goal * gamma ** distances(t, outcomes(t) > 0)
  q = (q - np.where(t['turn_mask'], t['turn_penalties'], 0)).ravel()
  anchor = center(q, turn_keys(t, t['anchor_ids']), scale).reshape(B, S)
  return episode_part(t, scale) + weight * anchor


def actions(t, q, kappa, scale):
  out = np.zeros(B * S)
  acted = [
    None if key is None or a < 0 else (*key, int(a))
    for key, a in zip(turn_keys(t, t['anchor_ids']), t['action_ids'].ravel())
  ]
  for group in members([k and k[:2] for k in acted]):
    v = np.array([q[i] for i in group], np.float64)
    std = v.std(ddof=1) if len(v) > 1 else 0
    if std <= FLOOR * np.abs(v).max():
      continue
    means = {
      a: np.mean([q[i] for i in group if acted[i] == a])
      for a in map(acted.__getitem__, group)
    }
    within = sum((q[i] - means[acted[i]]) ** 2 for i in group)
    between = sum((means[acted[i]] - v.mean()) ** 2 for i in group)
    for i in group:
      n = sum(acted[k] == acted[i] for k in group)
      out[i] = between / (between + within) * n / (n + kappa)
      out[i] *= means[acted[i]] - v.mean()
      out[i] /= std + 1e-6 if scale == 'std' else 1
  return out.reshape(B, S)
