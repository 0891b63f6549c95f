"""Queries read and cannot do anything else; answers are judged by execution."""

import random
import sqlite3
import time

import pytest

from agentrl_jax import types
from agentrl_jax.envs import contract, database, scripted, sql, sql_data


@pytest.mark.parametrize('options', [{}, {'rows': 3, 'levels': (1,)}])
def test_contract(options):
  contract.check_env('sql', num_tasks=2, **options)


def start(**data):
  env = sql.SqlEnv()
  given = {'store': 0, 'question': 'q?', 'gold': 'SELECT 7', 'level': 1}
  env.reset(types.Task('sql', 'test', 0, {**given, **data}))
  return env


def ask(env, text):
  result = env.step(scripted.call('query', sql=text))
  return result.observation.messages[0].content


@pytest.fixture
def env():
  made = start()
  yield made
  made.close()


def test_the_schema_can_be_explored(env):
  replies = [
    env.step(action).observation.messages[0].content
    for action in (
      scripted.call('tables'),
      scripted.call('describe', table='orders'),
      scripted.call('describe', table='secrets'),
    )
  ]
  assert replies == [
    'customers products orders reviews',
    'id customer_id product_id quantity year',
    'no table secrets',
  ]


@pytest.mark.parametrize(
  'text, reply',
  [
    ('SELECT COUNT(*) FROM customers', '18'),
    ("SELECT 1, 2.50, NULL, 'a\nb', 1e15/3", '1 | 2.5 | NULL | a b | 3333'),
    ('SELECT id FROM products ORDER BY id', '1\n2\n3\n4\nmore rows'),
    ('SELECT id FROM products WHERE id>99', 'no rows'),
    ("WITH t AS (SELECT 3 AS x) SELECT x FROM t WHERE 'abc' LIKE '%B_'", '3'),
    ('SELECT nmae FROM customers', 'no such column: nmae'),
    ('SELECT', 'incomplete input'),
    ('', 'only SELECT is allowed'),
    ('SELECT 1; SELECT 2', 'You can only execute one statement at a time.'),
  ],
)
def test_replies(env, text, reply):
  assert ask(env, text).startswith(reply)


@pytest.mark.parametrize(
  'text',
  [
    'DELETE FROM orders',
    "ATTACH '/etc/passwd' AS x",
    'PRAGMA query_only=OFF',
    'EXPLAIN SELECT 1',
    'WITH t AS (SELECT 1) DELETE FROM orders',
    "SELECT load_extension('x')",
    'SELECT random()',
    'SELECT CURRENT_TIMESTAMP',
    "SELECT date('now')",
    'SELECT sqlite_version()',
    'SELECT zeroblob(1000000000)',
    "SELECT printf('%1000000000d', 1)",
    'SELECT * FROM pragma_database_list',
    'SELECT COUNT(*) FROM pragma_table_info("orders")',
    'SELECT COUNT(*) FROM dbstat',
    "SELECT writefile('/tmp/x', 'y')",
  ],
)
def test_what_does_not_read_the_store_is_refused(env, text):
  reply = ask(env, text)
  assert any(word in reply for word in ('allowed', 'no such', 'failed'))
  assert ask(env, 'SELECT COUNT(*) FROM orders') == '120'


@pytest.mark.parametrize(
  'text',
  [
    'WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM t) '
    'SELECT COUNT(*) FROM t',
    'SELECT COUNT(*) FROM orders a, orders b, orders c, orders d',
    'SELECT COUNT(*) FROM orders a, orders b, orders c '
    f"WHERE '{'a' * 60}' LIKE '{'%a' * 20}b'",
  ],
)
def test_runaway_queries_end_soon_and_harm_nobody(env, text):
  start = time.process_time()
  assert ask(env, text) == 'the query takes too long'
  assert time.process_time() - start < 1.0
  assert ask(env, 'SELECT 1') == '1'


