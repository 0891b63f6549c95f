"""A product is tensordot, and so are its gradients, without a transposition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.models import config, products, transformer

# x, W, inputs: as of q (or gate), of o, of an adapter; one token alone.
SHAPES = [
  ((2, 3, 4), (4, 5), 1),
  ((2, 3, 4), (4, 2, 5), 1),
  ((2, 3, 2, 4), (2, 4, 5), 2),
  ((4,), (4, 5), 1),
]


def drawn(*shapes):
  draws = np.random.default_rng(0)
  return [jnp.asarray(draws.normal(size=s), jnp.float32) for s in shapes]


def gradients(function, x, weight, axes):
  out, back = jax.vjp(lambda x, w: function(x, w, axes), x, weight)
  (by,) = drawn(out.shape)
  return out, *back(by)


@pytest.mark.parametrize('x, weight, axes', SHAPES)
def test_it_is_tensordot_with_its_gradients(x, weight, axes):
  given = drawn(x, weight)
  ours = gradients(products.product, *given, axes)
  theirs = gradients(jnp.tensordot, *given, axes)
  for mine, other in zip(ours, theirs, strict=True):
    assert mine.shape == other.shape
    np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_by_hand():
  """x = (1, 2), W = ((3, 4), (5, 6)): x·W = (13, 16).

  With ∂y = (1, 10): ∂x = (3 + 40, 5 + 60), ∂W = ((1, 10), (2, 20)).
  """
  x, weight = jnp.array([1.0, 2.0]), jnp.array([[3.0, 4.0], [5.0, 6.0]])
  out, back = jax.vjp(lambda *xw: products.product(*xw, 1), x, weight)
  assert out.tolist() == [13.0, 16.0]
  of_x, of_weight = back(jnp.array([1.0, 10.0]))
  assert of_x.tolist() == [43.0, 65.0]
  assert of_weight.tolist() == [[1.0, 10.0], [2.0, 20.0]]


def test_types_stay():
  x, weight = (each.astype(jnp.bfloat16) for each in drawn((3, 4), (4, 5)))
  out, back = jax.vjp(lambda *xw: products.product(*xw, 1), x, weight)
  assert {each.dtype for each in (out, *back(out))} == {jnp.dtype('bfloat16')}


def test_nothing_is_transposed_for_the_gradient_of_a_weight():
  x, weight = drawn((2, 3, 4), (4, 5))

  def steps(function):
    loss = jax.grad(lambda w: function(x, w, 1).sum())
    return str(jax.make_jaxpr(loss)(weight))

  assert 'transpose[' not in steps(products.product)
  assert 'transpose[' in steps(jnp.tensordot)  # what is gone without


def test_results_can_be_kept_by_name():
  """A backward pass that keeps them makes no product again."""
  x, weight, other = drawn((2, 3), (3, 4), (4, 5))

  def loss(weight):
    y = jnp.sin(products.product(x, weight, 1))
    return jnp.sin(products.product(y, other, 1)).sum()

  def made(policy):
    steps = jax.make_jaxpr(jax.grad(jax.checkpoint(loss, policy=policy)))
    return str(steps(weight)).count('dot_general')

  policies = jax.checkpoint_policies
  kept = made(policies.save_only_these_names(products.NAME))
  assert kept == made(policies.everything_saveable)
  assert kept < made(policies.nothing_saveable)


def test_what_remat_dots_keeps_is_not_made_again(draw_params):
  tokens = jnp.ones((1, 8), jnp.int32)

  def made(remat):
    shape = {**config.PRESETS['tiny'], 'remat': remat}
    model = config.ModelConfig(vocab_size=16, **shape)

    def loss(params):
      return transformer.hidden(model, params, tokens).hidden.sum()

    steps = jax.make_jaxpr(jax.grad(loss))(draw_params(model))
    return str(steps).count('dot_general')

  none, dots, block = (made(remat) for remat in ('none', 'dots', 'block'))
  assert none <= dots < block
