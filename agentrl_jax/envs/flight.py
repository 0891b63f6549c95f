"""Can an agent book the cheapest early flight that still has a seat?

The mission's example as a stateful simulator: search, filter, compare, check
seats, order. An order is final for its leg and its reply never says whether
the choice was right: that is judged at the end, against the database.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base, flight_db, flight_world, noise

_TEXT = {'type': 'string'}
TOOLS = (
  base.function(
    'search',
    'Finds flights, by from and to or by a free-text query. Shows the first '
    'rows: flight, departure, price.',
    **{'query': _TEXT, 'from': _TEXT, 'to': _TEXT},
  ),
  base.function('page', 'Shows the next rows of the current list.'),
  base.function(
    'filter',
    'Narrows the current list by departure, such as "<09:00", and sorts it.',
    dep=_TEXT,
    sort={'type': 'string', 'enum': ['price', 'time']},
  ),
  base.function('pick_first', 'Shows the first flight of the current list.'),
  base.function(
    'check_seat',
    'Says whether a flight has seats.',
    required=['flight'],
    flight=_TEXT,
  ),
  base.function(
    'order',
    'Orders a flight for the current leg. Final: if the flight is sold out, '
    'the payment is on hold and the leg is lost, so check seats first.',
    required=['flight'],
    flight=_TEXT,
    seat={'type': 'string', 'enum': ['window', 'aisle']},
  ),
)
SYSTEM = 'You book flights with tools.'
THINK = 'Think first.'
HINTS = (
  'Hints: search a leg, filter departures before 09:00 sorted by price, check '
  'seats from the cheapest on, order the first with a seat. A sold-out order '
  'loses the leg.'
)
ROWS = 3  # shown at a time


class FlightEnv(base.ToolEnv):
  """Books each leg of a task, in order.

  Args:
    instructions: 'none' (only the legs), 'task' or 'task+hints'.
    distractors: probability that an observation carries an irrelevant notice;
      depends on the observation, so that equal states still look equal.
    failing_tools: probability that a call fails and has to be repeated.
    shared_noise: whether the members of a group meet the same failures.
    key_orders: how orders enter the state key: 'status' (placed or failed),
      'flight' (which one as well) or 'none'.
    traces: whether the agent is asked to think before it acts, as it does in
      demonstrations then.
  """

  tools = TOOLS
  system = SYSTEM
  revealing = ('check_seat', 'order')
  task_defaults = flight_world.TASK_DEFAULTS
  demonstration_defaults = flight_world.DEMONSTRATION_DEFAULTS
  generate = staticmethod(flight_world.generate)
  card = base.Card(
    observation='rows of flights: id, departure, price',
    action='search, page, filter, pick_first, check_seat, order',
    reward='1 if each leg has the cheapest early ticket',
    termination='last leg ordered, final answer',
    oracle='flight_agent without mistakes',
    state_key='leg, orders, view, last reply',
  )

  def __init__(
    self,
    *,
    instructions: str = 'task',
    distractors: float = 0.0,
    failing_tools: float = 0.0,
    shared_noise: bool = True,
    key_orders: str = 'status',
    traces: bool = False,
  ):
    super().__init__()
    if traces:
      self.system = f'{SYSTEM} {THINK}'
    for value, allowed in (
      (instructions, ('none', 'task', 'task+hints')),
      (key_orders, ('status', 'flight', 'none')),
    ):
      if value not in allowed:
        raise ValueError(f'{value!r} is not one of {", ".join(allowed)}')
    self._instructions = instructions
    self._noise = noise.Noise(failing_tools, distractors, shared_noise)
    self._key_orders = key_orders
    self._database = None
    self._view = None
    self._rows = []
    self._orders = []
    self._num_calls = 0

  def state_key(self) -> str | None:
    """Leg, orders as the agent saw them, view, last observation."""
    view = self._view.describe() if self._view else '-'
    orders = ' '.join(self._orders) or '-'
    return f'leg {self._leg}\norders {orders}\nview {view}\n{self._last}'

  def close(self) -> None:
    """Frees the database."""
    super().close()
    if self._database is not None:
      self._database.close()
      self._database = None

  def snapshot(self) -> tuple:
    """Everything that the rest of the episode depends on."""
    state = {
      name: value
      for name, value in vars(self).items()
      if name not in ('_database', '_schemas', '_orders')
    }
    return self._database.serialize(), tuple(self._orders), state

  def restore(self, snapshot: tuple) -> None:
    """Continues from a snapshot, of this or of another instance."""
    blob, orders, state = snapshot
    self.close()
    vars(self).update(state)
    self._orders = list(orders)
    self._database = flight_db.restore(blob)

  @classmethod
  def hidden_sibling(cls, task: types.Task) -> types.Task | None:
    """The same schedule with seats where there were none, and none else."""
    return dataclasses.replace(task, data=flight_world.hide(dict(task.data)))

  @classmethod
  def oracle(cls, task: types.Task):
    """The scripted agent that makes no mistake."""
    from agentrl_jax.envs import flight_agent  # it plays this environment

    return flight_agent.Agent(seed=task.index, rates=flight_agent.ORACLE)

  @classmethod
  def agent(cls, task: types.Task, *, seed: int, rates: Mapping[str, float]):
    """The scripted agent; `rates` changes fields of the default ones."""
    from agentrl_jax.envs import flight_agent  # as above

    del task
    return flight_agent.Agent(seed=seed, rates=flight_agent.Rates(**rates))

  @classmethod
  def demonstrate(
    cls,
    task: types.Task,
    *,
    seed: int,
    rates: Mapping[str, float] | None = None,
    **options: Any,
  ) -> tuple[list[types.Message], float]:
    """Plays a scripted episode; `rates` changes fields of the agent's."""
    from agentrl_jax.envs import flight_agent

    chosen = flight_agent.Rates(**(rates or {}))
    agent = flight_agent.Agent(
      seed=seed, rates=chosen, traces=options.get('traces', False)
    )
    return flight_agent.play(task, agent, **options)

  def call_search(self, arguments: Mapping[str, Any]) -> str:
    """Selects the current list."""
    origin, to = arguments.get('from', ''), arguments.get('to', '')
    if 'query' in arguments:
      known = flight_db.cities(self._database)
      view = flight_db.parse_query(arguments['query'][:200], known)
    elif origin or to:
      view = flight_db.View(origin=base.clip(origin), destination=base.clip(to))
    else:
      raise base.ToolError('search needs from and to, or query')
    return self._show(view)

  def call_page(self, arguments: Mapping[str, Any]) -> str:
    """Shows the next rows."""
    del arguments
    view = self._listed()
    if (view.page + 1) * ROWS >= len(self._rows):
      raise base.ToolError('no more flights')
    self._view = dataclasses.replace(view, page=view.page + 1)
    return self._render()

  def call_filter(self, arguments: Mapping[str, Any]) -> str:
    """Narrows and sorts the current list; what is not given stays."""
    view = self._listed()
    if not arguments:
      raise base.ToolError('filter needs dep or sort')
    bound = view.departure
    if 'dep' in arguments:
      bound = flight_db.parse_departure(arguments['dep'])
      if bound is None:
        raise base.ToolError('dep must look like <09:00')
    sort = arguments.get('sort', view.sort)
    return self._show(
      dataclasses.replace(view, departure=bound, sort=sort, page=0)
    )

  def call_pick_first(self, arguments: Mapping[str, Any]) -> str:
    """Shows the first flight of the list; commits to nothing."""
    del arguments
    self._listed()
    if not self._rows:
      raise base.ToolError('no flights')
    return self._row(self._rows[0])

  def call_check_seat(self, arguments: Mapping[str, Any]) -> str:
    """Reveals whether a flight has seats."""
    flight, left = self._flight(arguments)
    return f'{flight} {"seats available" if left else "sold out"}'

  def call_order(self, arguments: Mapping[str, Any]) -> str:
    """Orders for the current leg, right or wrong."""
    flight, _ = self._flight(arguments)
    seat = arguments.get('seat', '')
    status = flight_db.order(self._database, self._leg, flight, seat)
    self._leg += 1
    self._view, self._rows = None, []
    if status == flight_db.FAILED:
      seen, reply = 'failed', 'sold out, order failed.'
    else:
      # A chosen seat is ticketed at once, any other at check-in.
      seen = 'placed'
      reply = 'ticket issued.' if seat else 'order placed.'
    if self._key_orders == 'flight':
      seen = f'{flight} {seen}'
    if self._key_orders != 'none':
      self._orders.append(seen)
    self._done = self._leg == len(self._legs)
    if self._done:
      return f'{reply} done'
    return f'{reply} next: {" > ".join(self._legs[self._leg])}'

  def legs_right(self) -> list[bool]:
    """For each leg, whether the best ticket was issued. Not for the agent."""
    return flight_db.verify(self._database, self._legs)

  def _start(self, task: types.Task, sample: int) -> str:
    self._legs = [tuple(leg) for leg in task.data['legs']]
    self._database = flight_db.create(task.data['flights'])
    self._leg = 0
    self._noise = self._noise.of(task.data.get('seed', task.index), sample)
    legs = ', '.join(' > '.join(leg) for leg in self._legs)
    if self._instructions == 'none':
      return legs
    prompt = f'Book cheapest early-morning flights: {legs}.'
    if self._instructions == 'task+hints':
      prompt += '\n' + HINTS
    return prompt

  def _answer(self, call: types.ToolCall) -> tuple[str, str]:
    self._num_calls += 1
    if not self._done and self._noise.fails(self._num_calls):
      return noise.BUSY, 'refused'
    reply, error = super()._answer(call)
    return self._noise.dress(reply), error

  def _judge(self, text: str) -> float:
    del text  # what the agent claims is no evidence
    return float(all(self.legs_right()))

  def _listed(self) -> flight_db.View:
    if self._view is None:
      raise base.ToolError('search first')
    return self._view

  def _flight(self, arguments: Mapping[str, Any]) -> tuple[str, int]:
    """A flight that exists, and its seats left."""
    flight = arguments['flight']
    left = flight_db.seats(self._database, flight)
    if left is None:
      raise base.ToolError(f'no flight {base.clip(flight, 20)}')
    return flight, left

  def _show(self, view: flight_db.View) -> str:
    self._view = view
    self._rows = flight_db.select(self._database, view)
    return self._render()

  def _render(self) -> str:
    """The total, then this page's rows."""
    start = self._view.page * ROWS
    title = f'{len(self._rows)} flights'
    if self._view.page:
      title += f' page {self._view.page + 1}'
    rows = self._rows[start : start + ROWS]
    return '\n'.join([title, *map(self._row, rows)])

  def _row(self, row: flight_db.Row) -> str:
    """Flight, time, price; the route too if it is not the current leg's."""
    flight, origin, destination, time, price = row
    text = f'{flight} {time} {price}'
    if (origin, destination) != self._legs[self._leg]:
      text += f' {origin} > {destination}'
    return text
