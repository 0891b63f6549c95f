"""Optimizers by name, with warm-up, schedule and clipping."""

from collections.abc import Mapping

import optax

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
    'muon': lambda: optax.contrib.muon(rate, weight_decay=decay),
    'sgd': lambda: optax.sgd(rate),
  }
  clip = optax.clip_by_global_norm(options['clip_norm'])
  return optax.chain(clip, table[options['name']]())
