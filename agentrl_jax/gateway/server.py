"""A policy behind an endpoint that speaks OpenAI's chat protocol.

Any number of clients share the slots of one sampler. What the server cannot do
is refused with the protocol's error object, never ignored.
"""

import contextlib
import http.server
import itertools
import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from agentrl_jax import rng
from agentrl_jax.gateway import questions
from agentrl_jax.gateway.batcher import Batcher
from agentrl_jax.gateway.questions import Refused
from agentrl_jax.sampler.lane import Completion
from agentrl_jax.text import chat, templates
from agentrl_jax.text import tools as tool_calls
from agentrl_jax.text.tokenizer import Tokenizer

_LARGEST_BODY = 16 * 2**20  # bytes
_PATIENCE_S = 60.0  # for a client to send what it announced
_GOODBYE_S = 10.0  # for answers to be written at the end


class Gateway:
  """The server; `address` is where it listens once it was made.

  Args:
    batcher: what draws.
    tokenizer, style: of the policy.
    name: of the model, as clients ask for it.
    host, port: to listen at; port 0 = any free one.
    seed: of draws whose request has none; None = another each time.
    top_p, top_k: the sampler's; it has one for all.

  Raises:
    OSError: the address is taken.
  """

  def __init__(
    self,
    batcher: Batcher,
    tokenizer: Tokenizer,
    style: str | chat.Style,
    *,
    name: str,
    host: str = '127.0.0.1',
    port: int = 8000,
    seed: int | None = None,
    top_p: float = 1.0,
    top_k: int = 0,
  ):
    self.name = name
    self._tokenizer, self._style = tokenizer, style
    self._batcher = batcher
    self._seed = secrets.randbits(63) if seed is None else seed
    self._limits = questions.Limits(
      model=name,
      context_length=batcher.engine.context_length,
      max_tokens=batcher.engine.max_turn_tokens,
      top_p=top_p,
      top_k=top_k,
    )
    self._started = int(time.time())
    self._answering, self._changed = 0, threading.Condition()
    self._served = False
    self._numbers = itertools.count()
    self._server = _Server((host, port), self)
    self.address = 'http://{}:{}/v1'.format(*self._server.server_address[:2])

  def serve(self) -> None:
    """Answers until `close` is called from another thread."""
    self._served = True
    self._server.serve_forever(poll_interval=0.1)

  def close(self) -> None:
    """Takes no more requests and ends when those under way are answered."""
    if self._served:
      self._server.shutdown()
    self._batcher.close()
    with self._changed:
      self._changed.wait_for(lambda: not self._answering, _GOODBYE_S)
    self._server.server_close()

  @contextlib.contextmanager
  def answering(self) -> Iterator[None]:
    """Holds `close` up."""
    with self._changed:
      self._answering += 1
    try:
      yield
    finally:
      with self._changed:
        self._answering -= 1
        self._changed.notify_all()

  @property
  def fault(self) -> str:
    """Why nothing can be answered any more; '' = it can."""
    return self._batcher.fault

  def models(self) -> dict[str, Any]:
    """Answers GET /v1/models."""
    model = {
      'id': self.name,
      'object': 'model',
      'created': self._started,
      'owned_by': 'agentrl_jax',
    }
    return {'object': 'list', 'data': [model]}

  def complete(self, body: Any) -> dict[str, Any]:
    """Answers POST /v1/chat/completions.

    Args:
      body: the request, parsed.

    Raises:
      Refused: it cannot be answered as it stands.
    """
    asked = questions.read(body, self._tokenizer, self._style, self._limits)
    number = next(self._numbers)
    done = [each.result() for each in self._draw(asked, number)]
    sampled = sum(len(each.tokens) for each in done)
    return {
      'id': f'chatcmpl-{self._seed:x}-{number}',
      'object': 'chat.completion',
      'created': int(time.time()),
      'model': self.name,
      'choices': [
        self._choice(asked, f'{number}_{i}', each) | {'index': i}
        for i, each in enumerate(done)
      ],
      'usage': {
        'prompt_tokens': len(asked.prompt),
        'completion_tokens': sampled,
        'total_tokens': len(asked.prompt) + sampled,
      },
    }

  def _draw(self, asked: questions.Question, number: int):
    """The same seed draws the same, whoever else is answered meanwhile."""
    given = asked.seed is not None
    key = ('seed', asked.seed) if given else (self._seed, number)
    return self._batcher.submit(
      asked.prompt,
      words=[rng.words('gateway', *key, i) for i in range(asked.samples)],
      temperature=asked.temperature,
      budget=asked.budget,
    )

  def _choice(self, asked, name: str, done: Completion) -> dict[str, Any]:
    style = self._style
    text = templates.completion_text(self._tokenizer, style, done.tokens)
    cuts = [text.find(stop) for stop in asked.stop if stop in text]
    text = text[: min(cuts)] if cuts else text
    message: dict[str, Any] = {'role': 'assistant', 'content': text}
    reason = 'stop' if done.stopped or cuts else 'length'
    if asked.schemas:
      told = tool_calls.parse(text, style, asked.schemas)
      if told.calls:
        reason, message['content'] = 'tool_calls', told.content or None
        message['tool_calls'] = [
          {
            'id': f'call_{self._seed:x}_{name}_{i}',
            'type': 'function',
            'function': {
              'name': call.name,
              'arguments': json.dumps(dict(call.arguments)),
            },
          }
          for i, call in enumerate(told.calls)
        ]
    return {
      'message': message,
      'finish_reason': reason,
      'logprobs': self._logprobs(done) if asked.logprobs else None,
    }

  def _logprobs(self, done: Completion) -> dict[str, Any]:
    """Of all tokens that were sampled, the end token included."""
    decode = self._tokenizer.decode
    tokens = [decode([token]) for token in done.tokens]
    content = [
      {
        'token': text,
        'logprob': float(logprob),
        'bytes': None,  # a token may be a part of a character
        'top_logprobs': [],
      }
      for text, logprob in zip(tokens, done.logprobs, strict=True)
    ]
    return {'content': content}


