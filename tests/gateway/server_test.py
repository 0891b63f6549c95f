"""Clients get what the sampler draws, each their own, and faults by name."""

import http.client
import json
import pathlib
import socket
import threading
import time
import urllib.parse
from concurrent import futures

import pytest
from loading import load

from agentrl_jax.text import templates

made = load(pathlib.Path(__file__).with_name('gateway_fakes.py'))
Engine, Served, fakes = made.Engine, made.Served, made.fakes
openai = pytest.importorskip('openai')
HELLO = [{'role': 'user', 'content': 'search flights'}]


def client(served):
  return openai.OpenAI(
    api_key='none', base_url=served.gateway.address, max_retries=0, timeout=20
  )


def ask(served, **options):
  return client(served).chat.completions.create(
    model='tiny', messages=HELLO, **options
  )


def post(served, body, path='/v1/chat/completions', headers=None):
  """(status, JSON) of a raw request."""
  url = urllib.parse.urlsplit(served.gateway.address)
  connection = http.client.HTTPConnection(url.hostname, url.port, timeout=20)
  connection.request('POST', path, body, headers or {})
  answer = connection.getresponse()
  out = answer.status, json.loads(answer.read())
  connection.close()
  return out


def test_an_answer_is_what_was_drawn():
  with Served() as served:
    answer = ask(served, n=2, logprobs=True, temperature=0.5)
    assert [m.id for m in client(served).models.list()] == ['tiny']
  words, temperature, budget = zip(*served.engine.requests)
  assert temperature == (0.5, 0.5) and budget == (8, 8)
  assert len(set(words)) == 2  # two draws, two keys
  for choice in answer.choices:
    tokens = choice.logprobs.content
    assert ''.join(t.token for t in tokens[:-1]) == choice.message.content
    assert choice.finish_reason == 'stop' and len(tokens) >= 2
    assert all(t.logprob < 0 for t in tokens)
  sampled = sum(len(c.logprobs.content) for c in answer.choices)
  assert answer.usage.completion_tokens == sampled
  assert served.engine.num_free == served.engine.num_slots


def test_the_same_seed_draws_the_same_under_any_load():
  def text(served, seed):
    return ask(served, seed=seed).choices[0].message.content

  with Served() as served:
    alone = [text(served, seed) for seed in range(6)]
    with futures.ThreadPoolExecutor(24) as pool:
      crowd = list(pool.map(lambda i: text(served, i % 6), range(48)))
    unseeded = {tuple(r[0]) for r in served.engine.requests}
    ask(served)
    ask(served)
  assert crowd == alone * 8 and len(set(alone)) > 1
  keys = [tuple(r[0]) for r in served.engine.requests[-2:]]
  assert keys[0] != keys[1] and not set(keys) & unseeded
  assert served.engine.most == served.engine.num_slots  # side by side
  assert served.engine.num_free == served.engine.num_slots


def test_a_text_that_ends_an_answer_is_not_in_it():
  with Served() as served:
    whole = ask(served, seed=1).choices[0].message.content
    cut = ask(served, seed=1, stop=[whole[-1]]).choices[0]
  assert cut.message.content == '' and cut.finish_reason == 'stop'


def test_an_answer_that_was_cut_says_so():
  def endless(words, context):
    return fakes.language().tokenizer.encode('abc'), False

  with Served(Engine(endless)) as served:
    assert ask(served).choices[0].finish_reason == 'length'


def test_calls_come_apart_from_the_text():
  written = '<tool_call>{"name":"look","args":{"at":"here"}}</tool_call>'
  tokenizer = fakes.language().tokenizer

  def call(words, context):
    message = {'role': 'assistant', 'content': written}
    return list(templates.completion_ids(tokenizer, 'tiny', message)), True

  tool = {
    'type': 'function',
    'function': {
      'name': 'look',
      'parameters': {'type': 'object', 'properties': {'at': {}}},
    },
  }
  with Served(Engine(call)) as served:
    (choice,) = ask(served, tools=[tool]).choices
  (made,) = choice.message.tool_calls
  assert choice.finish_reason == 'tool_calls'
  assert made.function.name == 'look'
  assert json.loads(made.function.arguments) == {'at': 'here'}


