"""What flows on the device: a batch of turns and a batch of tokens.

Axes: B trajectories, S turns, L history levels, R packed rows, T tokens.
Every per-token array is aligned with the token itself: `logprobs[r, t]` is the
log-probability of `tokens[r, t]` given what stands before it in its segment.
"""

import chex


@chex.dataclass(frozen=True)
class TurnBatch:
  """Turns of an iteration, in trajectory order (credit assignment's input).

  Attributes:
    turn_rewards: [B, S] float32, reward of each turn, 0 where masked.
    turn_mask: [B, S] bool, True for a real turn of a trainable trajectory.
    group_ids: [B] int32, task of the trajectory, -1 = in no group.
    anchor_ids: [B, S] int32, state before the turn, -1 = no anchor.
    history_ids: [B, S, L] int32, id of the last l+1 anchors, -1 = too few.
    turn_penalties: [B, S] float32, invalid-action penalty, subtracted.
    action_ids: [B, S] int32, canonical action taken at the turn, -1 = none.
  """

  turn_rewards: chex.Array
  turn_mask: chex.Array
  group_ids: chex.Array
  anchor_ids: chex.Array
  history_ids: chex.Array
  turn_penalties: chex.Array
  action_ids: chex.Array


@chex.dataclass(frozen=True)
class TokenBatch:
  """Packed rows of contexts (the learner's input).

  Attributes:
    tokens: [R, T] int32, 0 where padded.
    positions: [R, T] int32, place within the segment.
    segment_ids: [R, T] int32, 1.. within the row, 0 where padded.
    mask: [R, T] bool, True where the token was sampled and is trained.
    weights: [R, T] float32, weight over the *global* batch, 0 where masked.
    advantages: [R, T] float32, advantage of the token's turn.
    behavior_logprobs: [R, T] float32, at sampling.
    versions: [R, T] int32, policy version at sampling, -1 where not sampled.
    row_trajectory: [R, T] int32, trajectory index, -1 where padded.
    row_turn: [R, T] int32, turn index, -1 where the token is in no turn.
    routes: [R, T, L, k] int8 or int16, experts that the sampler used for the
      token in L layers, -1 = not known; None if it recorded none.
  """

  tokens: chex.Array
  positions: chex.Array
  segment_ids: chex.Array
  mask: chex.Array
  weights: chex.Array
  advantages: chex.Array
  behavior_logprobs: chex.Array
  versions: chex.Array
  row_trajectory: chex.Array
  row_turn: chex.Array
  routes: chex.Array | None = None
