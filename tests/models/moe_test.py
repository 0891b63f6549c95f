"""Locks experts: who is chosen, what they give, how evenly they are used."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.models import cache as cache_lib
from agentrl_jax.models import moe, transformer
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import PRESETS, ModelConfig

TINY = ModelConfig(
  vocab_size=16,
  embedding_std=0.5,
  num_experts=4,
  experts_per_token=2,
  d_expert=8,
  **PRESETS['tiny'],
)
# One token e_0; its logits are the first row: p = [1, 2, 3] / 6.
TOKEN = jnp.array([[1.0, 0.0]])
ROUTER = jnp.log(jnp.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]]))
HIDDEN = jax.jit(transformer.hidden, static_argnums=0)


@functools.partial(jax.jit, static_argnames='renormalise')
def route(renormalise=True, replay=None):
  return moe.route(TOKEN, ROUTER, 2, renormalise=renormalise, replay=replay)


def test_the_best_experts_share_by_hand():
  routes = route()
  assert routes.choices.tolist() == [[2, 1]]
  # 3/6 and 2/6, divided by their sum 5/6
  np.testing.assert_allclose(routes.weights, [[0.6, 0.4]], rtol=1e-6)
  np.testing.assert_allclose(
    route(renormalise=False).weights, [[3 / 6, 2 / 6]], rtol=1e-6
  )
  assert routes.kept.all()


def test_replayed_experts_are_weighed_by_the_router_of_now():
  routes = route(replay=np.int8([[0, 2]]))
  assert routes.choices.tolist() == [[0, 2]]
  np.testing.assert_allclose(routes.weights, [[1 / 4, 3 / 4]], rtol=1e-6)
  assert routes.kept.tolist() == [[False, True]]  # it would take 2 and 1
  unknown = route(replay=np.int8([[-1, -1]]))
  assert unknown.choices.tolist() == [[2, 1]] and unknown.kept.all()


def test_a_replayed_router_still_learns():
  @jax.jit
  @jax.grad
  def slope(router):
    replay = jnp.int8([[0, 2]])
    routes = moe.route(TOKEN, router, 2, renormalise=True, replay=replay)
    return routes.weights[0, 0]

  # w = p0 / (p0 + p2): dw/dlogit0 = w (1 - w) = 3/16, dw/dlogit2 = -3/16
  np.testing.assert_allclose(
    slope(ROUTER), [[3 / 16, 0, -3 / 16], [0, 0, 0]], atol=1e-6
  )


BALANCE = jax.jit(moe.balance_loss)


def routes_of(choices, probabilities):
  choices = np.array(choices)
  blank = np.ones(choices.shape)
  return moe.Routes(choices, blank, np.float32(probabilities), blank > 0)


@pytest.mark.parametrize(
  'choices, probabilities, loss',
  [
    # f = [1, 0], P = [3/4, 1/4]: 2 (3/4)
    ([[0], [0]], [[0.75, 0.25], [0.75, 0.25]], 1.5),
    # f = [1/2, 1/2]: whatever P, 2 (1/2) = k
    ([[0], [1]], [[0.75, 0.25], [0.75, 0.25]], 1.0),
    # k = 2 of 2: f = [1, 1]: 2 = k
    ([[0, 1], [1, 0]], [[0.75, 0.25], [0.1, 0.9]], 2.0),
  ],
)
def test_balance_by_hand(choices, probabilities, loss):
  # A third token, which does not count, would change everything.
  choices = [*choices, choices[0]]
  probabilities = [*probabilities, [float('nan')] * 2]
  routes = routes_of(choices, probabilities)
  mask = np.array([True, True, False])
  np.testing.assert_allclose(BALANCE(routes, mask), loss, rtol=1e-6)
  assert BALANCE(routes, jnp.zeros_like(mask)) == 0.0


def test_balance_pulls_probability_off_the_busy_expert():
  @jax.jit
  @jax.grad
  def slopes(logits):
    routes = routes_of([[0], [0]], np.zeros((2, 2)))
    routes = routes._replace(probabilities=jax.nn.softmax(logits))
    return moe.balance_loss(routes, np.array([True, True]))

  slope = slopes(jnp.zeros((2, 2)))
  assert (slope[:, 0] > 0).all() and (slope[:, 1] < 0).all()


def layer_of(num_experts, seed=0):
  draws = np.random.default_rng(seed)
  shapes = dict(
    router=(6, num_experts),
    expert_gate=(num_experts, 6, 5),
    expert_up=(num_experts, 6, 5),
    expert_down=(num_experts, 5, 6),
  )
  return {
    name: np.float32(draws.normal(size=shape)) for name, shape in shapes.items()
  }


def by_hand(x, layer, choices, weights):
  """The sum as the papers write it, token by token, in float64."""
  x, layer, weights = jax.tree.map(np.float64, (x, layer, weights))
  out = np.zeros_like(x)
  for n, token in enumerate(x):
    for e, weight in zip(np.asarray(choices)[n], weights[n]):
      gate = token @ layer['expert_gate'][e]
      inner = gate / (1 + np.exp(-gate)) * (token @ layer['expert_up'][e])
      out[n] += weight * (inner @ layer['expert_down'][e])
  return out


def test_what_an_accelerator_leaves_uncomputed_is_in_no_gradient(monkeypatch):
  """Rows past the last group, as a kernel may leave them, are NaN here."""
  plain = jax.lax.ragged_dot

  def poisoned(rows, matrices, sizes):
    past = jnp.arange(len(rows))[:, None] >= sizes.sum()
    return jnp.where(past, jnp.nan, plain(rows, matrices, sizes))

  monkeypatch.setattr(jax.lax, 'ragged_dot', poisoned)
  layer = layer_of(2)
  x = np.float32(np.random.default_rng(2).normal(size=(3, 6)))
  choices, weights = np.int32([[0], [2], [1]]), np.float32([[1], [0], [1]])
  slopes = jax.grad(
    lambda x, layer: moe.ragged(x, layer, choices, weights).sum(), (0, 1)
  )(x, layer)
  out = moe.ragged(x, layer, choices, weights)
  np.testing.assert_allclose(
    out[::2],
    by_hand(x[::2], layer, choices[::2], weights[::2]),
    rtol=1e-4,
    atol=1e-5,
  )
  assert (out[1] == 0).all() and (slopes[0][1] == 0).all()
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


@pytest.mark.parametrize(
  'num_tokens, num_experts, num_choices, crowd',
  [(70, 3, 2, False), (5, 8, 3, False), (33, 4, 1, True)],
)
def test_all_ways_give_the_sum_and_its_gradient(
  num_tokens, num_experts, num_choices, crowd
):
  layer = layer_of(num_experts)
  draws = np.random.default_rng(1)
  x = np.float32(draws.normal(size=(num_tokens, 6)))
  order = np.argsort(draws.random((num_tokens, num_experts)), axis=1)
  choices = np.int32(order[:, :num_choices] * (not crowd))  # all to expert 0
  weights = np.float32(draws.random((num_tokens, num_choices)))
  probe = np.float32(draws.normal(size=x.shape))

  def run(apply, x, layer, weights, choices):
    out = apply(x, layer, choices, weights)
    return jnp.sum(out * probe), out

  @jax.jit
  def every(*arguments):
    return {
      name: jax.value_and_grad(
        functools.partial(run, apply), argnums=(0, 1, 2), has_aux=True
      )(*arguments)
      for name, apply in moe.EXPERTS.items()
    }

  results = every(x, layer, weights, choices)
  (_, expected), slopes = results['dense']
  np.testing.assert_allclose(
    expected, by_hand(x, layer, choices, weights), atol=1e-5, rtol=1e-5
  )
  for name, ((_, out), slope) in results.items():
    np.testing.assert_allclose(
      out, expected, atol=1e-5, rtol=1e-5, err_msg=name
    )
    jax.tree.map(
      functools.partial(np.testing.assert_allclose, atol=1e-4, rtol=1e-4),
      slope,
      slopes,
    )


@pytest.fixture(scope='module')
def weights(draw_params):
  return draw_params(TINY)


def tokens(rows, length):
  return jnp.int32(
    np.random.default_rng(3).integers(0, TINY.vocab_size, (rows, length))
  )


@pytest.fixture(scope='module')
def whole(weights):
  return HIDDEN(TINY, weights, tokens(2, 7))


def test_what_a_decoder_tells_of_its_experts(whole):
  routes = np.asarray(whole.aux['routes'])
  assert routes.shape == (2, 7, 2, 2)
  assert (routes[..., 0] != routes[..., 1]).all()
  counts = [np.bincount(routes[:, :, i].ravel(), minlength=4) for i in (0, 1)]
  np.testing.assert_allclose(whole.aux['load'], np.array(counts) / 14)
  assert whole.aux['kept'] == 1.0 and whole.aux['balance'] > 1.9


def test_padding_is_in_no_statistic(weights, whole):
  padded = jnp.pad(tokens(2, 7), [(0, 0), (0, 3)])
  segments = jnp.pad(jnp.ones((2, 7), jnp.int32), [(0, 0), (0, 3)])
  output = HIDDEN(TINY, weights, padded, segment_ids=segments)
  for name in ('balance', 'load', 'kept'):
    np.testing.assert_allclose(output.aux[name], whole.aux[name], rtol=1e-5)


def test_a_cache_records_what_a_whole_forward_chooses(weights, whole):
  text, columns = tokens(2, 7), 9
  run = jax.jit(transformer.hidden, static_argnums=0)
  cache = cache_lib.init(TINY, 3, columns, routes=True)
  assert cache.routes.dtype == jnp.int8
  unstacked = params_lib.unstack(weights)
  slots = jnp.array([2, 0])
  for start in (0, 4):  # the second part has an idle fourth token
    part = jnp.pad(text, [(0, 0), (0, 1)])[:, start : start + 4]
    positions = jnp.broadcast_to(start + jnp.arange(4), (2, 4))
    positions = jnp.where(positions < 7, positions, columns)
    output = run(
      TINY, unstacked, part, positions=positions, cache=cache, slots=slots
    )
    cache = output.cache
  recorded = np.asarray(cache.routes)
  assert (recorded[slots, :7] == whole.aux['routes']).all()
  assert (recorded[:, 7:] == -1).all() and (recorded[1] == -1).all()


def test_replay_of_its_own_choices_changes_no_bit(weights, whole):
  routing = whole.aux['routes'].astype(jnp.int8)
  output = HIDDEN(TINY, weights, tokens(2, 7), routing=routing)
  assert (output.hidden == whole.hidden).all() and output.aux['kept'] == 1.0


def test_replay_holds_where_the_router_has_moved(weights, whole):
  turned = jax.tree.map(jnp.copy, weights)
  turned['layers']['router'] = -turned['layers']['router']
  free = HIDDEN(TINY, turned, tokens(2, 7))
  assert (free.aux['routes'] != whole.aux['routes']).any()
  held = HIDDEN(TINY, turned, tokens(2, 7), routing=whole.aux['routes'])
  assert (held.aux['routes'] == whole.aux['routes']).all()
  assert 0 < held.aux['kept'] < 1


def test_where_nothing_is_recorded_the_router_chooses(weights, whole):
  routing = whole.aux['routes'].at[:, 3:].set(-1)
  output = HIDDEN(TINY, weights, tokens(2, 7), routing=routing)
  np.testing.assert_allclose(output.hidden, whole.hidden, atol=1e-6)


def test_blocks_that_do_not_fit_are_told_from_those_that_do():
  assert moe.route_dtype(128) == jnp.int8  # ids 0..127
  assert moe.route_dtype(129) == jnp.int16


def test_a_dense_decoder_carries_nothing_of_this():
  dense = dataclasses.replace(
    TINY, num_experts=0, experts_per_token=0, d_expert=0
  )
  assert cache_lib.init(dense, 1, 4, routes=True).routes is None
  described = params_lib.describe(dense)['layers']
  assert not any('expert' in name or name == 'router' for name in described)
  shapes = jax.eval_shape(
    functools.partial(transformer.hidden, dense),
    params_lib.abstract(dense),
    tokens(1, 4),
  )
  assert shapes.aux == {}


def test_routes_of_another_model_are_refused(weights, whole):
  routing = whole.aux['routes']
  with pytest.raises(ValueError, match=r'\(2, 7, 1, 2\): .* = \(2, 7, 2, 2\)'):
    transformer.hidden(TINY, weights, tokens(2, 7), routing=routing[:, :, :1])
  cache = cache_lib.init(TINY, 2, 8)
  unstacked = params_lib.unstack(weights)
  with pytest.raises(ValueError, match='without a cache'):
    transformer.hidden(
      TINY, unstacked, tokens(2, 7), cache=cache, routing=routing
    )