def test_values_cannot_grow():
  text = "replace('aaaaaaaaaa','a','aaaaaaaaaa')"
  for _ in range(3):
    text = f"replace({text},'a','aaaaaaaaaa')"
  assert 'too big' in ask(start(), f'SELECT {text}')


@pytest.mark.parametrize(
  'pattern, text',
  [
    *(('%', ''), ('a%', 'abc'), ('%c', 'abc'), ('%b%', 'abc'), ('_b_', 'abc')),
    *(('abc', 'abc'), ('', ''), ('', 'a'), ('_', ''), ('a_', 'abc')),
    *(('%a%b', 'aabab'), ('%%', 'x'), ('a%c%', 'abdc'), ('b%', 'abc')),
  ],
)
def test_like_is_sqlites(pattern, text):
  plain = sqlite3.connect(':memory:')
  (expected,) = plain.execute('SELECT ? LIKE ?', (text, pattern)).fetchone()
  plain.close()
  assert sql.is_like(pattern, text) == bool(expected)


@pytest.mark.parametrize(
  'answer, values, right',
  [
    ('7', [7], True),
    ('7.0', [7], True),
    ('2.33', [7 / 3], True),
    ('2.3', [7 / 3], False),
    ('oslo', ['Oslo'], True),
    ('Oslo, Lima', ['Oslo', 'Lima'], True),
    ('Lima,Oslo', ['Oslo', 'Lima'], False),
    ('Oslo', ['Oslo', 'Lima'], False),
    ('seven', [7], False),
    ('nan', [7], False),
    ('', [7], False),
  ],
)
def test_answers_are_compared(answer, values, right):
  assert sql.is_equal(answer, values) == right


def test_the_reward_is_by_execution():
  for value, reward in (('7', 1.0), ('8', 0.0)):
    result = start().step(scripted.call('answer', value=value))
    assert (result.reward, result.done) == (reward, True)
  assert start().step(types.Action('7')).reward == 0.0  # answer is a tool


def test_tasks_are_clear_and_every_template_comes_up():
  seen = set()
  for seed in range(300):
    data = sql_data.generate(seed)
    seen.add(data['question'].split()[0] + data['gold'][:24])
    store = database.opened(sql_data.store(data['store']))
    assert sql_data.is_clear(store, data['gold'])
    store.close()
  assert len(seen) >= 9
  levels = {sql_data.generate(s, levels=(2,))['level'] for s in range(20)}
  assert levels == {2}


def test_ties_and_empty_answers_are_not_clear():
  made = sqlite3.connect(':memory:')
  made.execute('CREATE TABLE t(name TEXT, x INTEGER)')
  made.executemany('INSERT INTO t VALUES(?,?)', [('a', 1), ('b', 3), ('c', 3)])
  for gold, clear in (
    ('SELECT name FROM t ORDER BY x LIMIT 1', True),
    ('SELECT name FROM t ORDER BY x DESC LIMIT 1', False),  # b and c
    ('SELECT name FROM t ORDER BY x LIMIT 2', False),
    ('SELECT x FROM t WHERE name="d"', False),
    ('SELECT SUM(x) FROM t WHERE name="d"', False),
    ('SELECT x FROM t WHERE name="a"', True),
  ):
    assert sql_data.is_clear(made, gold) == clear, gold
  made.close()


def test_spoilt_queries_run_and_mostly_answer_otherwise():
  draw, differ = random.Random(0), 0
  for seed in range(60):
    data = sql_data.generate(seed)
    store = database.opened(sql_data.store(data['store']))
    wrong = sql_data.spoil(data['gold'], draw)
    both = [store.execute(q).fetchall() for q in (data['gold'], wrong)]
    differ += both[0] != both[1]
    store.close()
  assert differ >= 48


@pytest.mark.parametrize('options', [{'levels': (4,)}, {'stores': 0}])
def test_impossible_options_are_errors(options):
  with pytest.raises(ValueError, match='give'):
    sql_data.generate(0, **options)
  with pytest.raises(ValueError, match='give 3-20'):
    sql.SqlEnv(rows=0)
