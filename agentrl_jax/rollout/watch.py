"""Is the policy collapsing? Thresholds on the metrics, one warning each.

The watch folds over metrics rows and nothing else, so that a resumed run sees
what the undisturbed one would have seen. A threshold of 0 is switched off.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from agentrl_jax import types
from agentrl_jax.rollout import measures

_START = 3  # first values of a metric whose mean is where the run began


@dataclasses.dataclass(frozen=True)
class Rule:
  """When a metric is worth a warning.

  Attributes:
    metric: key of the row.
    broken: (value, threshold, values so far, this one last) -> whether it is
      beyond the threshold; values that are no number are not asked about.
    words: what that is, said after the value, with {limit}.
    remedy: what to do.
    unsolved: only while success is below `config.watch.solved`: a policy that
      succeeds may be as narrow as it likes.
    patient: only after `config.watch.patience` values in a row.
  """

  metric: str
  broken: Callable[[float, float, Sequence[float]], bool]
  words: str
  remedy: str
  unsolved: bool = False
  patient: bool = True


def _below(value, limit, _):
  return value < limit


def _above(value, limit, _):
  return value > limit


def _fell(value, limit, values):
  """Below a share of the highest so far, where there was much to lose."""
  return max(values) > 0.1 and value < limit * max(values)


def _drifted(value, limit, _):
  return not 1 / limit <= value <= limit


def _grew(value, limit, values):
  # Below 0 more is confirmed than paid: nothing is gamed on the way up to it.
  return value - max(start(values), 0.0) > limit


# Name of the threshold in `config.watch` -> rule.
RULES = {
  'entropy': Rule(
    'policy/entropy',
    _below,
    'nats a token, below {limit}: it hardly explores any more',
    'lower train.optimizer.learning_rate, raise loss.entropy_coef, or start '
    'from an earlier checkpoint',
    unsolved=True,
  ),
  'repeated_calls': Rule(
    'watch/repeated_calls',
    _above,
    'of the calls were made before in the same episode, above {limit}: it '
    'runs in circles',
    'penalise repetition in the reward, look at the trajectories, or lower '
    'rollout.max_turns',
  ),
  'distinct_sequences': Rule(
    'watch/distinct_sequences',
    _below,
    'of a group acts differently from the rest, below {limit}: nothing to '
    'compare',
    'raise rollout.temperature or loss.entropy_coef, or lower '
    'train.optimizer.learning_rate',
    unsolved=True,
  ),
  'input_dependence': Rule(
    'watch/input_dependence',
    _fell,
    'of the first response comes from the task, below {limit} of the highest '
    'so far: it says the same whatever it is asked',
    'lower loss.entropy_coef and loss.kl_coef, drop groups without a signal '
    '(train.constant_groups), or go back to an earlier checkpoint',
    patient=False,
  ),
  'length_drift': Rule(
    'watch/length_drift',
    _drifted,
    'times the response length at the start, beyond a factor of {limit}',
    'look at the longest trajectories; a length part in the rewards or '
    "loss.weighting='trajectory' takes the incentive away",
  ),
  'dead_groups': Rule(
    'advantage/dead_groups',
    _above,
    'of the groups have equal outcomes, above {limit}: little to learn from',
    'raise rollout.group_size, choose tasks of another difficulty, or '
    'fine-tune longer first (sft.steps)',
    unsolved=True,
  ),
  'clip_fraction': Rule(
    'policy/clip_fraction',
    _above,
    'of the tokens are outside the clip range, above {limit}: updates are too '
    'large',
    'lower train.optimizer.learning_rate, train.epochs or train.minibatches',
  ),
  'ess': Rule(
    'policy/ess',
    _below,
    'is the effective share of the sample, below {limit}: the weights moved '
    'away from those that sampled',
    'lower train.epochs, train.minibatches or train.optimizer.learning_rate',
  ),
  'grounded_arguments': Rule(
    'rollout/grounded_arguments',
    _fell,
    'of the arguments stand in the task or a reply, below {limit} of the '
    'highest so far: it invents them',
    'look at the trajectories: a reward that accepts invented values, or '
    'observations that are cut (rollout.long_observation)',
  ),
  'audit_gap': Rule(
    'audit/gap',
    _grew,
    'of success is not confirmed by audit_reward, {limit} more than at the '
    'start: the trained reward is being gamed',
    'read trajectories that succeed by the one and fail by the other, then '
    'repair the reward',
  ),
  'audit_pull': Rule(
    'audit/pull',
    _above,
    'of what is rewarded above its group is not confirmed by audit_reward, '
    'above {limit}: updates lead to where the trained reward is wrong',
    'read trajectories that succeed by the one and fail by the other, then '
    'repair the reward before the policy finds more of them',
  ),
}


def measure(
  groups: Sequence[types.Group],
) -> dict[str, float]:
  """Measures how narrow an iteration's actions are.

  Returns:
    `watch/repeated_calls`: share of the turns with a call that do what an
    earlier turn of the episode did in the same state.
    `watch/distinct_sequences`: (distinct sequences of actions - 1) / (members -
    1), mean over groups of at least two judged members. NaN where nothing could
    be counted.
  """
  repeated, calls, shares = 0, 0, []
  for group in groups:
    sequences = []
    for t in group.trajectories:
      if not t.stop_reason.trainable:
        continue
      sequences.append(tuple(map(measures.canonical_action, t.turns)))
      pairs = zip(t.turns, sequences[-1], strict=True)
      called = [(turn.state_key, act) for turn, act in pairs if turn.calls]
      calls += len(called)
      repeated += len(called) - len(set(called))
    if len(sequences) > 1:
      shares.append((len(set(sequences)) - 1) / (len(sequences) - 1))
  return {
    'watch/repeated_calls': repeated / calls if calls else math.nan,
    'watch/distinct_sequences': float(np.mean(shares)) if shares else math.nan,
  }


def start(values: Sequence[float]) -> float:
  """Returns the mean of a metric's first values."""
  return float(np.mean(values[:_START]))


