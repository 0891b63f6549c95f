"""What does a store's database hold, and what can be asked of it?

Stores are seeded; names come from small fixed sets that all stores share, so
that questions do not give away which store is meant. A question has a gold
query; its answer is whatever that query returns, and questions whose answer is
empty or tied are not asked.
"""

import functools
import random
import re
import sqlite3
from collections.abc import Sequence
from typing import Any

from agentrl_jax.envs import database

CITIES = ('Berlin', 'Lagos', 'Lima', 'Osaka', 'Oslo', 'Quito')
CATEGORIES = ('books', 'garden', 'music', 'sport', 'toys')
PEOPLE = tuple(
  f'{first} {last}'
  for first in ('Ada', 'Ben', 'Eva', 'Ivo', 'Lea', 'Max')
  for last in ('Berg', 'Diaz', 'Mori', 'Okoro')
)
PRODUCTS = (
  'atlas', 'ball', 'bell', 'chess', 'drum', 'flute', 'glove', 'hose',
  'kite', 'lamp', 'net', 'novel', 'piano', 'puzzle', 'racket', 'rake',
  'robot', 'seeds', 'skis', 'violin',
)  # fmt: skip
STORES = 64  # different ones
TASK_DEFAULTS = {
  'levels': (1, 2, 3),  # one table; a join or a group; both and a rank
  'stores': STORES,  # databases that questions are about, 1-64
}

_SCHEMA = """
CREATE TABLE customers(
  id INTEGER PRIMARY KEY, name TEXT, city TEXT, joined INTEGER);
CREATE TABLE products(
  id INTEGER PRIMARY KEY, name TEXT, category TEXT, price INTEGER);
CREATE TABLE orders(
  id INTEGER PRIMARY KEY, customer_id INTEGER, product_id INTEGER,
  quantity INTEGER, year INTEGER);
CREATE TABLE reviews(
  id INTEGER PRIMARY KEY, customer_id INTEGER, product_id INTEGER,
  stars INTEGER);
"""
TABLES = ('customers', 'products', 'orders', 'reviews')
COLUMNS = {
  table: tuple(re.findall(r'(\w+) (?:INTEGER|TEXT)', body))
  for table, body in re.findall(r'TABLE (\w+)\(([^;]*)\);', _SCHEMA)
}

_PRODUCT_ORDERS = 'orders JOIN products ON products.id=product_id'
_CUSTOMER_ORDERS = 'orders JOIN customers ON customers.id=customer_id'
# (level, question, gold query). A query that ranks has `LIMIT k`: the measure
# it is ordered by must differ between the first k + 1 rows.
TEMPLATES = (
  (
    1,
    'How many customers live in {city}?',
    "SELECT COUNT(*) FROM customers WHERE city='{city}'",
  ),
  (
    1,
    'What does the {product} cost?',
    "SELECT price FROM products WHERE name='{product}'",
  ),
  (
    1,
    'How many {category} products cost more than {price}?',
    "SELECT COUNT(*) FROM products WHERE category='{category}' "
    'AND price>{price}',
  ),
  (
    1,
    'Which {category} product costs most?',
    "SELECT name FROM products WHERE category='{category}' "
    'ORDER BY price DESC LIMIT 1',
  ),
  (
    1,
    'Name the 3 cheapest products, cheapest first.',
    'SELECT name FROM products ORDER BY price LIMIT 3',
  ),
  (
    2,
    'How many of the {product} were ordered in all?',
    f'SELECT SUM(quantity) FROM {_PRODUCT_ORDERS} '
    "WHERE products.name='{product}'",
  ),
  (
    2,
    'How many orders did {person} place?',
    f'SELECT COUNT(*) FROM {_CUSTOMER_ORDERS} '
    "WHERE customers.name='{person}'",
  ),
  (
    2,
    'How many stars has the {product} on average?',
    'SELECT AVG(stars) FROM reviews JOIN products ON products.id=product_id '
    "WHERE products.name='{product}'",
  ),
  (
    2,
    'Which city has the most customers?',
    'SELECT city FROM customers GROUP BY city ORDER BY COUNT(*) DESC LIMIT 1',
  ),
  (
    3,
    'Which customer placed the most orders in {year}?',
    f'SELECT customers.name FROM {_CUSTOMER_ORDERS} WHERE year={{year}} '
    'GROUP BY customers.id ORDER BY COUNT(*) DESC LIMIT 1',
  ),
  (
    3,
    'Which category earned the most in {year}?',
    f'SELECT category FROM {_PRODUCT_ORDERS} WHERE year={{year}} '
    'GROUP BY category ORDER BY SUM(quantity*price) DESC LIMIT 1',
  ),
  (
    3,
    'Name the 2 cities that ordered the most pieces, most first.',
    f'SELECT city FROM {_CUSTOMER_ORDERS} GROUP BY city '
    'ORDER BY SUM(quantity) DESC LIMIT 2',
  ),
)
_RANKED = re.compile(
  r'SELECT .+? FROM (?P<body>.+) ORDER BY (?P<measure>.+?)(?P<order>| DESC) '
  r'LIMIT (?P<limit>\d+)'
)


