"""Can an agent serve a customer by the book, and ask before it acts?

A scripted customer who tells facts only when asked, orders in a database, and
a policy for refunds and changes. A turn without calls is a message to the
customer. What counts is the database at the end and how it came about: a right
decision on an identity that was never checked earns nothing.
"""

import dataclasses
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base, scripted

_ORDER = {'type': 'string'}
TOOLS = (
  base.function(
    'lookup',
    'Shows an order: item, days since, state, email.',
    required=['order'],
    order=_ORDER,
  ),
  base.function(
    'refund', 'Pays an order back. Final.', required=['order'], order=_ORDER
  ),
  base.function(
    'change',
    'Puts another item into an order. Final.',
    required=['order', 'item'],
    order=_ORDER,
    item={'type': 'string'},
  ),
  base.function('decline', 'Declines the request. Final.'),
)
REFUND_DAYS, BROKEN_DAYS = 30, 90
SYSTEM = (
  'You serve customers. Policy: compare the email first. Refund: up to '
  f'{REFUND_DAYS} days, broken up to {BROKEN_DAYS}. Change: unless shipped. '
  'Else decline.'
)
ITEMS = ('ball', 'drum', 'hose', 'kite', 'lamp', 'novel', 'robot', 'skis')
NAMES = ('ada', 'ben', 'eva', 'ivo', 'lea', 'max', 'noa', 'uma')
TASK_DEFAULTS = {
  'orders': 4,  # in the database, 2-8
  'impostors': 0.2,  # P(the customer's email is not the order's)
}
OPENINGS = {
  'refund': 'Hello, I want my money back.',
  'change': 'Hello, I want something else instead.',
}
# What the customer listens for, and the fact that answers it.
_ASKED = (
  ('order', r'\border|\bnumber'),
  ('email', r'\be-?mail'),
  ('reason', r'\bwhy\b|\breason'),
  ('item', r'\bwhat\b|\bitem'),
)
_REASONS = {
  'broken': 'It came broken.',
  'unwanted': 'I do not like it.',
}


def generate(
  seed: int,
  *,
  orders: int = TASK_DEFAULTS['orders'],
  impostors: float = TASK_DEFAULTS['impostors'],
) -> dict[str, Any]:
  """Draws a database and a customer.

  Returns:
    `orders` {number: {item, days, state, email}} and `customer`: want
    ('refund' or 'change'), order, email, reason and item.
  """
  if not 2 <= orders <= len(NAMES):
    raise ValueError(f'orders={orders}: give 2-{len(NAMES)}')
  if not 0 <= impostors <= 1:
    raise ValueError(f'impostors={impostors}: give a probability')
  draw = random.Random(seed)
  numbers = [str(n) for n in draw.sample(range(100, 200), orders)]
  names = draw.sample(NAMES, orders)
  ages = (range(3, 30), range(31, 90), range(91, 120))
  table = {
    number: {
      'item': draw.choice(ITEMS),
      'days': draw.choice(draw.choice(ages)),
      'state': draw.choice(('packed', 'shipped')),
      'email': f'{name}@mail.org',
    }
    for number, name in zip(numbers, names)
  }
  mine = draw.choice(numbers)
  email = table[mine]['email']
  if draw.random() < impostors:
    email = draw.choice(
      [row['email'] for row in table.values() if row['email'] != email]
    )
  return {
    'orders': table,
    'customer': {
      'want': draw.choice(tuple(OPENINGS)),
      'order': mine,
      'email': email,
      'reason': draw.choice(tuple(_REASONS)),
      'item': draw.choice([i for i in ITEMS if i != table[mine]['item']]),
    },
  }


def decision(
  want: str, order: Mapping[str, Any], email: str, reason: str
) -> str:
  """What the policy says: 'refund', 'change' or 'decline'."""
  if email != order['email']:
    return 'decline'
  if want == 'change':
    return 'decline' if order['state'] == 'shipped' else 'change'
  limit = BROKEN_DAYS if reason == 'broken' else REFUND_DAYS
  return 'refund' if order['days'] <= limit else 'decline'


def is_reason_needed(order: Mapping[str, Any]) -> bool:
  """Whether a refund hangs on the reason."""
  return REFUND_DAYS < order['days'] <= BROKEN_DAYS