def _parsed(data: bytes) -> Any:
  try:
    return json.loads(data)
  except (ValueError, RecursionError) as error:
    raise Refused(400, f'the body is not JSON: {error}') from error


class _Server(http.server.ThreadingHTTPServer):
  daemon_threads = True  # an idle client holds nobody up
  request_queue_size = 256

  def __init__(self, address: tuple[str, int], gateway: Gateway):
    self.gateway = gateway
    super().__init__(address, _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
  """One request a connection, so that closing waits for nobody who is idle."""

  server: _Server
  timeout = _PATIENCE_S
  server_version = 'agentrl_jax'

  def do_GET(self) -> None:  # noqa: N802 (the library's name)
    if self.path.rstrip('/') == '/v1/models':
      self._send(200, self.server.gateway.models())
    else:
      self._refuse(Refused(404, f'no {self.path}', code='not_found'))

  def do_POST(self) -> None:  # noqa: N802
    with self.server.gateway.answering():
      self._post()

  def _post(self) -> None:
    try:
      data = self._read()  # all of it, or the client cannot hear the answer
      if self.path.rstrip('/') != '/v1/chat/completions':
        raise Refused(404, f'no {self.path}', code='not_found')
      self._send(200, self.server.gateway.complete(_parsed(data)))
    except Refused as error:
      self._refuse(error)
    except (TimeoutError, ConnectionError):
      self.close_connection = True  # nobody is there any more
    except Exception as error:  # noqa: BLE001 (the next request may be served)
      self._refuse(Refused(500, f'{type(error).__name__}: {error}'))

  def _read(self) -> bytes:
    length = self.headers.get('Content-Length', '')
    if not length.isdecimal():
      raise Refused(411, 'a Content-Length is needed')
    left = int(length)
    if left <= _LARGEST_BODY:
      return self.rfile.read(left)
    left = min(left, 8 * _LARGEST_BODY)
    while left > 0 and (data := self.rfile.read(min(left, 2**16))):
      left -= len(data)
    raise Refused(413, f'more than {_LARGEST_BODY} bytes')

  def _refuse(self, error: Refused) -> None:
    self._send(error.status, error.body())

  def _send(self, status: int, answer: Mapping[str, Any]) -> None:
    data = json.dumps(answer).encode()
    try:
      self.send_response(status)
      self.send_header('Content-Type', 'application/json')
      self.send_header('Content-Length', str(len(data)))
      self.end_headers()
      self.wfile.write(data)
    except (ConnectionError, TimeoutError):
      self.close_connection = True

  def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
    """Keeps quiet: a training run prints."""
