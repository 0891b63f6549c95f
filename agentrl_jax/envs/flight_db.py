"""Where does a flight world keep its facts? In SQLite, in memory, one a world.

Tables: `schedule` (what is published), `inventory` (seats left: hidden until
asked for), `orders` (final, one a leg). What an agent may see is a `View`, a
selection of the schedule; everything else is asked for flight by flight.
"""

import dataclasses
import functools
import re
import sqlite3
from collections.abc import Sequence

ISSUED, FAILED = 'issued', 'failed'
EARLY = '09:00'  # departures before this are early-morning ones

_SCHEMA = """
CREATE TABLE schedule(
  rank INTEGER PRIMARY KEY, flight TEXT UNIQUE, origin TEXT, destination TEXT,
  departure TEXT, price INTEGER);
CREATE TABLE inventory(flight TEXT PRIMARY KEY, seats INTEGER) WITHOUT ROWID;
CREATE TABLE orders(
  leg INTEGER PRIMARY KEY, flight TEXT, seat TEXT, status TEXT);
"""
_ORDERS = {
  '': 'rank',
  'price': 'price, rank',
  'time': 'departure, rank',
}
_DEPARTURE = re.compile(r'\s*(<=|>=|<|>)\s*(\d{1,2}):(\d{2})\s*')
_STRICT = frozenset(('early', 'morning', 'cheap', 'cheapest'))


@dataclasses.dataclass(frozen=True)
class View:
  """A selection of the schedule, as the agent asked for it.

  `origin`/`destination`: a route ('' for any). `touching`: cities that either
  end may be, for a broad query. `before`/`below`: bounds of a narrow query.
  `departure`: operator and time, `sort`: '', 'price' or 'time'; `page` from 0.
  """

  origin: str = ''
  destination: str = ''
  touching: tuple[str, ...] = ()
  before: str = ''
  below: int = 0
  departure: tuple[str, str] = ('', '')
  sort: str = ''
  page: int = 0

  def describe(self) -> str:
    """Canonical text for state keys."""
    if self.touching:
      what = '+'.join(self.touching)
    else:
      what = f'{self.origin}>{self.destination}'
    bounds = ''.join(self.departure)
    return (
      f'{what} {self.before} {self.below} dep={bounds} '
      f'sort={self.sort} page={self.page}'
    )


Row = tuple[str, str, str, str, int]  # flight, origin, destination, time, price


@functools.cache
def _empty() -> bytes:
  """The schema as a serialized database: half the time of executing it."""
  database = sqlite3.connect(':memory:')
  database.executescript(_SCHEMA)
  blob = database.serialize()
  database.close()
  return blob


def restore(blob: bytes) -> sqlite3.Connection:
  """Opens a database from `Connection.serialize()`.

  A world is stepped by one thread at a time, though not always the same one.
  """
  database = sqlite3.connect(
    ':memory:', isolation_level=None, check_same_thread=False
  )
  database.deserialize(blob)
  return database


def create(flights: Sequence[Sequence]) -> sqlite3.Connection:
  """Opens a world.

  Args:
    flights: rows of flight id, origin, destination, departure 'HH:MM', price,
      seats, in the order of the schedule.

  Returns:
    A connection with schedule and inventory filled, no orders.
  """
  database = restore(_empty())
  database.execute('BEGIN')
  database.executemany(
    'INSERT INTO schedule VALUES(?,?,?,?,?,?)',
    [(rank, *row[:5]) for rank, row in enumerate(flights)],
  )
  database.executemany(
    'INSERT INTO inventory VALUES(?,?)', [(row[0], row[5]) for row in flights]
  )
  database.execute('COMMIT')
  return database


def parse_departure(text: str) -> tuple[str, str] | None:
  """Reads '<9:00' as ('<', '09:00'); None if it is not such a bound."""
  match = _DEPARTURE.fullmatch(text)
  if not match:
    return None
  operator, hour, minute = match.groups()
  if int(hour) > 24 or int(minute) > 59:
    return None
  return operator, f'{int(hour):02d}:{minute}'