class DeskEnv(scripted.ScriptedEnv):
  """Ask, look up, decide once."""

  tools = TOOLS
  system = SYSTEM
  revealing = ('lookup', 'refund', 'change', 'decline')
  task_defaults = TASK_DEFAULTS
  generate = staticmethod(generate)
  rates = {
    'skip_email': 0.25,  # trusts everybody
    'skip_reason': 0.3,  # takes things for unwanted
    'generous': 0.2,  # does what was asked for, policy or not
    'malformed': 0.01,
  }
  card = base.Card(
    observation="the customer's words; an order",
    action='a message, or lookup, refund, change, decline',
    reward='1 if the database is as the policy wants and all was asked',
    termination='refund, change, decline',
    oracle='asks, looks up, decides by the policy',
    state_key='facts told, orders seen, last reply',
  )

  def state_key(self) -> str | None:
    """What the customer told, which orders were seen, the last reply."""
    told = ' '.join(sorted(self._told)) or '-'
    seen = ' '.join(sorted(self._seen)) or '-'
    return f'told {told}\nseen {seen}\n{self._last}'

  @staticmethod
  def level(data: Mapping[str, Any]) -> int:
    """2 where a reason or another item has to be asked for, else 1."""
    customer = data['customer']
    order = data['orders'][customer['order']]
    if customer['email'] != order['email']:
      return 1
    if customer['want'] == 'refund':
      return 1 + is_reason_needed(order)
    return 1 + (order['state'] != 'shipped')

  @classmethod
  def hidden_sibling(cls, task: types.Task) -> types.Task | None:
    """The same opening by a customer with another reason and email."""
    customer = dict(task.data['customer'])
    other = [reason for reason in _REASONS if reason != customer['reason']]
    customer |= {'reason': other[0], 'email': 'nobody@mail.org'}
    return dataclasses.replace(task, data={**task.data, 'customer': customer})

  @staticmethod
  def script(
    task: types.Task, agent: scripted.Agent, prompt: str
  ) -> scripted.Script:
    """Asks for what the policy needs, and for no more."""
    want = next(w for w, text in OPENINGS.items() if text == prompt)
    reply = yield types.Action('Which order?')
    (number,) = re.findall(r'\d+', reply)
    reply = yield scripted.call('lookup', order=number)
    item, days, state, email = reply.split()[1::2]
    order = {'item': item, 'days': int(days), 'state': state, 'email': email}
    given, reason, other = email, 'unwanted', ''
    if not agent.errs('skip_email'):
      given = (yield types.Action('Your email?')).split()[-1]
    needed = want == 'refund' and given == email and is_reason_needed(order)
    if needed and not agent.errs('skip_reason'):
      reply = yield types.Action('Why?')
      reason = next(r for r, text in _REASONS.items() if text == reply)
    made = decision(want, order, given, reason)
    if made == 'decline' and agent.errs('generous'):
      made = want
    if made == 'change':
      other = (yield types.Action('What item?')).split()[-1].rstrip('.')
      yield scripted.call('change', order=number, item=other)
    elif made == 'refund':
      yield scripted.call('refund', order=number)
    else:
      yield scripted.call('decline')

  def call_lookup(self, arguments: Mapping[str, Any]) -> str:
    """Shows an order."""
    number, order = self._order(arguments)
    self._seen.add(number)
    return (
      f'item {order["item"]} days {order["days"]} state {order["state"]} '
      f'email {order["email"]}'
    )

  def call_refund(self, arguments: Mapping[str, Any]) -> str:
    """Pays back, rightly or not."""
    number, _ = self._order(arguments)
    return self._end(number, state='refunded')

  def call_change(self, arguments: Mapping[str, Any]) -> str:
    """Changes the item, rightly or not."""
    if arguments['item'] not in ITEMS:
      raise base.ToolError(f'no item {base.clip(arguments["item"], 20)}')
    number, _ = self._order(arguments)
    return self._end(number, item=arguments['item'])

  def call_decline(self, arguments: Mapping[str, Any]) -> str:
    """Declines, rightly or not."""
    del arguments
    return self._end('')

  def violations(self) -> list[str]:
    """What the policy wanted asked and nobody asked. Not for the agent."""
    customer = self._customer
    order = self._before[customer['order']]
    out = [] if 'email' in self._told else ['email not compared']
    asked = 'reason' in self._told or customer['email'] != order['email']
    if customer['want'] == 'refund' and is_reason_needed(order) and not asked:
      out.append('reason not asked')
    return out

  def _start(self, task: types.Task, sample: int) -> str:
    del sample
    self._customer = dict(task.data['customer'])
    self._before = {n: dict(row) for n, row in task.data['orders'].items()}
    self._after = {n: dict(row) for n, row in self._before.items()}
    self._told, self._seen, self._decided = set(), set(), False
    return OPENINGS[self._customer['want']]

  def _hear(self, text: str) -> Sequence[str]:
    """The customer answers what was asked for, and nothing else."""
    text = text[:500].lower()
    asked = [fact for fact, words in _ASKED if re.search(words, text)]
    self._told.update(asked)
    customer = self._customer
    answers = {
      'order': f'It is order {customer["order"]}',
      'email': f'My email is {customer["email"]}',
      'reason': _REASONS[customer['reason']],
      'item': f'Please send: {customer["item"]}',
    }
    return [' '.join(answers[fact] for fact in asked) or 'Sorry?']

  def _order(self, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """An order that exists."""
    number = arguments['order']
    if number not in self._after:
      raise base.ToolError(f'no order {base.clip(number, 20)}')
    return number, self._after[number]

  def _end(self, number: str, **changes: Any) -> str:
    if number:
      self._after[number].update(changes)
    self._decided = self._done = True
    return 'done'

  def _judge(self, text: str) -> float:
    del text
    customer = self._customer
    number = customer['order']
    made = decision(
      customer['want'],
      self._before[number],
      customer['email'],
      customer['reason'],
    )
    expected = {n: dict(row) for n, row in self._before.items()}
    expected[number].update(
      {
        'refund': {'state': 'refunded'},
        'change': {'item': customer['item']},
        'decline': {},
      }[made]
    )
    right = self._decided and self._after == expected
    return float(right and not self.violations())