@functools.lru_cache(maxsize=STORES)
def store(seed: int) -> bytes:
  """Builds a store's database, see `database.packed`."""
  draw = random.Random(f'store {seed}')
  return database.packed(lambda made: _fill(made, draw))


def _fill(made: sqlite3.Connection, draw: random.Random) -> None:
  """Creates the tables of a store and draws their rows."""
  made.executescript(_SCHEMA)

  def fill(table, rows):
    marks = ','.join('?' * len(COLUMNS[table]))
    made.executemany(
      f'INSERT INTO {table} VALUES({marks})',
      [(number, *row) for number, row in enumerate(rows, 1)],
    )

  people = draw.sample(PEOPLE, 18)
  years = range(2020, 2025)
  fill(
    'customers',
    [(name, draw.choice(CITIES), draw.choice(years)) for name in people],
  )
  prices = draw.sample(range(5, 100), len(PRODUCTS))
  names = draw.sample(PRODUCTS, len(PRODUCTS))
  fill(
    'products',
    [(name, draw.choice(CATEGORIES), p) for name, p in zip(names, prices)],
  )

  def pairs(number):
    for _ in range(number):
      yield draw.randint(1, len(people)), draw.randint(1, len(names))

  fill(
    'orders',
    [(*pair, draw.randint(1, 5), draw.choice(years)) for pair in pairs(120)],
  )
  fill('reviews', [(*pair, draw.randint(1, 5)) for pair in pairs(60)])


@functools.lru_cache(maxsize=4)
def _reader(seed: int) -> sqlite3.Connection:
  """A connection for gold queries while tasks are drawn."""
  return database.opened(store(seed))


def generate(
  seed: int,
  *,
  levels: Sequence[int] = TASK_DEFAULTS['levels'],
  stores: int = TASK_DEFAULTS['stores'],
) -> dict[str, Any]:
  """Draws a store and a question with one answer.

  Returns:
    `store` (a seed), `question`, `gold` (a query) and `level`.

  Raises:
    ValueError: no such level, or no store.
  """
  known = sorted({level for level, _, _ in TEMPLATES})
  if not levels or set(levels) - set(known):
    raise ValueError(f'levels={levels}: give some of {known}')
  if not 1 <= stores <= STORES:
    raise ValueError(f'stores={stores}: give 1-{STORES}')
  draw = random.Random(seed)
  usable = [each for each in TEMPLATES if each[0] in levels]
  number = draw.randrange(stores)
  while True:
    level, question, gold = draw.choice(usable)
    values = {
      'city': draw.choice(CITIES),
      'category': draw.choice(CATEGORIES),
      'product': draw.choice(PRODUCTS),
      'person': draw.choice(PEOPLE),
      'price': draw.randrange(10, 91, 10),
      'year': draw.randint(2020, 2024),
    }
    gold = gold.format(**values)
    if is_clear(_reader(number), gold):
      return {
        'store': number,
        'question': question.format(**values),
        'gold': gold,
        'level': level,
      }


def is_clear(made: sqlite3.Connection, gold: str) -> bool:
  """Says whether a gold query has an answer, and no tie for it."""
  rows = made.execute(gold).fetchall()
  if not rows or any(value in (None, 0) for row in rows for value in row):
    return False
  ranked = _RANKED.fullmatch(gold)
  if ranked is None:
    return True
  limit = int(ranked['limit'])
  measures = made.execute(
    f'SELECT {ranked["measure"]} FROM {ranked["body"]} '
    f'ORDER BY 1{ranked["order"]} LIMIT {limit + 1}'
  ).fetchall()
  return len(rows) == limit and len(set(measures)) == len(measures)


def spoil(gold: str, draw: random.Random) -> str:
  """A query that looks right and asks something else."""
  wrong = []
  if ' DESC' in gold:
    wrong.append(gold.replace(' DESC', ''))
  elif 'ORDER BY' in gold:
    wrong.append(gold.replace(' LIMIT', ' DESC LIMIT'))
  for old, new in (('SUM(', 'COUNT('), ('AVG(', 'MAX('), ('>', '<')):
    if old in gold:
      wrong.append(gold.replace(old, new))
  without = re.sub(r' WHERE .+?(?= GROUP| ORDER|$)', '', gold)
  if without != gold:
    wrong.append(without)
  return draw.choice(wrong)
