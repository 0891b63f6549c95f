"""What must a foreign model offer to be trained and sampled by the same code?

A `Policy` stands where a `ModelConfig` does: learner and sampler take either.
Nothing else of it is known, so that it has no adapters and no experts; without
a cache of its own it reads its context anew for every token.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True, eq=False)
class Policy:
  """A language model as pure functions; hashed by identity.

  Attributes:
    hidden: f(params, tokens, positions, segment_ids), all [R, T] int32, to
      hidden states [R, T, D] of `dtype`. A state depends on tokens of its own
      segment up to its own: the future and other segments change nothing.
    head: f(params) to the output matrix [D, V].
    init: f(key) to float32 parameters: a dict of arrays, or of such dicts.
    d_model: D.
    vocab_size: V.
    axes: logical axes of the parameters, a tree of tuples as
      `params.logical_axes` gives; None = every device has all of them.
    value_head: as of `ModelConfig`.
    dtype: of hidden states and of published weights.
  """

  hidden: Callable[..., jax.Array]
  head: Callable[[Any], jax.Array]
  init: Callable[[jax.Array], Any]
  d_model: int
  vocab_size: int
  axes: Any = None
  value_head: bool = False
  dtype: str = 'float32'

  # What a decoder might have and this has not.
  num_experts: ClassVar[int] = 0
  experts_per_token: ClassVar[int] = 0
  balance_coef: ClassVar[float] = 0.0
  lora: ClassVar[None] = None
  attention: ClassVar[str] = 'xla'


def own(policy: Policy, params: Any) -> Any:
  """Returns params without what a learner adds to them: a value head."""
  if not policy.value_head:
    return params
  return {name: tree for name, tree in params.items() if name != 'value'}


@chex.dataclass(frozen=True)
class TokenCache:
  """What is kept of contexts: their tokens [slots, S] int32."""

  tokens: jax.Array
  routes: None = None

  @property
  def columns(self) -> int:
    """S."""
    return self.tokens.shape[1]


def init_cache(num_slots: int, length: int) -> TokenCache:
  """Returns an empty cache for `num_slots` contexts of `length` tokens."""
  return TokenCache(tokens=jnp.zeros((num_slots, length), jnp.int32))


def hidden(
  policy: Policy,
  params: Any,
  tokens: jax.Array,
  *,
  positions: jax.Array,
  segment_ids: jax.Array | None,
  cache: TokenCache | None,
  slots: jax.Array | None,
) -> tuple[jax.Array, TokenCache | None]:
  """Runs the model; with a cache, over the whole contexts of the rows.

  Arguments as of `transformer.hidden`, with which it shares the rules on idle
  tokens and on slots.

  Returns:
    (hidden [R, T, D], cache).
  """
  params = own(policy, params)
  if cache is None:
    if segment_ids is None:
      segment_ids = jnp.ones_like(tokens)
    return policy.hidden(params, tokens, positions, segment_ids), None
  if slots is None:
    slots = jnp.arange(tokens.shape[0])
  held = cache.tokens.at[slots[:, None], positions].set(tokens, mode='drop')
  rows = held[slots]
  # Columns behind a context hold what an older one left: the future.
  places = jnp.broadcast_to(jnp.arange(rows.shape[1]), rows.shape)
  states = policy.hidden(params, rows, places, jnp.ones_like(rows))
  wanted = jnp.minimum(positions, rows.shape[1] - 1)[:, :, None]
  states = jnp.take_along_axis(states, wanted, axis=1)
  return states, TokenCache(tokens=held)
