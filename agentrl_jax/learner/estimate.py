"""Log-probabilities and values of an iteration's tokens under some weights."""

from collections.abc import Sequence
from typing import Any

import jax

from agentrl_jax import sharding
from agentrl_jax.batch import TokenBatch
from agentrl_jax.learner import objective
from agentrl_jax.models import heads
from agentrl_jax.models.config import ModelConfig


class Estimator:
  """Scores microbatches under given weights, one program each for a run.

  Args:
    config: the policy's shape.
    mesh: devices.
    temperature: at which the tokens were sampled.
  """

  def __init__(
    self, config: ModelConfig, mesh: jax.sharding.Mesh, temperature: float
  ):
    self._rows = sharding.rows(mesh)

    def score(params, batch):
      logprobs, _ = objective.logprobs_and_entropy(
        config, params, batch, temperature
      )
      return logprobs

    def value(params, batch):
      hidden = objective.hidden_states(config, params, batch)
      return heads.values(params, hidden)

    self._score = jax.jit(score, out_shardings=self._rows)
    self._value = jax.jit(value, out_shardings=self._rows)

  def logprobs(
    self, params: Any, batches: Sequence[TokenBatch]
  ) -> list[jax.Array]:
    """Returns [R, T] float32 for each microbatch, on the device."""
    return [
      self._score(params, jax.device_put(batch, self._rows))
      for batch in batches
    ]

  def values(
    self, params: Any, batches: Sequence[TokenBatch]
  ) -> list[jax.Array]:
    """Returns [R, T] float32 for each microbatch: of the state *after* a token.

    Args:
      params: with a value head.
      batches: microbatches.
    """
    return [
      self._value(params, jax.device_put(batch, self._rows))
      for batch in batches
    ]
