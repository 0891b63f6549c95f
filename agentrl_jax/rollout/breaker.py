"""How many infrastructure failures stop a run? Told while they are made."""

import collections
import dataclasses
from collections.abc import Sequence

import ml_collections

from agentrl_jax import types


class TooManyFailures(RuntimeError):
  """Environments or rewards failed for too many episodes."""


@dataclasses.dataclass(frozen=True)
class Breaker:
  """Stops a collection that is not worth finishing.

  Attributes:
    share: failures above this share of the episodes asked for stop it. One
      alone never does: a collection may be a single episode.
    count: this many failures stop it, whatever the share; 0 = never.
  """

  share: float = 1.0
  count: int = 0

  def check(self, failed: Sequence[types.Trajectory], total: int) -> None:
    """Raises if that is too many.

    Args:
      failed: episodes that failed so far, in order of ending.
      total: episodes asked for, played or not.

    Raises:
      TooManyFailures: says how many, of which kinds, and the first error.
    """
    num = len(failed)
    if self.count and num >= self.count:
      limit = f'config.rollout.failure_count={self.count}'
    elif num > max(self.share * total, 1):
      limit = f'config.rollout.failure_limit={self.share}'
    else:
      return
    kinds = collections.Counter(t.stop_reason.value for t in failed)
    kinds = ', '.join(f'{n} {kind}' for kind, n in kinds.most_common())
    first = failed[0]
    error = first.info.get('error') or first.info.get('reward_error', '')
    raise TooManyFailures(
      f'{num} of {total} episodes failed ({kinds}): {limit}; the first, '
      f'{first.task.name}: {first.stop_reason.value}: {error}. Repair the '
      'environment or the reward, or raise the limit'
    )


def make(c: ml_collections.ConfigDict) -> Breaker:
  """Returns what says how many failures stop the run, by `config.rollout`."""
  return Breaker(share=c.failure_limit, count=c.failure_count)