class Watch:
  """Follows a run's rows and warns when a threshold is passed.

  Args:
    limits: `config.watch`.
    warn: takes a line for a person.
  """

  def __init__(self, limits: Mapping, warn: Callable[[str], None]):
    self._limits, self._warn = limits, warn
    self._values: dict[str, list[float]] = {}
    self._streaks = dict.fromkeys(RULES, 0)
    self._warned: dict[str, int] = {}

  def see(self, step: int, row: Mapping[str, float]) -> dict[str, float]:
    """Takes the next row in; warns.

    Returns:
      `watch/length_drift`: response length as a factor of that at the start.
    """
    more, texts = self._follow(step, row)
    for text in texts:
      self._warn(text)
    return more

  def replay(self, rows: Iterable[Mapping[str, float]]) -> None:
    """Takes rows in that were seen before, in silence."""
    for row in rows:
      self._follow(row['step'], row)

  def _follow(self, step, row):
    if 'rollout/success' not in row:  # before training
      return {}, []
    lengths = self._seen('rollout/turn_tokens', row)
    more = {}
    if lengths:
      more['watch/length_drift'] = lengths[-1] / max(start(lengths), 1e-9)
    row = {**row, **more}
    texts = [self._asked(name, rule, step, row) for name, rule in RULES.items()]
    return more, [text for text in texts if text]

  def _seen(self, metric, row):
    """All values of a metric so far; () if the row has none."""
    value = float(row.get(metric, math.nan))
    if not math.isfinite(value):
      return ()
    values = self._values.setdefault(metric, [])
    values.append(value)
    return values

  def _asked(self, name, rule, step, row):
    """Returns the warning of one rule, or ''."""
    limit, values = self._limits[name], self._seen(rule.metric, row)
    if not limit or not values:
      return ''
    solved = rule.unsolved and row['rollout/success'] >= self._limits['solved']
    broken = not solved and rule.broken(values[-1], limit, values)
    self._streaks[name] = self._streaks[name] + 1 if broken else 0
    needed = self._limits['patience'] if rule.patient else 1
    last = self._warned.get(name, -math.inf)
    if self._streaks[name] < needed or step - last < self._limits['quiet']:
      return ''
    self._warned[name] = step
    words = rule.words.format(limit=f'{limit:g}')
    return (
      f'iteration {step}: {rule.metric} {values[-1]:.3g} {words}. '
      f'To do: {rule.remedy}. (config.watch.{name})'
    )
