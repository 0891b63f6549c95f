"""Can an agent answer questions about a store by querying its database?

A real SQLite database, in memory, that cannot be written: an authorizer lets
reading statements through and nothing else, and work, memory and replies are
bounded. What is answered is compared with what the gold query returns.
"""

import dataclasses
import re
import sqlite3
from collections.abc import Mapping
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base, database, scripted, sql_data

_TEXT = {'type': 'string'}
TOOLS = (
  base.function('tables', 'Lists the tables.'),
  base.function(
    'describe', 'Lists the columns of a table.', required=['table'], table=_TEXT
  ),
  base.function(
    'query',
    'Runs one SELECT of SQLite; shows the first rows.',
    required=['sql'],
    sql=_TEXT,
  ),
  base.function(
    'answer',
    'Answers and ends: a number, a name, or names with commas between.',
    required=['value'],
    value=_TEXT,
  ),
)
CELL_CHARS = 40
MORE = 'more rows'
SQL_CHARS = 2000
# Work that one query may cause, in instructions of SQLite's virtual machine:
# some 5 ms. It is counted, not timed: the same query ends the same everywhere.
BUDGET = 200_000
_STEPS = 1000  # instructions between two looks at the budget
# Values stay short, since one instruction may take the square of a length.
_LIMITS = {
  sqlite3.SQLITE_LIMIT_LENGTH: 1000,
  sqlite3.SQLITE_LIMIT_SQL_LENGTH: SQL_CHARS * 4,  # bytes
  sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
  sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
  sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}
# Without those that depend on the clock, on chance or on the library.
_FUNCTIONS = frozenset(
  (
    *('abs', 'avg', 'ceil', 'coalesce', 'count', 'dense_rank', 'floor'),
    *('group_concat', 'ifnull', 'iif', 'instr', 'lag', 'lead', 'length'),
    *('like', 'lower', 'ltrim', 'max', 'min', 'nullif', 'rank', 'replace'),
    *('round', 'row_number', 'rtrim', 'sign', 'substr', 'substring', 'sum'),
    *('total', 'trim', 'typeof', 'upper'),
  )
)
_READABLE = frozenset((*sql_data.TABLES, 'sqlite_master', 'sqlite_schema'))


def authorize(
  action: int, first: str | None, second: str | None, database: str | None, *_
) -> int:
  """SQLite's authorizer: lets SELECT read the store, and nothing else."""
  if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
    return sqlite3.SQLITE_OK
  # Without a database it is a table of the statement's own, after WITH.
  if action == sqlite3.SQLITE_READ and (first in _READABLE or not database):
    return sqlite3.SQLITE_OK
  if action == sqlite3.SQLITE_FUNCTION and second.lower() in _FUNCTIONS:
    return sqlite3.SQLITE_OK
  return sqlite3.SQLITE_DENY


class Budget:
  """Counts work down to 0."""

  def __init__(self):
    self.left = BUDGET

  def spend(self, work: int) -> bool:
    """Returns whether the budget is used up, which stops SQLite."""
    self.left -= work
    return self.left < 0

  def like(self, pattern: Any, text: Any) -> bool | None:
    """LIKE in bounded time: SQLite's own is exponential in the '%'."""
    if pattern is None or text is None:
      return None
    pattern, text = str(pattern).lower(), str(text).lower()
    if self.spend((len(pattern) + 1) * (len(text) + 1)):
      raise ValueError('interrupted')
    return is_like(pattern, text)


def is_like(pattern: str, text: str) -> bool:
  """Matches '%' (any text) and '_' (any letter), in O(pattern * text)."""
  i = j = back = 0
  star = -1  # where the last '%' stands; `back`: where it stops in the text
  while j < len(text):
    if i < len(pattern) and pattern[i] == '%':
      star, back = i, j
      i += 1
    elif i < len(pattern) and pattern[i] in ('_', text[j]):
      i, j = i + 1, j + 1
    elif star >= 0:
      back += 1
      i, j = star + 1, back
    else:
      return False
  return not pattern[i:].strip('%')


def show(value: Any) -> str:
  """A value of a row as text: at most two decimals, no line breaks."""
  if value is None:
    return 'NULL'
  if isinstance(value, float):
    text = f'{value:.2f}'
    return text.rstrip('0').rstrip('.') if '.' in text else text
  if isinstance(value, bytes):
    value = value.hex()
  return base.clip(' '.join(str(value).split()), CELL_CHARS)


def is_equal(answer: str, values: list[Any]) -> bool:
  """Compares an answer with the gold values, in order.

  Numbers may differ by 0.005 (two decimals are shown), names by case.
  """
  parts = [part.strip() for part in answer.split(',')]
  return len(parts) == len(values) and all(map(_same, parts, values))


def _same(part: str, value: Any) -> bool:
  if isinstance(value, str):
    return part.casefold() == value.casefold()
  try:
    return abs(float(part) - value) <= 0.00501
  except ValueError:
    return False