def parse_query(query: str, cities: Sequence[str]) -> View:
  """Reads free text as a full-text search engine would.

  A query that says more than places ('early', 'morning', 'cheap') is taken
  strictly: the route, before noon, below 1000. One that does not is matched by
  any flight which touches one of its cities: many mixed results.
  """
  known = {city.lower(): city for city in cities}
  words = re.findall(r'\w+', query.lower())[:50]
  named = tuple(dict.fromkeys(known[word] for word in words if word in known))
  narrow = _STRICT.intersection(words)
  if not narrow:
    return View(touching=tuple(sorted(named)))
  return View(
    origin=named[0] if named else '',
    destination=named[1] if len(named) > 1 else '',
    before='12:00' if narrow & {'early', 'morning'} else '',
    below=1000 if narrow & {'cheap', 'cheapest'} else 0,
  )


def cities(database: sqlite3.Connection) -> list[str]:
  """All cities that a flight leaves or reaches."""
  rows = database.execute(
    'SELECT origin FROM schedule UNION SELECT destination FROM schedule'
  )
  return sorted(row[0] for row in rows)


def select(database: sqlite3.Connection, view: View) -> list[Row]:
  """All rows of a view, in its order (paging is the caller's)."""
  clauses, values = ['1'], []
  for column, value in (
    ('origin =', view.origin),
    ('destination =', view.destination),
    ('departure <', view.before),
    ('price <', view.below),
    (f'departure {view.departure[0]}', view.departure[1]),
  ):
    if value:
      clauses.append(f'{column} ?')
      values.append(value)
  if view.touching:
    marks = ','.join('?' * len(view.touching))
    clauses.append(f'(origin IN ({marks}) OR destination IN ({marks}))')
    values += view.touching * 2
  return database.execute(
    'SELECT flight, origin, destination, departure, price FROM schedule '
    f'WHERE {" AND ".join(clauses)} ORDER BY {_ORDERS[view.sort]}',
    values,
  ).fetchall()


def seats(database: sqlite3.Connection, flight: str) -> int | None:
  """Seats left, None if there is no such flight."""
  row = database.execute(
    'SELECT seats FROM inventory WHERE flight = ?', (flight,)
  ).fetchone()
  return None if row is None else row[0]


def order(
  database: sqlite3.Connection, leg: int, flight: str, seat: str
) -> str:
  """Orders a flight that exists; final for the leg.

  Returns:
    `ISSUED`, and the inventory is one lower, or `FAILED` if it was sold out.
  """
  taken = database.execute(
    'UPDATE inventory SET seats = seats - 1 WHERE flight = ? AND seats > 0',
    (flight,),
  ).rowcount
  status = ISSUED if taken else FAILED
  database.execute(
    'INSERT INTO orders VALUES(?,?,?,?)', (leg, flight, seat, status)
  )
  return status


def best(
  database: sqlite3.Connection, leg: int, origin: str, destination: str
) -> str | None:
  """The cheapest early flight that had a seat when the leg was to be ordered.

  Seats that this leg or a later one took count as there.
  """
  row = database.execute(
    'SELECT s.flight FROM schedule s JOIN inventory i USING(flight) '
    'WHERE s.origin = ? AND s.destination = ? AND s.departure < ? '
    'AND i.seats + (SELECT COUNT(*) FROM orders o WHERE o.flight = s.flight '
    'AND o.status = ? AND o.leg >= ?) > 0 ORDER BY s.price, s.rank LIMIT 1',
    (origin, destination, EARLY, ISSUED, leg),
  ).fetchone()
  return None if row is None else row[0]


def verify(
  database: sqlite3.Connection, legs: Sequence[Sequence[str]]
) -> list[bool]:
  """Says for each leg whether the best ticket was issued."""
  issued = dict(
    database.execute(
      'SELECT leg, flight FROM orders WHERE status = ?', (ISSUED,)
    )
  )
  return [
    leg in issued and issued[leg] == best(database, leg, *route)
    for leg, route in enumerate(legs)
  ]
