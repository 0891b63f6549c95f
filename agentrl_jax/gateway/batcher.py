"""One sampler for many threads: requests wait for a slot as they came."""

import queue
import threading
from collections import deque
from collections.abc import Sequence
from concurrent import futures

import numpy as np

from agentrl_jax.gateway.questions import Refused
from agentrl_jax.sampler.engine import Engine
from agentrl_jax.sampler.lane import Completion


class Batcher:
  """Draws turns for many threads at once; each context is forgotten after it.

  Args:
    engine: with weights published; nobody else uses it.
    most_waiting: requests without a slot at most.

  Attributes:
    fault: of the sampler, after which nothing is drawn any more; '' = none.
  """

  def __init__(self, engine: Engine, *, most_waiting: int = 1024):
    self.engine = engine
    self._most = most_waiting
    self._jobs: queue.SimpleQueue = queue.SimpleQueue()
    self._open, self._lock = 0, threading.Lock()
    self._closed, self.fault = False, ''
    self._thread = threading.Thread(
      target=self._run, name='batcher', daemon=True
    )
    self._thread.start()

  def submit(
    self,
    prompt: Sequence[int],
    *,
    words: Sequence[np.ndarray],
    temperature: float,
    budget: int,
  ) -> 'list[futures.Future[Completion]]':
    """Asks for a turn a key, see `Engine.request`: for all of them or none.

    Raises:
      Refused: too many wait, or the server is closing.
    """
    with self._lock:
      if self._closed:
        reason = self.fault or 'the server is closing'
        raise Refused(503, reason, code='closing')
      most = self._most + self.engine.num_slots
      if self._open + len(words) > most:
        raise Refused(
          429, f'{self._open} of {most} requests are open already', code='busy'
        )
      self._open += len(words)
      jobs = [futures.Future() for _ in words]
      for job, key in zip(jobs, words):
        self._jobs.put((job, list(prompt), key, temperature, budget))
    return jobs

  def close(self) -> None:
    """Answers what was asked so far, then stops."""
    with self._lock:
      if not self._closed:
        self._closed = True
        self._jobs.put(None)
    self._thread.join()

  def _run(self) -> None:
    waiting: deque = deque()
    drawn: dict[int, futures.Future] = {}
    last = False
    try:
      while not last or waiting or drawn:
        last |= self._receive(waiting, block=not (last or waiting or drawn))
        while waiting and (slot := self.engine.acquire()) is not None:
          drawn[slot], *asked = waiting.popleft()
          try:
            self._ask(slot, *asked)
          except ValueError as error:  # of this request alone
            self.engine.release(slot)
            self._answered(drawn.pop(slot), error)
        for completion in self.engine.pump() if drawn else ():
          self.engine.release(completion.slot)
          self._answered(drawn.pop(completion.slot), completion)
    except Exception as error:  # noqa: BLE001 (whoever waits is told)
      self._fail(error, [*drawn.values(), *(job[0] for job in waiting)])

  def _ask(self, slot, prompt, words, temperature, budget) -> None:
    self.engine.request(
      slot, prompt, words=words, temperature=temperature, budget=budget
    )

  def _receive(self, waiting: deque, block: bool) -> bool:
    """Takes in what was asked meanwhile; whether that was the last."""
    while True:
      try:
        job = self._jobs.get(block=block)
      except queue.Empty:
        return False
      if job is None:
        return True
      waiting.append(job)
      block = False

  def _answered(self, job: futures.Future, answer: Completion | Exception):
    with self._lock:
      self._open -= 1
    if isinstance(answer, Exception):
      job.set_exception(answer)
    else:
      job.set_result(answer)

  def _fail(self, error: Exception, jobs: list[futures.Future]) -> None:
    with self._lock:
      self._closed = True
      self.fault = f'the sampler failed: {type(error).__name__}: {error}'
    late: deque = deque()
    self._receive(late, block=False)
    for job in [*jobs, *(each[0] for each in late)]:
      job.set_exception(error)
