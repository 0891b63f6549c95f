"""For how long does at least one thread keep the devices busy?"""

import threading
import time
from collections.abc import Callable


class Busy:
  """Adds up the time in which at least one thread is inside: `with busy:`.

  Args:
    clock: tells the time in seconds.
  """

  def __init__(self, clock: Callable[[], float] = time.monotonic):
    self._clock = clock
    self._lock = threading.Lock()
    self._inside, self._since, self._total = 0, 0.0, 0.0

  def __enter__(self) -> None:
    with self._lock:
      if not self._inside:
        self._since = self._clock()
      self._inside += 1

  def __exit__(self, *_) -> None:
    with self._lock:
      self._inside -= 1
      if not self._inside:
        self._total += self._clock() - self._since

  def take(self) -> float:
    """Returns the seconds since it was asked last."""
    with self._lock:
      now, total = self._clock(), self._total
      if self._inside:
        total += now - self._since
        self._since = now
      self._total = 0.0
      return total
