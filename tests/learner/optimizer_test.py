"""Locks learning rates by update, clipping, and that each optimizer steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agentrl_jax.learner import optimizer

OPTIONS = dict(
  name='sgd',
  learning_rate=0.8,
  warmup=3,
  schedule='constant',
  b1=0.9,
  b2=0.99,
  epsilon=1e-8,
  weight_decay=0.0,
  clip_norm=1.0,
)


def rates(num_updates, **options):
  rate = optimizer.schedule({**OPTIONS, **options}, num_updates)
  return [float(rate(i)) for i in range(num_updates + 1)]


def test_warm_up_by_hand():
  # 3 updates of warm-up: 1/4, 2/4, 3/4 of the peak, then the peak.
  np.testing.assert_allclose(rates(4), [0.2, 0.4, 0.6, 0.8, 0.8], rtol=1e-6)


def test_linear_by_hand():
  # After warm-up from the peak to 0 over the other 4 of 7 updates.
  expected = [0.2, 0.4, 0.6, 0.8, 0.6, 0.4, 0.2, 0]
  np.testing.assert_allclose(
    rates(7, schedule='linear'), expected, rtol=1e-6, atol=1e-7
  )


def test_cosine_by_hand():
  # peak (1 + cos(pi i / 4)) / 2 without warm-up.
  expected = 0.4 * (1 + np.cos(np.pi * np.arange(5) / 4))
  out = rates(4, schedule='cosine', warmup=0)
  np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-7)


def test_warm_up_longer_than_the_run_is_no_fault():
  out = rates(2, warmup=5, schedule='cosine')
  np.testing.assert_allclose(out, 0.8 * np.array([1, 2, 3]) / 6, rtol=1e-6)


def step(params, gradients, **options):
  tx = optimizer.make({**OPTIONS, 'warmup': 0, **options}, 10)
  updates, _ = tx.update(gradients, tx.init(params), params)
  return optax.apply_updates(params, updates)


def test_gradient_is_clipped_by_global_norm():
  # (3, 4) has norm 5: scaled to 1; times the rate 0.8.
  gradients = {'a': jnp.array([3.0]), 'b': jnp.array([4.0])}
  params = jax.tree.map(jnp.zeros_like, gradients)
  out = step(params, gradients)
  np.testing.assert_allclose(
    [out['a'][0], out['b'][0]], [-0.48, -0.64], rtol=1e-6
  )
  out = step(params, gradients, clip_norm=50.0)
  np.testing.assert_allclose(
    [out['a'][0], out['b'][0]], [-2.4, -3.2], rtol=1e-6
  )


def test_adam_and_decay_by_hand():
  """The first step of Adam is rate * sign(g); decay is decoupled."""
  params, gradients = {'a': jnp.array([2.0])}, {'a': jnp.array([0.3])}
  out = step(params, gradients, name='adam', weight_decay=0.5)
  np.testing.assert_allclose(out['a'], [2 - 0.8], rtol=1e-5)
  out = step(params, gradients, name='adamw', weight_decay=0.5)
  np.testing.assert_allclose(out['a'], [2 - 0.8 * (1 + 0.5 * 2)], rtol=1e-5)


def test_adam_takes_its_constants():
  tx = optimizer.make({**OPTIONS, 'name': 'adam', 'warmup': 0, 'b1': 0.0}, 9)
  params = {'a': jnp.array([0.0])}
  state = tx.init(params)
  for g in (0.5, -0.5):  # without momentum the second step turns round
    updates, state = tx.update({'a': jnp.array([g])}, state, params)
  np.testing.assert_allclose(updates['a'], [0.8], rtol=1e-4)


def test_muon_makes_the_step_of_a_layer_orthogonal():
  """Stacked layers [L, in, out] are matrices, one a layer."""
  draws = np.random.default_rng(0)
  shapes = {
    'embed': {'table': (7, 4)},
    'layers': {
      'gate': (2, 4, 8),
      'q': (2, 4, 2, 3),
      'o': (2, 2, 3, 4),
      'q_bias': (2, 2, 3),
      'lora': {'o': {'a': (2, 2, 8, 8)}, 'q': {'b': (2, 2, 2, 3)}},
    },
    'final_norm': (4,),
  }
  gradients = jax.tree.map(
    lambda s: jnp.array(draws.normal(size=s), jnp.float32),
    shapes,
    is_leaf=lambda x: isinstance(x, tuple),
  )
  params = jax.tree.map(jnp.zeros_like, gradients)
  out = step(params, gradients, name='muon', clip_norm=1e9)
  layers = out['layers']
  matrices = (
    (layers['gate'], (4, 8)),
    (layers['q'], (4, 6)),
    (layers['o'], (6, 4)),
    (layers['lora']['o']['a'], (16, 8)),
    (layers['lora']['q']['b'], (2, 6)),
  )
  for stacked, matrix in matrices:
    for layer in np.asarray(stacked):
      values = np.linalg.svd(layer.reshape(matrix), compute_uv=False)
      assert values.max() / values.min() < 2.5, (matrix, values)
  # Embedding, norms and biases are Adam's: at first all entries move alike.
  for leaf in (out['embed']['table'], out['final_norm'], layers['q_bias']):
    size = np.abs(leaf)
    np.testing.assert_allclose(size, size.max(), rtol=1e-3)


def test_muon_steps_each_expert_as_if_alone():
  """Stacked experts [L, E, in, out] are matrices, one an expert."""
  draws = np.random.default_rng(0)
  shapes = {'expert_gate': (2, 3, 4, 8), 'expert_down': (2, 3, 8, 4)}
  gradients = {
    name: jnp.array(draws.normal(size=shape), jnp.float32)
    for name, shape in shapes.items()
  }

  def stepped(gradients):
    given = {'layers': gradients}
    params = jax.tree.map(jnp.zeros_like, given)
    return step(params, given, name='muon', clip_norm=1e9)['layers']

  together = stepped(gradients)
  for e in range(3):
    one = {name: x[:, e : e + 1] for name, x in gradients.items()}
    for name, alone in stepped(one).items():
      np.testing.assert_allclose(
        together[name][:, e : e + 1], alone, rtol=1e-3, atol=1e-5
      )
  for matrix in np.asarray(together['expert_gate']).reshape(6, 4, 8):
    values = np.linalg.svd(matrix, compute_uv=False)
    assert values.max() / values.min() < 2.5, values


def test_unknown_names_fail():
  with pytest.raises(KeyError):
    optimizer.make({**OPTIONS, 'name': 'adma'}, 3)
