"""What does each turn, or each sampled token, earn?

Estimators work by turn, [B, S], or by token, [B, N]: a *line* holds the sampled
tokens of a trajectory in the order of sampling, observations left out, whatever
contexts and rows they lie in. The estimator is one jitted program; the rest is
host work.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import jax
import ml_collections
import numpy as np

from agentrl_jax import advantages, rng, tables, types
from agentrl_jax.batch import TokenBatch, TurnBatch
from agentrl_jax.rollout import anchors, collate

# Ends by a limit: what would have come after may be bootstrapped.
_CUT = (
  types.StopReason.MAX_TURNS,
  types.StopReason.LENGTH,
  types.StopReason.CONTEXT_FULL,
)


@dataclasses.dataclass(frozen=True)
class Lines:
  """The sampled tokens of trajectories that may be judged.

  Attributes:
    turn: [B, N] int32, turn of the token, -1 past the end of the line.
    behavior_logprobs: [B, N] float32, at sampling.
    reference_logprobs: [B, N] float32, or None.
    proximal_logprobs: [B, N] float32, before the update, or None.
    values: [B, N] float32, of the state in which the token is chosen, or None.
    last_values: [B] float32, of the state after the last token where a limit
      cut the episode, else 0; or None.
  """

  turn: np.ndarray
  behavior_logprobs: np.ndarray
  reference_logprobs: np.ndarray | None = None
  proximal_logprobs: np.ndarray | None = None
  values: np.ndarray | None = None
  last_values: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Credit:
  """What an estimator gave.

  Attributes:
    advantages: [B, S] float32, or [B, N] where `per_token`.
    by_turn: [B, S] float32, the same or its mean over the tokens of a turn.
    per_token: which of the two.
    values, returns: like advantages, states' values and what they are fitted
      to; None without a value function.
    measures: numbers for the metrics, by whole name.
  """

  advantages: np.ndarray
  by_turn: np.ndarray
  per_token: bool
  values: np.ndarray | None
  returns: np.ndarray | None
  measures: Mapping[str, float]


def turns(
  groups: Sequence[types.Group], c: ml_collections.ConfigDict, iteration: int
) -> TurnBatch:
  """Lays turns out for credit assignment, by the anchors of `c.advantage`."""
  keys = [
    [[turn.state_key for turn in t.turns] for t in g.trajectories]
    for g in groups
  ]
  size = c.rollout.max_turns
  if c.advantage.anchors == 'turn_index':
    ids = anchors.turn_index(keys, num_turns=size)
  elif c.advantage.anchors == 'shuffled':
    dealer = rng.generator(c.seed, 'anchors', iteration)
    ids = anchors.shuffled(keys, dealer, num_turns=size)
  elif c.advantage.anchors == 'similarity':
    ids = anchors.similarity(keys, c.advantage.similarity, num_turns=size)
  elif c.advantage.anchors == 'subsequence':
    ids = anchors.subsequence(keys, c.advantage.similarity, num_turns=size)
  else:
    ids = anchors.exact(keys, num_turns=size)
  return collate.turn_batch(
    groups,
    ids,
    anchors.history(ids, c.advantage.history_levels),
    num_turns=size,
    invalid_penalty=c.advantage.invalid_penalty,
  )


def lines(trajectories: Sequence[types.Trajectory], num_tokens: int) -> Lines:
  """Lays sampled tokens out, at most `num_tokens` (N) a trajectory.

  Raises:
    ValueError: a trajectory sampled more.
  """
  shape = (len(trajectories), num_tokens)
  turn, logprobs = np.full(shape, -1, np.int32), np.zeros(shape, np.float32)
  for b, trajectory in enumerate(trajectories):
    if not trajectory.stop_reason.trainable:
      continue
    at = 0
    for s, one in enumerate(trajectory.turns):
      context, span = (
        trajectory.contexts[one.context],
        slice(one.start, one.end),
      )
      sampled = np.array(context.sampled_mask[span], bool)
      end = at + int(sampled.sum())
      if end > num_tokens:
        raise ValueError(
          f'{trajectory.task.name} sampled {end} tokens, more than {num_tokens}'
        )
      turn[b, at:end] = s
      logprobs[b, at:end] = np.array(context.logprobs[span])[sampled]
      at = end
  return Lines(turn, logprobs)


def _order(batch: TokenBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns (place in the flat rows, trajectory, place in its line)."""
  flat = np.flatnonzero(batch.mask & (batch.row_turn >= 0))
  owner = batch.row_trajectory.ravel()[flat]
  # A turn's tokens follow each other in a row, and a stable sort keeps that.
  order = np.lexsort((batch.row_turn.ravel()[flat], owner))
  flat, owner = flat[order], owner[order]
  return flat, owner, np.arange(len(flat)) - np.searchsorted(owner, owner)


