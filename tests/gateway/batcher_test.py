"""Requests that cannot be drawn are told; the others go on."""

import pathlib

import numpy as np
import pytest
from loading import load

from agentrl_jax.gateway.batcher import Batcher
from agentrl_jax.gateway.questions import Refused

made = load(pathlib.Path(__file__).with_name('gateway_fakes.py'))


class Picky(made.Engine):
  """Takes no prompt that begins with 13."""

  def request(self, slot, tokens, **options):
    if tokens[0] == 13:
      raise ValueError('unlucky')
    super().request(slot, tokens, **options)


def submit(batcher, first, num=1):
  words = [np.array([first, i], np.uint32) for i in range(num)]
  return batcher.submit([first], words=words, temperature=1.0, budget=8)


def test_a_request_that_the_sampler_refuses_ends_alone():
  batcher = Batcher(Picky())
  jobs = [job for first in (1, 13, 2, 13) for job in submit(batcher, first)]
  for job, refused in zip(jobs, (False, True, False, True), strict=True):
    error = job.exception(10)
    assert isinstance(error, ValueError) if refused else error is None
  assert submit(batcher, 3)[0].result(10).tokens
  batcher.close()
  assert batcher.engine.num_free == batcher.engine.num_slots
  assert batcher.fault == ''


def test_nothing_is_taken_after_the_end():
  batcher = Batcher(made.Engine())
  batcher.close()
  batcher.close()
  with pytest.raises(Refused, match='closing'):
    submit(batcher, 1)


def test_a_fault_is_told_to_all_and_kept():
  engine = made.Engine()
  engine.gate.clear()
  batcher = Batcher(engine)
  jobs = submit(batcher, 1, num=9)
  engine.faults.append(OSError('gone'))
  engine.gate.set()
  assert {repr(job.exception(10)) for job in jobs} == {"OSError('gone')"}
  with pytest.raises(Refused, match='OSError: gone'):
    submit(batcher, 1)
  batcher.close()
