"""What did an iteration's updates do? Plain numbers for the metrics row."""

from collections.abc import Mapping, Sequence

import numpy as np

from agentrl_jax.learner.objective import NUM_AGES, Metrics


def update_metrics(
  measured: Sequence[Metrics], infos: Sequence[Mapping]
) -> dict[str, float]:
  """Averages over the iteration's tokens.

  Args:
    measured: metrics of each optimizer update, on the host.
    infos: as `step.apply` gives them.

  Returns:
    `group/name` -> number; {} after an iteration without an update.
  """
  if not measured:
    return {}
  sums = {k: sum(float(m.sums[k]) for m in measured) for k in measured[0].sums}
  first, tokens = measured[0], max(sums['tokens'], 1.0)
  count = len(measured)
  row = {
    'loss/policy': sums['policy'] / count,
    'loss/policy_first': float(first.sums['policy']),
    'loss/kl': sums['kl'] / count,
    'loss/total': sums['loss'] / count,
    'loss/weight': sums['weight'] / count,
    'policy/entropy': sums['entropy'] / tokens,
    'policy/ratio_mean': sums['ratio'] / tokens,
    # (Σr)² / (N Σr²): 1 while the policy is the one that sampled.
    'policy/ess': sums['ratio'] ** 2 / max(tokens * sums['ratio_square'], 1e-9),
    'policy/clip_fraction': sums['clipped'] / tokens,
    'train/grad_norm': float(np.mean([i['grad_norm'] for i in infos])),
    'train/update_norm': float(np.mean([i['update_norm'] for i in infos])),
    'train/tokens': tokens,
    'train/minibatches': float(count),
  }
  own_tokens = float(first.sums['own_tokens'])
  if own_tokens:
    # Before the first update sampler and learner hold the same weights.
    row |= {
      'policy/first_ratio_deviation': float(first.maxima['ratio']),
      'sampler/logprob_gap': float(first.sums['gap']) / own_tokens,
      'sampler/logprob_gap_worst': float(first.maxima['gap']),
    }
  if 'value' in sums:
    row['value/loss'] = sums['value'] / count
  if 'correction_ratio' in sums:
    row |= _off_policy(sums, tokens)
  if 'expert_tokens' in sums:
    row |= _experts(sums, measured)
  return row


def _experts(
  sums: Mapping[str, float], measured: Sequence[Metrics]
) -> dict[str, float]:
  """How evenly experts are used, and how far the router has moved."""
  count = max(sums['expert_tokens'], 1.0)
  return {
    'experts/balance_loss': sums['expert_balance'] / count,
    'experts/load_max': max(float(m.maxima['expert_load']) for m in measured),
    'experts/idle_share': sums['expert_idle'] / count,
    'experts/rerouted': 1 - sums['expert_kept'] / count,
  }


def _off_policy(sums: Mapping[str, float], tokens: float) -> dict[str, float]:
  """How far the proximal policy is from the one that sampled."""
  square = max(tokens * sums['correction_square'], 1e-9)
  return {
    'correction/ess': sums['correction_ratio'] ** 2 / square,
    'correction/masked_share': 1 - sums['correction_kept'] / tokens,
    'correction/mismatch_kl': sums['correction_kl'] / tokens,
    'correction/staleness_mean': sums['age'] / tokens,
    # Shares of tokens by age in updates; the last holds all older ones.
    **{
      f'correction/staleness_{i}': sums[f'age_{i}'] / tokens
      for i in range(NUM_AGES)
    },
  }


def first_bad(measured: Sequence[Metrics], infos: Sequence[Mapping]) -> str:
  """Names the first metric that is not finite, in order of computation."""
  for m, info in zip(measured, infos):
    for key, value in {**m.sums, **m.maxima, **info}.items():
      if not np.isfinite(value):
        return key
  return 'grad_norm'