def to_lines(
  batch: TokenBatch, row_values: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
  """Brings values of packed rows into lines: [R, T] -> [B, N], else 0."""
  flat, owner, place = _order(batch)
  out = np.zeros(shape, np.float32)
  out[owner, place] = np.asarray(row_values).ravel()[flat]
  return out


def to_rows(batch: TokenBatch, line_values: np.ndarray) -> np.ndarray:
  """Brings values of lines into packed rows: [B, N] -> [R, T], else 0."""
  flat, owner, place = _order(batch)
  out = np.zeros(batch.mask.shape, np.float32)
  out.ravel()[flat] = line_values[owner, place]
  return out


def with_values(
  made: Lines,
  batch: TokenBatch,
  row_values: np.ndarray,
  trajectories: Sequence[types.Trajectory],
) -> Lines:
  """Adds values to lines.

  Args:
    made: lines.
    batch: rows with every trajectory that has a line.
    row_values: [R, T] float32, of the states *after* tokens.
    trajectories: all.
  """
  before = np.pad(row_values, [(0, 0), (1, 0)])[:, :-1]
  after = to_lines(batch, row_values, made.turn.shape)
  lengths = (made.turn >= 0).sum(axis=1)
  last = after[np.arange(len(after)), np.maximum(lengths - 1, 0)]
  cut = np.array([t.stop_reason in _CUT for t in trajectories])
  return dataclasses.replace(
    made,
    values=to_lines(batch, before, made.turn.shape),
    last_values=np.where(cut & (lengths > 0), last, 0).astype(np.float32),
  )


def with_logprobs(
  made: Lines, batch: TokenBatch, rows: Mapping[str, np.ndarray]
) -> Lines:
  """Adds log-probs [R, T] of packed rows to lines, by name of the field."""
  shape = made.turn.shape
  more = {name: to_lines(batch, x, shape) for name, x in rows.items()}
  return dataclasses.replace(made, **more)


def places(made: Lines, num_turns: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns where in its line each turn begins and where it ends, [B, S].

  A turn without a token (history was rewritten) has the next one's begin and
  the previous one's end.
  """
  has = made.turn >= 0
  s = np.arange(num_turns)[None, :, None]
  turn = made.turn[:, None, :]
  begin = ((turn < s) & has[:, None]).sum(-1)
  end = ((turn <= s) & has[:, None]).sum(-1) - 1
  most = np.maximum(has.sum(-1) - 1, 0)[:, None]
  return np.minimum(begin, most), np.maximum(end, 0)


def turn_sums(
  made: Lines, line_values: np.ndarray, num_turns: int
) -> np.ndarray:
  """Adds values up over the tokens of each turn: [B, N] -> [B, S] float32."""
  out = np.zeros((len(made.turn), num_turns), np.float32)
  b, n = np.nonzero(made.turn >= 0)
  np.add.at(out, (b, made.turn[b, n]), line_values[b, n])
  return out


class Assigner:
  """Jits the estimator of `config.advantage`; one shape for a run.

  Attributes:
    per_token: whether it works on lines.
    needs_values: whether it reads a learned value function.
  """

  def __init__(self, config: ml_collections.ConfigDict):
    c = config.advantage
    self._kl_coef, self._bootstrap = c.kl_in_reward, c.bootstrap
    self._whitens = c.whiten
    self._plays = c.estimator in advantages.PLAYED_ESTIMATORS
    self.per_token = c.estimator in advantages.TOKEN_ESTIMATORS
    self.needs_values = c.estimator in advantages.VALUE_ESTIMATORS
    table = (
      advantages.TOKEN_ESTIMATORS if self.per_token else advantages.ESTIMATORS
    )
    estimator = functools.partial(
      tables.resolve(table, c.estimator), **c.options.to_dict()
    )
    self._estimate = jax.jit(estimator)
    self._measure = jax.jit(advantages.diagnostics)
    self._whiten = jax.jit(advantages.whiten)

  @property
  def needs_reference(self) -> bool:
    """Whether rewards are less a KL to the reference policy."""
    return self._kl_coef > 0

  @property
  def is_alone(self) -> bool:
    """Whether turns are all that the estimator reads."""
    return not (
      self.per_token
      or self.needs_values
      or self._kl_coef
      or self._whitens
      or self._plays
    )

  def by_turn(self, turns: TurnBatch) -> jax.Array:
    """What the estimator makes of turns; only where it `is_alone`."""
    return self._estimate(turns)

  def __call__(
    self,
    turns: TurnBatch,
    made: Lines,
    *,
    trained: Sequence[int] | None = None,
    played: Mapping[str, np.ndarray] | None = None,
  ) -> Credit:
    """Returns the credit of an iteration.

    Args:
      turns: rewards, groups, anchors; statistics of groups see no KL.
      made: lines, with what the estimator needs.
      trained: trajectories whose advantages are whitened, where they are; the
        others' become 0. None = all.
      played: what `counterfactual.explore` found.
    """
    size = turns.turn_mask.shape[1]
    kl = np.zeros(made.turn.shape, np.float32)
    if self._kl_coef:
      apart = made.behavior_logprobs - made.reference_logprobs
      kl = np.where(made.turn >= 0, self._kl_coef * apart, 0)
    extra = dict(played or {})
    if self.needs_values and self._bootstrap == 'limit':
      extra['bootstrap_values'] = made.last_values
    if self.per_token:
      out, values, mask = self._over_tokens(turns, made, kl, extra)
    else:
      out, values, mask = self._over_turns(turns, made, kl, extra)
    returns = None if values is None else np.where(mask, out + values, 0)
    if self._whitens:
      out = self._whitened(out, mask, trained)
    by_turn = out
    if self.per_token:
      counts = turn_sums(made, mask, size)
      by_turn = turn_sums(made, out, size) / np.maximum(counts, 1)
    measured = jax.device_get(self._measure(turns, by_turn))
    measures = {f'advantage/{k}': float(v) for k, v in measured.items()}
    if values is not None:
      measures |= _value_measures(values, returns, mask)
    if self._kl_coef:
      total = float(kl.sum()) / self._kl_coef
      measures['reward/kl'] = total / max(int((made.turn >= 0).sum()), 1)
    return Credit(out, by_turn, self.per_token, values, returns, measures)

  def _whitened(self, out, mask, trained):
    """Advantages to mean 0 and std 1 over turns or tokens trained on."""
    counts = mask
    if trained is not None:
      counts = mask & np.isin(np.arange(len(mask)), trained)[:, None]
    return np.asarray(self._whiten(out, counts))

  def _over_tokens(self, turns, made, kl, extra):
    mask = made.turn >= 0
    rewards = -kl
    _, end = places(made, turns.turn_mask.shape[1])
    b, s = np.nonzero(turns.turn_mask & mask.any(axis=1)[:, None])
    paid = turns.turn_rewards - turns.turn_penalties
    np.add.at(rewards, (b, end[b, s]), paid[b, s])
    groups = np.where(turns.turn_mask.any(axis=1), turns.group_ids, -1)
    out = self._estimate(rewards, made.values, groups, mask, **extra)
    return np.asarray(out), made.values, mask

  def _over_turns(self, turns, made, kl, extra):
    size = turns.turn_mask.shape[1]
    paid = turns.turn_rewards - turn_sums(made, kl, size)
    values = None
    if self.needs_values:
      begin, _ = places(made, size)
      values = np.take_along_axis(made.values, begin, axis=1)
      values = np.where(turns.turn_mask, values, 0)
      extra = {**extra, 'values': values}
    out = self._estimate(turns.replace(turn_rewards=paid), **extra)
    return np.asarray(out), values, turns.turn_mask


def _value_measures(values, returns, mask) -> dict[str, float]:
  """How good the values were before they learnt from these returns."""
  v, target = values[mask], returns[mask]
  spread = float(np.var(target)) if target.size else 0.0
  left = float(np.var(target - v)) if target.size else 0.0
  return {
    'value/mean': float(v.mean()) if v.size else 0.0,
    'value/explained_variance': 1 - left / spread if spread > 1e-12 else 0.0,
  }


def attach(
  batch: TokenBatch, credit: Credit, made: Lines
) -> tuple[TokenBatch, dict[str, np.ndarray]]:
  """Gives rows their advantages, and the learner what else it learns from.

  Args:
    batch: rows whose advantages are `credit.by_turn`, with weights.
    credit: of the iteration.
    made: lines of the iteration.

  Returns:
    (batch, keyword arguments [R, T] of `learner.objective.PolicyObjective`).
  """
  if credit.per_token:
    batch = batch.replace(advantages=to_rows(batch, credit.advantages))
  extra = {
    name: to_rows(batch, getattr(made, name))
    for name in ('reference_logprobs', 'proximal_logprobs')
    if getattr(made, name) is not None
  }
  return batch, extra | value_targets(batch, credit, made)


def value_targets(
  batch: TokenBatch, credit: Credit, made: Lines
) -> dict[str, np.ndarray]:
  """Lays out what the value function is fitted to, in rows with weights.

  By token, every state counts as its token does. By turn, the state in which
  a turn is decided counts as all tokens of the turn together.

  Returns:
    returns, old_values, value_weights: [R, T] float32; {} without values.
  """
  if credit.values is None:
    return {}
  names = ('returns', 'old_values')
  arrays = (credit.returns, credit.values)
  if credit.per_token:
    rows = {k: to_rows(batch, x) for k, x in zip(names, arrays)}
    return {**rows, 'value_weights': batch.weights}
  size = credit.values.shape[1]
  weights = turn_sums(
    made, to_lines(batch, batch.weights, made.turn.shape), size
  )
  begin, _ = places(made, size)
  owns = np.take_along_axis(made.turn, begin, axis=1) == np.arange(size)
  b, s = np.nonzero(owns)
  out = {}
  for name, x in zip((*names, 'value_weights'), (*arrays, weights)):
    line = np.zeros(made.turn.shape, np.float32)
    line[b, begin[b, s]] = x[b, s]
    out[name] = to_rows(batch, line)
  return out
