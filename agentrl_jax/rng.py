"""Random streams by name and index; nothing is threaded through the loop.

A stream is a hash of what it is for. Two uses with different names or indices
never share numbers, and a resumed run draws what the undisturbed run draws.
"""

import hashlib
import operator

import jax
import numpy as np


def words(*parts: int | str) -> np.ndarray:
  """Returns [2] uint32 words that depend on every part and on their order."""
  # A NumPy integer is the integer that it holds.
  plain = [p if isinstance(p, str) else operator.index(p) for p in parts]
  text = '\x1f'.join(f'{type(p).__name__}:{p}' for p in plain)
  digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
  return np.frombuffer(digest, np.uint32).copy()


def stream(*parts: int | str) -> jax.Array:
  """Returns a new-style key for device code, e.g. stream(seed, 'init')."""
  return jax.random.wrap_key_data(words(*parts), impl='threefry2x32')


def generator(*parts: int | str) -> np.random.Generator:
  """Returns a NumPy generator for host code."""
  return np.random.default_rng(words(*parts).tolist())


def sampling_words(
  seed: int,
  purpose: str,
  iteration: int,
  task: str,
  sample: int,
  attempt: int,
  turn: int,
) -> np.ndarray:
  """Returns the [2] uint32 key of one turn; positions are folded on device.

  Args:
    seed: of the run.
    purpose: 'train', 'eval', 'greedy', 'audit': never share samples.
    iteration: so that two iterations differ on the same task.
    task: name of the task.
    sample: member of the group, so that members differ.
    attempt: tells several plays of one member apart.
    turn: of the trajectory.
  """
  return words(seed, 'sample', purpose, iteration, task, sample, attempt, turn)
