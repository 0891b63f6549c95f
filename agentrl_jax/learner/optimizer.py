"""Optimizers by name, with warm-up, schedule and clipping."""

from collections.abc import Mapping

import jax
import optax
import optax.contrib

_SCHEDULES = {
  'constant': lambda peak, steps: optax.constant_schedule(peak),
  'linear': lambda peak, steps: optax.linear_schedule(peak, 0.0, steps),
  'cosine': lambda peak, steps: optax.cosine_decay_schedule(peak, steps),
}


def schedule(options: Mapping, num_updates: int) -> optax.Schedule:
  """Returns the learning rate by update: linear warm-up, then the schedule.

  Args:
    options: `config.*.optimizer`.
    num_updates: of the whole run, warm-up included.
  """
  peak, warmup = options['learning_rate'], options['warmup']
  after = _SCHEDULES[options['schedule']](peak, max(num_updates - warmup, 1))
  if not warmup:
    return after
  ramp = optax.linear_schedule(peak / (warmup + 1), peak, warmup)
  return optax.join_schedules([ramp, after], [warmup])


def _matrices(params):
  """Says which weights are matrices for Muon: those of the stacked layers.

  optax takes every array of rank 2 for one, which here are the embedding, the
  head and the stacked norms, and leaves the layers [L, in, ..., out] to Adam.
  """

  def one(path, x):
    names = [getattr(entry, 'key', None) for entry in path]
    if names[0] != 'layers' or x.ndim < 3 or names[-1].endswith('_bias'):
      return None
    if names[-1].startswith('expert_'):  # [L, E, in, out], one an expert
      return optax.contrib.MuonDimensionNumbers((2,), (3,))
    axes = tuple(range(1, x.ndim))
    from_heads = names[-1] == 'o' or names[-2:] == ['o', 'a']  # [L, H, C, ...]
    inputs = 2 if from_heads else 1
    return optax.contrib.MuonDimensionNumbers(axes[:inputs], axes[inputs:])

  return jax.tree_util.tree_map_with_path(one, params)


def make(options: Mapping, num_updates: int) -> optax.GradientTransformation:
  """Returns clipping by global norm followed by the named optimizer.

  Args:
    options: `config.*.optimizer`.
    num_updates: of the whole run.
  """
  rate = schedule(options, num_updates)
  adam = dict(b1=options['b1'], b2=options['b2'], eps=options['epsilon'])
  decay = options['weight_decay']
  table = {
    'adam': lambda: optax.adam(rate, **adam),
    'adamw': lambda: optax.adamw(rate, weight_decay=decay, **adam),
    'muon': lambda: optax.contrib.muon(
      rate,
      weight_decay=decay,
      adam_b1=options['b1'],
      adam_b2=options['b2'],
      muon_weight_dimension_numbers=_matrices,
    ),
    'sgd': lambda: optax.sgd(rate),
  }
  clip = optax.clip_by_global_norm(options['clip_norm'])
  return optax.chain(clip, table[options['name']]())
