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
  """

  def __init__(self, engine: Engine, *, most_waiting: int = 1024):
    self.engine = engine
    self._most = most_waiting
    self._jobs: queue.SimpleQueue = queue.SimpleQueue()
    self._open, self._lock = 0, threading.Lock()
    self._closed = False
    self._thread = threading.Thread(
      target=self._run, name='batcher', daemon=True
    )
    self._thread.start()

  def submit(
    self,
    prompt: Sequence[int],
    *,
    words: np.ndarray,
    temperature: float,
    budget: int,
  ) -> 'futures.Future[Completion]':
    """Asks for one turn, see `Engine.request`.

    Raises:
      Refused: too many wait, or the server is closing.
    """
    with self._lock:
      if self._closed:
        raise Refused(503, 'the server is closing', code='closing')
      if self._open >= self._most + self.engine.num_slots:
        raise Refused(429, f'{self._most} requests wait already', code='busy')
      self._open += 1
      job: futures.Future[Completion] = futures.Future()
      self._jobs.put((job, list(prompt), words, temperature, budget))
    return job

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
          job, prompt, words, temperature, budget = waiting.popleft()
          drawn[slot] = job
          self.engine.request(
            slot, prompt, words=words, temperature=temperature, budget=budget
          )
        for completion in self.engine.pump() if drawn else ():
          self.engine.release(completion.slot)
          self._answered(drawn.pop(completion.slot), completion)
    except Exception as error:  # noqa: BLE001 (whoever waits is told)
      self._fail(error, [*drawn.values(), *(job[0] for job in waiting)])

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

  def _answered(self, job: futures.Future, completion: Completion) -> None:
    with self._lock:
      self._open -= 1
    job.set_result(completion)

  def _fail(self, error: Exception, jobs: list[futures.Future]) -> None:
    with self._lock:
      self._closed = True
    late: deque = deque()
    self._receive(late, block=False)
    for job in [*jobs, *(each[0] for each in late)]:
      job.set_exception(error)
