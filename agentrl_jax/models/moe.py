"""A feed-forward of experts: which does a token use, and what do they give?

A router scores E experts for each token and sends it to k of them; the output
is their mixture. Nothing is dropped: experts have no capacity. Three ways to
compute the same sum are in `EXPERTS`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Routes(NamedTuple):
  """Where N tokens go.

  Attributes:
    choices: [N, k] int32, experts of a token, best first.
    weights: [N, k] float32, shares of the mixture.
    probabilities: [N, E] float32, of the router over all experts.
    kept: [N, k] bool, whether the router as it is now chooses that expert;
      False only where choices were replayed.
  """

  choices: jax.Array
  weights: jax.Array
  probabilities: jax.Array
  kept: jax.Array


def route(
  x: jax.Array,
  router: jax.Array,
  num_choices: int,
  *,
  renormalise: bool,
  replay: jax.Array | None = None,
) -> Routes:
  """Chooses experts: p = softmax(x W), the k largest, w = p / Σ_chosen p.

  All of it is float32 whatever the model's dtype: a choice is a comparison, and
  rounding decides those that are close.

  Args:
    x: [N, D].
    router: [D, E].
    num_choices: k.
    renormalise: divide the weights by their sum; else w = p.
    replay: [N, k] integers, experts chosen before, -1 = choose now. Weights are
      still those of this router, so that its gradient flows.

  Returns:
    Routes.
  """
  # The router is rounded to the model's type, as a sampler holds it.
  router = router.astype(x.dtype).astype(jnp.float32)
  logits = x.astype(jnp.float32) @ router
  probabilities = jax.nn.softmax(logits, axis=-1)
  own = jax.lax.top_k(jax.lax.stop_gradient(probabilities), num_choices)[1]
  choices, kept = own, jnp.ones(own.shape, bool)
  if replay is not None:
    given = replay.astype(jnp.int32)
    choices = jnp.where((given >= 0).all(-1, keepdims=True), given, own)
    kept = (choices[:, :, None] == own[:, None, :]).any(-1)
  weights = jnp.take_along_axis(probabilities, choices, axis=-1)
  if renormalise:
    weights /= weights.sum(-1, keepdims=True)
  return Routes(choices, weights, probabilities, kept)


def balance_loss(routes: Routes, mask: jax.Array) -> jax.Array:
  """Measures how unevenly experts are used: E Σ_e f_e P_e.

  f_e is how often a token chooses e (Σ_e f_e = k), P_e the mean probability of
  e. It is k for even use and grows to at most E. Fedus et al., 2021,
  arXiv:2101.03961, equations 4-6; for k > 1 scaled as transformers scales it.

  Args:
    routes: of N tokens.
    mask: [N] bool, tokens that count.

  Returns:
    [] float32, 0 where no token counts.
  """
  probabilities = jnp.where(mask[:, None], routes.probabilities, 0.0)
  mean = probabilities.sum(0) / jnp.maximum(mask.sum(), 1)
  used = load(routes, mask)
  return used.shape[0] * jnp.sum(used * mean)


def load(routes: Routes, mask: jax.Array) -> jax.Array:
  """Returns [E] float32: how often a token that counts chooses each expert."""
  num_experts = routes.probabilities.shape[1]
  counted = jnp.where(mask[:, None], routes.choices, num_experts)
  counts = jnp.zeros(num_experts).at[counted].add(1.0, mode='drop')
  return counts / jnp.maximum(mask.sum(), 1)


def dense(
  x: jax.Array, layer: dict, choices: jax.Array, weights: jax.Array
) -> jax.Array:
  """Lets every expert see every token, and weighs most of it by 0.

  It costs E / k times what is needed, in one matrix product: the fastest on a
  CPU while experts are few and small. Also the reference of the tests.

  Args:
    x: [N, D].
    layer: expert_gate, expert_up [E, D, F], expert_down [E, F, D].
    choices: [N, k] int32, different within a token; E = none of these.
    weights: [N, k] float32, 0 where there is none.

  Returns:
    [N, D].
  """
  gate, up, down = _matrices(x, layer)
  rows = jnp.arange(x.shape[0])[:, None]
  mixture = (
    jnp.zeros((x.shape[0], gate.shape[0])).at[rows, choices].set(weights)
  )
  inner = jax.nn.silu(jnp.einsum('nd,edf->nef', x, gate))
  inner *= jnp.einsum('nd,edf->nef', x, up)
  inner *= mixture[:, :, None].astype(x.dtype)
  return jnp.einsum('nef,efd->nd', inner, down)


def grouped(
  x: jax.Array, layer: dict, choices: jax.Array, weights: jax.Array
) -> jax.Array:
  """Gathers tokens by expert into blocks, one expert a block.

  An expert's last block is padded, so that shapes are static and nothing is
  dropped: at most N k + E (block - 1) rows. Arguments as `dense`.
  """
  gate, up, down = _matrices(x, layer)
  num_experts, (num_tokens, num_choices) = gate.shape[0], choices.shape
  total = num_tokens * num_choices
  size = _block_size(total, num_experts)
  num_blocks = (total + num_experts * (size - 1)) // size
  experts = choices.reshape(-1)
  hits = jax.nn.one_hot(experts, num_experts, dtype=jnp.int32)
  rank = (jnp.cumsum(hits, axis=0) * hits).sum(1) - 1
  blocks = -(-hits.sum(0) // size)  # of each expert
  first = (jnp.cumsum(blocks) - blocks).at[experts].get(mode='clip')
  nowhere = num_blocks * size
  place = jnp.where(experts < num_experts, first * size + rank, nowhere)
  owner = jnp.repeat(
    jnp.arange(num_experts), blocks, total_repeat_length=num_blocks
  )
  token = jnp.full(nowhere, num_tokens)
  token = token.at[place].set(jnp.arange(total) // num_choices, mode='drop')
  rows = x.at[token].get(mode='fill', fill_value=0)
  rows = rows.reshape(num_blocks, size, -1)
  inner = jax.nn.silu(jnp.einsum('bnd,bdf->bnf', rows, gate[owner]))
  inner *= jnp.einsum('bnd,bdf->bnf', rows, up[owner])
  out = jnp.einsum('bnf,bfd->bnd', inner, down[owner])
  out = out.reshape(nowhere, -1).at[place].get(mode='fill', fill_value=0)
  return _mix(out, weights)


def ragged(
  x: jax.Array, layer: dict, choices: jax.Array, weights: jax.Array
) -> jax.Array:
  """Sorts tokens by expert for `jax.lax.ragged_dot`.

  XLA has a kernel for it on accelerators; on a CPU it is `dense` with k times
  the rows. Arguments as `dense`.
  """
  gate, up, down = _matrices(x, layer)
  experts = choices.reshape(-1)
  order = jnp.argsort(experts, stable=True)
  sizes = jnp.bincount(experts, length=gate.shape[0]).astype(jnp.int32)
  real = (experts[order] < gate.shape[0])[:, None]

  def product(rows, matrices):  # what follows the last group is not computed
    return jnp.where(real, jax.lax.ragged_dot(rows, matrices, sizes), 0)

  rows = jnp.where(real, x[order // choices.shape[1]], 0)
  inner = jax.nn.silu(product(rows, gate)) * product(rows, up)
  out = product(inner, down)
  return _mix(jnp.zeros_like(out).at[order].set(out), weights)


EXPERTS = {'dense': dense, 'grouped': grouped, 'ragged': ragged}


def fastest(backend: str) -> str:
  """Returns the name in `EXPERTS` for 'cpu', 'gpu' or 'tpu'."""
  return 'grouped' if backend == 'cpu' else 'ragged'


def route_dtype(num_experts: int):
  """Returns the smallest integers that name experts, and -1 for none."""
  return jnp.int8 if num_experts <= 128 else jnp.int16


def _matrices(x, layer):
  names = ('expert_gate', 'expert_up', 'expert_down')
  return tuple(layer[name].astype(x.dtype) for name in names)


def _mix(out, weights):
  """Adds the k outputs [N k, D] of each token by its weights [N, k]."""
  out = out.reshape(*weights.shape, -1)
  return jnp.einsum('nkd,nk->nd', out, weights.astype(out.dtype))


def _block_size(total: int, num_experts: int) -> int:
  """A power of two near the tokens of an expert: little padding, few blocks."""
  size = 1
  while size * 2 * num_experts <= total and size < 128:
    size *= 2
  return size