def test_refusals_reach_the_client_by_their_names():
  with Served() as served:
    with pytest.raises(openai.NotFoundError) as caught:
      client(served).chat.completions.create(model='x', messages=HELLO)
    assert caught.value.code == 'model_not_found'
    with pytest.raises(openai.BadRequestError) as caught:
      ask(served, stream=True)
    assert caught.value.param == 'stream'
    assert post(served, b'{"a"')[0] == 400
    assert post(served, b'[' * 99_999)[0] == 400
    assert post(served, b'\xff\xfe')[0] == 400
    assert post(served, b'{}', path='/v1/embeddings')[0] == 404
    assert post(served, b' ' * (17 * 2**20))[0] == 413
    assert post(served, b'', headers={'Content-Length': 'x'})[0] == 411
    assert ask(served).choices  # and goes on


def test_a_client_that_leaves_takes_nobody_with_it():
  with Served() as served:
    served.engine.gate.clear()
    url = urllib.parse.urlsplit(served.gateway.address)
    for sent in (b'', b'POST /v1/chat/completions HTTP/1.1\r\nContent-Le'):
      socket.create_connection((url.hostname, url.port)).sendall(sent)
    body = json.dumps({'messages': HELLO}).encode()
    head = f'POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(body)}'
    gone = socket.create_connection((url.hostname, url.port))
    gone.sendall(head.encode() + b'\r\n\r\n' + body)
    gone.close()
    served.engine.gate.set()
    assert ask(served).choices
  assert served.engine.num_free == served.engine.num_slots


def test_closing_answers_what_was_asked():
  with Served() as served:
    served.engine.gate.clear()
    with futures.ThreadPoolExecutor(8) as pool:
      asked = [pool.submit(ask, served, seed=i) for i in range(8)]
      wait_for(lambda: served.batcher._open == 8)
      closing = threading.Thread(target=served.gateway.close)
      closing.start()
      wait_for(lambda: served.batcher._closed)
      served.engine.gate.set()
      assert all(each.result(20).choices for each in asked)
    closing.join(20)
    assert not closing.is_alive()


def test_too_many_are_told_to_come_back():
  with Served(most_waiting=1) as served:
    served.engine.gate.clear()
    with futures.ThreadPoolExecutor(8) as pool:
      asked = [pool.submit(ask, served) for _ in range(4)]  # 3 slots and 1
      wait_for(lambda: served.batcher._open == 4)
      with pytest.raises(openai.RateLimitError):
        ask(served)
      served.engine.gate.set()
      assert all(each.result(20).choices for each in asked)
    assert ask(served).choices


def test_all_answers_of_a_request_have_a_place_or_none():
  with Served(most_waiting=1) as served:
    with pytest.raises(openai.RateLimitError):
      ask(served, n=5)  # 3 slots and 1
    assert len(ask(served, n=4).choices) == 4
  assert len(served.engine.requests) == 4


def test_two_servers_draw_apart():
  with Served(seed=None) as served, Served(seed=None) as other:
    ids = {ask(each).id for each in (served, served, other)}
  words = [r[0] for r in (*served.engine.requests, *other.engine.requests)]
  assert len(ids) == len(set(words)) == 3


def test_closing_a_server_that_never_answered():
  served = Served()
  closing = threading.Thread(target=served.gateway.close, daemon=True)
  closing.start()
  closing.join(10)
  assert not closing.is_alive()


def test_a_sampler_that_fails_fails_every_answer_and_nothing_hangs():
  with Served() as served:
    served.engine.faults.append(RuntimeError('out of memory'))
    with pytest.raises(openai.InternalServerError, match='out of memory'):
      ask(served)
    with pytest.raises(openai.InternalServerError) as caught:
      ask(served)
    assert caught.value.status_code == 503
    assert 'out of memory' in str(caught.value)
    assert 'out of memory' in served.gateway.fault


def wait_for(condition, seconds=10):
  end = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < end
    time.sleep(0.01)
