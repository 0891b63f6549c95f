"""Log-probabilities and values of an iteration's tokens under some weights."""

from collections.abc import Sequence
from typing import Any

import jax

from agentrl_jax import distributed, sharding
from agentrl_jax.batch import TokenBatch
from agentrl_jax.learner import objective
from agentrl_jax.learner import state as state_lib
from agentrl_jax.models import fused, heads
from agentrl_jax.models.config import ModelConfig


class Estimator:
  """Scores microbatches under given weights, one program each for a run.

  Args:
    config: the policy's shape.
    mesh: devices.
    temperature: at which the tokens were sampled.
    head_chunk: sampled tokens of a row that have logits at once; 0 = all.
    param_dtype: that weights are rounded to first, as the learner's are.
  """

  def __init__(
    self,
    config: ModelConfig,
    mesh: jax.sharding.Mesh,
    temperature: float,
    head_chunk: int = 0,
    param_dtype: str = 'float32',
  ):
    self._rows, self._attention = sharding.rows(mesh), config.attention

    def score(params, batch):
      if param_dtype != 'float32':
        params = state_lib.rounded(params, param_dtype)
      logprobs, _ = objective.logprobs_and_entropy(
        config, params, batch, temperature, head_chunk
      )
      return logprobs

    def value(params, batch):
      hidden = objective.hidden_states(config, params, batch)
      return heads.values(params, hidden)

    self._score, self._value = (
      jax.jit(sharding.traced_on(mesh, question), out_shardings=self._rows)
      for question in (score, value)
    )

  def logprobs(
    self, params: Any, batches: Sequence[TokenBatch]
  ) -> list[jax.Array]:
    """Returns this host's [R, T] float32 for each microbatch."""
    return self._ask(self._score, params, batches)

  def reference_logprobs(
    self, params: Any, batches: Sequence[TokenBatch]
  ) -> list[jax.Array]:
    """As `logprobs`, by the experts that these weights choose themselves.

    A reference is a policy of its own: no expert is replayed.
    """
    return self.logprobs(params, [b.replace(routes=None) for b in batches])

  def values(
    self, params: Any, batches: Sequence[TokenBatch]
  ) -> list[jax.Array]:
    """Returns [R, T] float32 for each microbatch: of the state *after* a token.

    Args:
      params: with a value head.
      batches: microbatches.
    """
    return self._ask(self._value, params, batches)

  def _ask(self, question, params, batches):
    """Hosts may have unlike numbers of microbatches; one with less, pads."""
    total = distributed.most(len(batches))
    padded = [*batches, *batches[-1:] * (total - len(batches))]
    with fused.scope(self._attention, self._rows.mesh):
      answers = [
        question(params, sharding.put_rows(batch, self._rows))
        for batch in padded
      ]
    return [sharding.own_rows(x) for x in answers[: len(batches)]]
