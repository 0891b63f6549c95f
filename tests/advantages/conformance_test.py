"""Compares with what public reference implementations gave (tests/golden).

Where we differ on purpose the test says so, and docs/conformance.md why.
"""

import json
import pathlib

import advantage_oracles as oracles
import jax
import numpy as np
import pytest

from agentrl_jax import advantages

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden'
SHAPE = (16, 16)  # every case is padded to it, so that options compile once


def cases(name):
  return json.loads((GOLDEN / f'{name}.json').read_text())['cases']


def pack(case):
  """Rows of agent steps -> ([B, S] arrays, place of each row in them)."""
  rows, labels = case['rows'], case['expected'].get('anchor_cluster')
  if labels is not None:
    labels = dict(zip(case['expected']['row_order'], labels))
  names, states, places, trajectories = {}, {}, {}, {}
  for i, row in enumerate(rows):
    trajectories.setdefault((row['group'], row['traj']), []).append(i)
  t = dict(
    turn_rewards=np.zeros(SHAPE, np.float32),
    turn_mask=np.zeros(SHAPE, bool),
    group_ids=np.full(SHAPE[0], -1, np.int32),
    anchor_ids=np.full(SHAPE, -1, np.int32),
    turn_penalties=np.zeros(SHAPE, np.float32),
  )
  coefficient = case['params']['invalid_action_penalty_coef']
  for b, ((group, _), indices) in enumerate(trajectories.items()):
    t['group_ids'][b] = names.setdefault(group, len(names))
    for s, i in enumerate(sorted(indices, key=lambda i: rows[i]['t'])):
      state = states.setdefault(rows[i]['anchor'], len(states))
      t['turn_rewards'][b, s] = rows[i]['reward']
      t['turn_mask'][b, s] = True
      t['anchor_ids'][b, s] = state if labels is None else labels[i]
      t['turn_penalties'][b, s] = coefficient * (1 - rows[i]['valid'])
      places[i] = b, s
  return t, places


_gigpo = jax.jit(
  advantages.gigpo,
  static_argnames=('scale', 'episode_stats', 'singleton'),
)
_hgpo = jax.jit(
  advantages.hgpo,
  static_argnames=('scale', 'episode_stats', 'skip_zeros', 'base_place'),
)


def scale_of(case):
  return 'std' if case['params']['mode'] == 'mean_std_norm' else 'none'


def close(case, got, want):
  atol, rtol = (1e-4, 0) if scale_of(case) == 'std' else (2e-5, 1e-5)
  np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


def gigpo(case, stats, episode_weight=1.0):
  t, places = pack(case)
  params = case['params']
  weight = params['step_advantage_w'] if episode_weight else 1.0
  out = _gigpo(
    **t,
    gamma=params['gamma'],
    anchor_weight=weight,
    episode_weight=episode_weight,
    scale=scale_of(case),
    epsilon=params['epsilon'],
    episode_stats=stats,
    singleton='raw',
  )
  out = np.asarray(out)
  return np.array([out[places[i]] for i in case['expected']['row_order']])


def is_doubled(case):
  order = case['expected']['row_order']
  return len(set(order)) < len(order)


@pytest.mark.parametrize('case', cases('gigpo'), ids=lambda c: c['id'])
def test_gigpo(case):
  want = case['expected']
  if is_doubled(case):
    pytest.skip('rows counted twice: see test_doubled_rows')
  close(case, gigpo(case, 'turns'), want['adv'])
  close(case, gigpo(case, 'turns', episode_weight=0.0), want['step_adv'])
  if case['params']['invalid_action_penalty_coef'] == 0:
    close(case, gigpo(case, 'trajectories'), want['adv_paper'])


def test_trajectory_statistics_ignore_penalties():
  """There, the first row's penalty enters the statistics; here none does."""
  seen = 0
  for case in cases('gigpo'):
    coefficient = case['params']['invalid_action_penalty_coef']
    if coefficient and scale_of(case) == 'none':
      gap = gigpo(case, 'trajectories') - np.array(
        case['expected']['adv_paper']
      )
      assert 0 < np.abs(gap).max() <= coefficient + 1e-5
      seen += 1
  assert seen


def test_doubled_rows():
  """A batch padded with copies of rows: reproduced, but only by asking."""
  for case in filter(is_doubled, cases('gigpo')):
    t, places = pack(case)
    want, order = case['expected'], case['expected']['row_order']
    b, s = np.array([places[i] for i in order]).T
    mask = np.ones(len(order), bool)
    returns = np.array(want['step_reward_after_penalty'], np.float32)
    scores = np.array(want['episode_score_after_penalty'], np.float32)
    keys = t['group_ids'][b] * 1000 + t['anchor_ids'][b, s]
    options = dict(scale=scale_of(case), epsilon=case['params']['epsilon'])
    step = advantages.group_center(returns, keys, mask, **options)
    close(case, step, want['step_adv'])
    episode = advantages.group_center(
      scores, t['group_ids'][b], mask, singleton='raw', **options
    )
    close(case, episode, want['episode_adv_cross_steps'])
    assert np.abs(gigpo(case, 'turns') - np.array(want['adv'])).max() > 0.1


@pytest.mark.parametrize('case', cases('hgpo'), ids=lambda c: c['id'])
def test_hgpo(case):
  params = case['params']
  t, places = pack(case)
  num_levels = params['history_length'] + 1
  t['history_ids'] = oracles.history(t.pop('anchor_ids'), num_levels)
  out = _hgpo(
    **t,
    level_weights=advantages.hgpo_level_weights(
      num_levels, alpha=params['length_weight_alpha'], offset=2
    ),
    base_weight=float(params['base_group']),
    base_place='averaged',
    episode_stats='turns',
    gamma=params['gamma'],
    scale=scale_of(case),
    epsilon=params['epsilon'],
    skip_zeros=True,
  )
  out = np.asarray(out)
  got = [out[places[i]] for i in range(len(places))]
  close(case, got, case['expected']['adv'])


def test_float32_residue():
  """Groups of one value: up to 0.65 there, exactly 0 here."""
  f = jax.jit(lambda v, m: advantages.grpo(v, np.zeros(64, np.int32), m))
  worst = 0.0
  for case in cases('float32_residue_informational'):
    mask = np.arange(64) < case['n']
    assert not np.any(f(np.full(64, case['value'], np.float32), mask))
    residue = case['expected']['reference_float32_mean_std_norm']
    worst = max(worst, abs(residue))
  assert worst > 0.5


def test_dynamic_sampling():
  """A group is kept iff its outcomes differ."""
  for case in cases('dynamic_sampling'):
    groups = case['group_rewards']
    values = np.array(sum(groups, []), np.float32)
    ids = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    out = advantages.grpo(values, ids.astype(np.int32), np.ones(len(ids), bool))
    kept = sorted(set(ids[np.asarray(out) != 0].tolist()))
    assert kept == case['expected']['kept_groups'], case['id']