class SqlEnv(database.DatabaseEnv):
  """Explore the schema, query, answer.

  Args:
    rows: of a reply; more are cut off, and said to be.
  """

  tools = TOOLS
  system = 'You answer questions with SQL tools.'
  revealing = ('query', 'answer')
  task_defaults = sql_data.TASK_DEFAULTS
  generate = staticmethod(sql_data.generate)
  disjoint_splits = True  # some questions recur
  rates = {
    'wrong_query': 0.5,  # looks right, asks something else
    'misspelt': 0.05,  # a column that does not exist, then the right query
    'skip_schema': 0.2,  # harmless for who knows it
    'wrong_answer': 0.1,  # answers something else than was found
    'malformed': 0.01,
  }
  card = base.Card(
    observation='tables, columns, rows of a result',
    action='tables, describe, query, answer',
    reward='1 if the answer is what the gold query returns',
    termination='answered, final answer',
    oracle='the gold query',
    state_key='schema seen, last query, last reply',
  )

  def __init__(self, *, rows: int = 4):
    super().__init__()
    if not 3 <= rows <= 20:  # answers have up to 3 rows
      raise ValueError(f'rows={rows}: give 3-20')
    self._rows = rows

  def state_key(self) -> str | None:
    """What of the schema was seen, the last query, the last reply."""
    known = ' '.join(sorted(self._known)) or '-'
    return f'known {known}\nquery {self._query}\n{self._last}'

  @classmethod
  def hidden_sibling(cls, task: types.Task) -> types.Task | None:
    """The same question about another store."""
    other = (task.data['store'] + 1) % sql_data.STORES
    return dataclasses.replace(task, data={**task.data, 'store': other})

  @staticmethod
  def script(
    task: types.Task, agent: scripted.Agent, prompt: str
  ) -> scripted.Script:
    """Looks at what the query needs, queries, answers what was found."""
    del prompt
    gold = task.data['gold']
    if not agent.errs('skip_schema'):
      yield scripted.call('tables')
      for table in sql_data.TABLES:
        if table in gold:
          yield scripted.call('describe', table=table)
    if agent.errs('wrong_query'):
      gold = sql_data.spoil(gold, agent.draw)
    if agent.errs('misspelt'):
      yield scripted.call('query', sql=gold.replace('SELECT ', 'SELECT the_'))
    found = yield scripted.call('query', sql=gold)
    names = [line for line in found.splitlines() if line != MORE]
    if agent.errs('wrong_answer'):
      names = [agent.draw.choice(('0', '1', *sql_data.CITIES))]
    yield scripted.call('answer', value=','.join(names))

  def call_tables(self, arguments: Mapping[str, Any]) -> str:
    """Names of the tables."""
    del arguments
    self._known.add('tables')
    return ' '.join(sql_data.TABLES)

  def call_describe(self, arguments: Mapping[str, Any]) -> str:
    """Columns of a table."""
    table = arguments['table']
    if table not in sql_data.COLUMNS:
      raise base.ToolError(f'no table {base.clip(table, 20)}')
    self._known.add(table)
    return ' '.join(sql_data.COLUMNS[table])

  def call_query(self, arguments: Mapping[str, Any]) -> str:
    """Runs one reading statement within its budget."""
    self._query = ' '.join(arguments['sql'].split())
    if len(arguments['sql']) > SQL_CHARS:
      self._query = self._query[:CELL_CHARS]
      raise base.ToolError(f'a query has at most {SQL_CHARS} characters')
    if not re.match(r'\s*(select|with)\b', arguments['sql'], re.IGNORECASE):
      raise base.ToolError('only SELECT is allowed')
    rows = self._select(arguments['sql'])
    lines = [' | '.join(map(show, row[:8])) for row in rows[: self._rows]]
    if len(rows) > self._rows:
      lines.append(MORE)
    return '\n'.join(lines) or 'no rows'

  def call_answer(self, arguments: Mapping[str, Any]) -> str:
    """Answers; whether it was right shows in the reward only."""
    self._answered = arguments['value']
    self._done = True
    return 'answered'

  def _start(self, task: types.Task, sample: int) -> str:
    del sample
    self._store, self._gold = task.data['store'], task.data['gold']
    self._known, self._query, self._answered = set(), '-', None
    self._acquire()
    return task.data['question']

  def _acquire(self) -> None:
    super()._acquire()
    self._database.execute('PRAGMA query_only=ON')
    for limit, value in _LIMITS.items():
      self._database.setlimit(limit, value)

  def _blob(self) -> bytes:
    return sql_data.store(self._store)

  def _select(self, sql: str) -> list[tuple]:
    """Executes under the authorizer and a budget."""
    store, budget = self._database, Budget()
    store.create_function('like', 2, budget.like)
    store.set_authorizer(authorize)
    store.set_progress_handler(lambda: budget.spend(_STEPS), _STEPS)
    try:
      return store.execute(sql).fetchmany(self._rows + 1)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
      if budget.left < 0:
        raise base.ToolError('the query takes too long') from error
      raise base.ToolError(_explain(str(error))) from error
    finally:
      store.set_progress_handler(None, 0)
      store.set_authorizer(None)

  def _judge(self, text: str) -> float:
    del text
    if self._answered is None:
      return 0.0
    rows = self._database.execute(self._gold).fetchall()
    return float(is_equal(self._answered, [row[0] for row in rows]))


def _explain(text: str) -> str:
  """What went wrong, in words that an agent can act on."""
  if 'authorized' in text or 'prohibited' in text:
    return 'only SELECT over the tables is allowed'
  return base.clip(' '.join(text.split()), 100)
