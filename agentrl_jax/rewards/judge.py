"""Who answers when a judge is asked? An endpoint or a function.

Answers are waited for so long and no longer, retried with growing pauses, and
kept on disk: the same question is asked once, in this run and in the next.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Messages = Sequence[Mapping[str, str]]
Complete = Callable[[Messages], str]
_LONGEST_PAUSE_S = 60.0
_LONGEST_REPLY = 200_000  # letters; what is nested takes long to read


class Unusable(ValueError):
  """A reply from which nothing can be read."""


class JudgeError(RuntimeError):
  """No usable reply after all attempts."""


def endpoint(
  *,
  model: str,
  base_url: str = '',
  api_key_env: str = 'OPENAI_API_KEY',
  timeout_s: float = 60.0,
  temperature: float | None = None,
) -> Complete:
  """Returns `complete(messages)` of any server that speaks OpenAI's protocol.

  Args:
    model: name that the server knows.
    base_url: such as 'http://localhost:8000/v1'; '' for OpenAI's own.
    api_key_env: environment variable with the key; a local server needs none.
    timeout_s: of one request, seconds.
    temperature: None leaves it to the server.

  Raises:
    ImportError: the client is not installed.
    ValueError: OpenAI's own server without a key.
  """
  try:
    import openai
  except ImportError as error:
    raise ImportError(
      "a judge behind an endpoint needs the client: pip install 'openai', or "
      "agentrl_jax[judge]; or give judge='package.module:complete'"
    ) from error
  key = os.environ.get(api_key_env, '')
  if not (key or base_url):
    raise ValueError(
      f'no key in ${api_key_env}: set it, or base_url for another server'
    )
  client = openai.OpenAI(
    api_key=key or 'none',
    base_url=base_url or None,
    timeout=timeout_s,
    max_retries=0,  # `Judge` counts its own
  )
  more = {} if temperature is None else {'temperature': temperature}

  def complete(messages: Messages) -> str:
    answer = client.chat.completions.create(
      model=model, messages=list(messages), **more
    )
    return answer.choices[0].message.content or ''

  return complete


class Judge:
  """Asks until something can be read; counts what that took.

  Args:
    complete: messages -> text.
    name: of the judge, part of what the cache goes by.
    timeout_s: of one attempt, seconds; a function that hangs is left behind.
    retries: attempts after the first.
    backoff_s: pause before the first retry, doubled before each other one.
    cache: directory; '' = none.
    sleep: what makes the pauses.
  """

  def __init__(
    self,
    complete: Complete,
    *,
    name: str,
    timeout_s: float = 60.0,
    retries: int = 3,
    backoff_s: float = 1.0,
    cache: str = '',
    sleep: Callable[[float], None] = time.sleep,
  ):
    self._complete, self._name = complete, name
    self._timeout_s, self._retries = timeout_s, retries
    self._backoff_s, self._sleep = backoff_s, sleep
    self._cache = pathlib.Path(cache).expanduser() if cache else None
    self._lock = threading.Lock()
    self._counts: dict[str, float] = {}

  def ask(self, messages: Messages, read: Callable[[str], Any]) -> Any:
    """Returns what `read` makes of the first reply that it can read.

    Args:
      messages: of the question.
      read: text -> value; raises `Unusable` for another try.

    Raises:
      JudgeError: no attempt gave a reply that can be read; names the last
        reason.
    """
    file = self._file(messages)
    if file is not None:
      # Not there or damaged: ask.
      with contextlib.suppress(OSError, KeyError, ValueError):
        value = read(json.loads(file.read_text(encoding='utf-8'))['reply'])
        self.count('cached')
        return value
    reason = ''
    for attempt in range(self._retries + 1):
      if attempt:
        self.count('retries')
        pause = self._backoff_s * 2 ** (attempt - 1)
        self._sleep(min(pause, _LONGEST_PAUSE_S))
      try:
        text = self._reply(messages)
        value = read(text)
      except Exception as error:  # noqa: BLE001 (a judge's fault is data)
        reason = f'{type(error).__name__}: {error}'
        continue
      if file is not None:
        with contextlib.suppress(OSError):  # a full disk is no judge's fault
          _write(file, {'judge': self._name, 'reply': text})
      return value
    self.count('failed')
    raise JudgeError(f'{self._retries + 1} attempts, the last: {reason:.300}')

  def count(self, what: str, amount: float = 1.0) -> None:
    """Adds to a counter."""
    with self._lock:
      self._counts[what] = self._counts.get(what, 0.0) + amount

  def drain(self) -> dict[str, float]:
    """Returns the counters and sets them to zero."""
    with self._lock:
      counts, self._counts = self._counts, {}
    return counts

  def _reply(self, messages: Messages) -> str:
    """Calls the judge in a thread of its own, so that time can run out."""
    box: dict[str, Any] = {}

    def call():
      try:
        box['text'] = self._complete(messages)
      except Exception as error:  # noqa: BLE001 (raised again by who waits)
        box['error'] = error

    self.count('calls')
    start = time.monotonic()
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(self._timeout_s)
    self.count('seconds', time.monotonic() - start)
    if 'error' in box:
      raise box['error']
    if 'text' not in box:
      raise TimeoutError(f'no reply within {self._timeout_s:g} s')
    if not isinstance(box['text'], str):
      raise Unusable(f'a reply that is no text: {box["text"]!r:.80}')
    if len(box['text']) > _LONGEST_REPLY:
      raise Unusable(f'a reply of more than {_LONGEST_REPLY} letters')
    return box['text']

  def _file(self, messages: Messages) -> pathlib.Path | None:
    if self._cache is None:
      return None
    text = json.dumps([self._name, list(messages)], sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()
    return self._cache / key[:2] / f'{key}.json'


def _write(file: pathlib.Path, data: Mapping[str, Any]) -> None:
  """Replaces the file at once: threads and runs may share a cache."""
  file.parent.mkdir(parents=True, exist_ok=True)
  partial = file.with_suffix(f'.{os.getpid()}_{threading.get_ident()}')
  partial.write_text(json.dumps(data), encoding='utf-8')
  partial.replace(file)
