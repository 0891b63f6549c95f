"""What goes wrong around a tool call, the same for the same call?

Failures depend on (task, member of the group or not, number of the call), and
notices on (task, reply), so that equal states still look equal.
"""

import dataclasses
import hashlib
from typing import Any

BUSY = 'busy, try again'
NOTICES = (
  'notice: lounge open',
  'notice: bring an id card',
  'notice: bags up to 20 kg',
  'notice: app update ready',
)


def fraction(*parts: Any) -> float:
  """A number in [0, 1) that depends on nothing but its arguments."""
  text = '\x1f'.join(map(str, parts)).encode()
  digest = hashlib.blake2b(text, digest_size=8).digest()
  return int.from_bytes(digest, 'big') / 2**64


@dataclasses.dataclass(frozen=True)
class Noise:
  """Failing tools and irrelevant notices.

  Attributes:
    failing: probability that a call fails and has to be repeated, [0, 1].
    notices: probability that a reply carries an irrelevant line, [0, 1].
    shared: whether the members of a group meet the same failures.
    world: what tells tasks apart.
    member: of the group, where failures are not shared.
  """

  failing: float = 0.0
  notices: float = 0.0
  shared: bool = True
  world: int = 0
  member: int = 0

  def __post_init__(self):
    if not 0 <= self.failing <= 1:
      raise ValueError(f'failing_tools={self.failing}: give a probability')
    if not 0 <= self.notices <= 1:
      raise ValueError(f'distractors={self.notices}: give a probability')

  def of(self, world: int, sample: int) -> 'Noise':
    """The same in the episode that is `sample` of a task."""
    member = 0 if self.shared else sample
    return dataclasses.replace(self, world=world, member=member)

  def fails(self, number: int) -> bool:
    """Whether the call with this number fails."""
    if not self.failing:
      return False
    return fraction('fail', self.world, self.member, number) < self.failing

  def dress(self, reply: str) -> str:
    """The reply, with a notice under it or not."""
    if not self.notices:
      return reply
    if fraction('notice', self.world, reply) >= self.notices:
      return reply
    pick = int(fraction('which', self.world, reply) * len(NOTICES))
    return f'{reply}\n{NOTICES[pick]}'
