"""A language and a sampler for the gateway, without a device."""

import pathlib
import threading
import time

from loading import load

from agentrl_jax.gateway.batcher import Batcher
from agentrl_jax.gateway.server import Gateway

fakes = load(pathlib.Path(__file__).parents[1] / 'rollout' / 'rollout_fakes.py')
CONTEXT, MOST = 64, 8


class Engine(fakes.FakeEngine):
  """Says a few letters by key; `faults` are raised, `gate` is waited for."""

  def __init__(self, draw=fakes.draw_text, **options):
    super().__init__(draw, **options)
    self.context_length, self.max_turn_tokens = CONTEXT, MOST
    self.faults, self.gate = [], threading.Event()
    self.gate.set()
    self.most = 0  # slots taken at once

  def pump(self, **options):
    self.gate.wait()
    time.sleep(0.002)  # as drawing takes
    if self.faults:
      raise self.faults.pop()
    self.most = max(self.most, self.num_slots - self.num_free)
    return super().pump(**options)


class Served:
  """A gateway that answers, in a `with`."""

  def __init__(self, engine=None, seed=3, **options):
    self.engine = engine or Engine()
    self.batcher = Batcher(self.engine, **options)
    tokenizer = fakes.language().tokenizer
    self.gateway = Gateway(
      self.batcher, tokenizer, 'tiny', name='tiny', port=0, seed=seed
    )
    self.thread = threading.Thread(target=self.gateway.serve)

  def __enter__(self):
    self.thread.start()
    return self

  def __exit__(self, *_):
    self.engine.gate.set()
    self.gateway.close()
    self.thread.join(10)
    assert not self.thread.is_alive()
