"""Attempts, pauses, time-outs, the cache; a real client and a bad server."""

import contextlib
import http.server
import json
import sys
import threading
import time

import pytest

from agentrl_jax.rewards import judge

ASKED = [{'role': 'user', 'content': 'score?'}]


class Script:
  """Answers with the next of its replies; an exception is raised."""

  def __init__(self, *replies):
    self.replies, self.calls = list(replies), []

  def __call__(self, messages):
    self.calls.append(messages)
    reply = self.replies.pop(0)
    if isinstance(reply, Exception):
      raise reply
    return reply


def number(text):
  if not text.isdigit():
    raise judge.Unusable(f'no number: {text}')
  return int(text)


def make(*replies, **options):
  script, pauses = Script(*replies), []
  options = {'name': 'script', 'sleep': pauses.append, **options}
  return judge.Judge(script, **options), script, pauses


def test_a_reply_that_can_be_read_is_the_answer():
  one, script, pauses = make('7')
  assert one.ask(ASKED, number) == 7
  assert script.calls == [ASKED] and not pauses
  counts = one.drain()
  assert counts.pop('seconds') >= 0
  assert counts == {'calls': 1.0} and one.drain() == {}


def test_pauses_double():
  one, _, pauses = make(OSError('down'), 'what?', None, '7', backoff_s=0.5)
  assert one.ask(ASKED, number) == 7
  assert pauses == [0.5, 1.0, 2.0]
  counts = one.drain()
  assert (counts['calls'], counts['retries']) == (4.0, 3.0)
  assert 'failed' not in counts


def test_no_usable_reply_is_an_error_that_names_the_last_reason():
  one, _, _ = make('a', 'b', OSError('down'), retries=2)
  with pytest.raises(judge.JudgeError, match='3 attempts, .*OSError: down'):
    one.ask(ASKED, number)
  assert one.drain()['failed'] == 1.0


def test_who_hangs_is_left_behind():
  release = threading.Event()
  replies = [lambda: release.wait(30) and '1', lambda: '7']
  one = judge.Judge(
    lambda messages: replies.pop(0)(),
    name='slow',
    timeout_s=0.05,
    sleep=lambda s: None,
  )
  start = time.monotonic()
  assert one.ask(ASKED, number) == 7  # the late 1 reaches nobody
  assert time.monotonic() - start < 2
  release.set()


def test_the_same_question_is_asked_once(tmp_path):
  options = {'cache': str(tmp_path / 'cache')}
  one, script, _ = make('what?', '7', **options)
  assert one.ask(ASKED, number) == 7
  assert one.ask(ASKED, number) == 7
  assert len(script.calls) == 2 and one.drain()['cached'] == 1.0
  again, script, _ = make(**options)  # another run; it would have no reply
  assert again.ask(ASKED, number) == 7 and not script.calls
  other, script, _ = make('8', name='another judge', **options)
  assert other.ask(ASKED, number) == 8
  assert not list(tmp_path.rglob('*.[0-9]*'))  # no half-written file
  for file in tmp_path.rglob('*.json'):
    file.write_text('{"reply": "wha')
  damaged, script, _ = make('9', **options)
  assert damaged.ask(ASKED, number) == 9 and len(script.calls) == 1


def test_a_cache_that_cannot_be_written_costs_no_reply(tmp_path):
  (tmp_path / 'file').write_text('')
  one, script, _ = make('7', '8', cache=str(tmp_path / 'file' / 'cache'))
  assert (one.ask(ASKED, number), one.ask(ASKED, number)) == (7, 8)
  assert 'failed' not in one.drain() and len(script.calls) == 2


def test_an_endless_reply_is_not_read():
  def read(text):
    raise AssertionError(len(text))

  one, _, _ = make('{"a":' * 200_000, retries=0)
  with pytest.raises(judge.JudgeError, match='more than 200000 letters'):
    one.ask(ASKED, read)


class Handler(http.server.BaseHTTPRequestHandler):
  """Plays the server's `plan`: a status and a text, or seconds to sleep."""

  def do_POST(self):
    body = self.rfile.read(int(self.headers['Content-Length']))
    self.server.seen.append(json.loads(body))
    step = self.server.plan.pop(0)
    if isinstance(step, float):
      time.sleep(step)
      step = 200, '1'  # too late
    status, text = step
    message = {'role': 'assistant', 'content': text}
    choice = {'index': 0, 'finish_reason': 'stop', 'message': message}
    fields = {'id': 'x', 'object': 'chat.completion', 'created': 0}
    reply = {**fields, 'model': 'm', 'choices': [choice]}
    data = json.dumps(reply if status == 200 else {'error': text}).encode()
    self.send_response(status)
    self.send_header('Content-Type', 'application/json')
    self.send_header('Content-Length', str(len(data)))
    self.end_headers()
    with contextlib.suppress(BrokenPipeError):  # the client has left
      self.wfile.write(data)

  def log_message(self, *_):
    pass


@pytest.fixture
def server():
  made = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
  made.seen, made.plan = [], []
  thread = threading.Thread(
    target=made.serve_forever, args=(0.02,), daemon=True
  )
  thread.start()
  yield made
  made.shutdown()
  made.server_close()


def test_an_endpoint_with_500s_and_a_slow_reply(server):
  pytest.importorskip('openai')
  server.plan = [(500, 'oops'), 1.0, (200, 'prose'), (200, '7')]
  url = f'http://127.0.0.1:{server.server_port}/v1'
  complete = judge.endpoint(
    model='m', base_url=url, timeout_s=0.4, temperature=0.0
  )
  pauses = []
  one = judge.Judge(complete, name='m', timeout_s=5, sleep=pauses.append)
  assert one.ask(ASKED, number) == 7
  assert len(server.seen) == 4 and pauses == [1.0, 2.0, 4.0]
  assert server.seen[0] == {
    'model': 'm',
    'messages': ASKED,
    'temperature': 0.0,
  }


def test_an_endpoint_says_what_it_lacks(monkeypatch):
  pytest.importorskip('openai')
  monkeypatch.delenv('OPENAI_API_KEY', raising=False)
  with pytest.raises(ValueError, match='no key in .OPENAI_API_KEY'):
    judge.endpoint(model='m')
  monkeypatch.setitem(sys.modules, 'openai', None)
  with pytest.raises(ImportError, match=r'agentrl_jax\[judge\]'):
    judge.endpoint(model='m', base_url='http://localhost/v1')
