"""What every peer does: the model, the tokens, how time is taken.

The same as in `tools/bench.py`: a Qwen3-shaped policy of 4.98 M parameters
with random weights in float32, 32 rows of 128 + 128 tokens. Needs NumPy alone.
"""

import json
import os
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_DIM, FFW, VOCAB = (
  4,
  256,
  4,
  2,
  64,
  1024,
  4096,
)
BATCH, GROUP, PROMPT, NEW = 32, 8, 128, 128
TURNS, TURN_NEW, TURN_OBSERVED = 4, 32, 32
STEPS, EPISODE_PROMPT, RESPONSE, ENDS = 3, 64, 256, 128
RESERVED, NEVER = 4, -5  # ids below are not in prompts; an id never drawn
RATE, KL, CLIP = 1e-5, 0.04, 0.2


def draw(seed: int, rows: int, length: int) -> np.ndarray:
  """Returns [rows, length] int32 ids, uniform."""
  draws = np.random.default_rng(seed)
  return draws.integers(RESERVED, VOCAB, (rows, length), dtype=np.int32)


def words(ids) -> str:
  """Ids as text that `Digits` reads back."""
  return ' '.join(str(int(i)) for i in ids)


class Digits:
  """A tokenizer whose text is the ids themselves."""

  def encode(self, text, **_):
    """'5 6' -> [5, 6]; what is no id becomes one."""
    return [
      int(word)
      if word.isdigit() and int(word) < VOCAB
      else RESERVED + len(word)
      for word in text.split()
    ]

  def decode(self, ids, **_):
    """The reverse."""
    return words(ids)

  def bos_id(self):
    """Nothing is put in front."""

  def eos_id(self):
    """Its id."""
    return 2

  def pad_id(self):
    """Its id."""
    return 0


def measure(name: str, tokens: int, work: Callable[[], None]) -> None:
  """Calls `work` once cold and then BENCH_REPEATS times; prints a line."""
  start = time.perf_counter()
  work()
  cold = time.perf_counter() - start
  walls, cpus = [], []
  for _ in range(int(os.environ.get('BENCH_REPEATS', '3'))):
    start, cpu = time.perf_counter(), time.process_time()
    work()
    walls.append(time.perf_counter() - start)
    cpus.append(time.process_time() - cpu)
  tell(name, tokens, walls, cpus, compile_s=cold - statistics.median(walls))


def tell(name: str, tokens: int, walls, cpus, **more: float) -> None:
  """Prints the line of a workload, in the words of `tools/bench.py`."""
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
  line = {
    'name': name,
    'tok_per_cpu_s': round(tokens / min(cpus), 1),
    'tok_s_best': round(tokens / min(walls), 1),
    'peak_rss_mb': round(peak),
    'cores': len(os.sched_getaffinity(0)),
    **{key: round(value, 2) for key, value in more.items()},
  }
  print(json.dumps(line), flush=True)
