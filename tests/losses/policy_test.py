"""Locks policy losses: values and gradients by hand, masks, reductions."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from agentrl_jax import losses

R, T = 4, 7
SEQUENCES = {'gspo': losses.gspo_loss, 'gmpo': losses.gmpo_loss}


def random_tokens(seed):
  """Log-probs, advantages alike within a sequence, ids with -1 and a gap."""
  rng = np.random.default_rng(seed)
  ids = np.sort(rng.integers(0, 5, (R, T)), axis=1) + 5 * np.arange(R)[:, None]
  ids = np.where(rng.random((R, T)) < 0.1, -1, ids)
  ids[0, 0] = R * T - 1
  mask = rng.random((R, T)) < 0.7
  mask[seed % R] = False
  old = -rng.random((R, T))
  new = old + rng.normal(size=(R, T)) * 0.3
  advantages = rng.normal(size=R * T)[np.maximum(ids, 0)]
  return (
    new.astype(np.float32),
    old.astype(np.float32),
    advantages.astype(np.float32),
    ids.astype(np.int32),
    mask,
  )


def numpy_loss(name, new, old, a, ids, mask):
  """The same by loops, float64."""
  out = np.zeros((R, T))
  ratio = np.exp(np.float64(new) - old)
  for r, t in np.argwhere(mask):
    k, adv = ratio[r, t], float(a[r, t])
    if name == 'ppo_clip':
      x = max(-adv * k, -adv * np.clip(k, 0.8, 1.2))
      out[r, t] = min(x, -3 * adv) if adv < 0 else x
    elif name == 'cispo':
      out[r, t] = -np.clip(k, 0.8, 1.2) * adv * new[r, t]
    elif name == 'reinforce':
      out[r, t] = -min(k, 1.1) * adv * new[r, t]
    elif name == 'sapo':
      tau = 1.0 if adv > 0 else 1.05
      out[r, t] = -adv * 4 / tau / (1 + np.exp(-tau * (k - 1)))
    elif ids[r, t] >= 0:
      own = np.argwhere(mask & (ids == ids[r, t]))
      logs = np.array([np.log(ratio[i, j]) for i, j in own])
      if name == 'gspo':
        s = np.exp(logs.mean())
        out[r, t] = max(-adv * s, -adv * np.clip(s, 1 - 3e-4, 1 + 4e-4))
      else:
        clipped = np.minimum(logs, 0.4) if adv > 0 else np.maximum(logs, -0.4)
        out[r, t] = -adv * np.exp(clipped.mean())
  return out


OPTIONS = {
  'ppo_clip': dict(dual_clip=3.0),
  'reinforce': dict(max_weight=1.1),
}


@functools.cache
def program(name):
  """(loss, gradient of its sum), compiled together."""
  loss = functools.partial(losses.LOSSES[name], **OPTIONS.get(name, {}))
  grad = jax.grad(lambda x, *args: loss(x, *args).sum())
  return jax.jit(lambda *args: (loss(*args), grad(*args)))


class PolicyTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_ppo_clip_by_hand(self):
    # Ratios 1.5, 1.5, 0.5, 0.5, 5 with advantages 1, -1, 1, -1, -1, clip .2:
    # -min(1.5, 1.2), max(1.5, 1.2), -min(.5, .8), max(.5, .8), 5 -> 3 dual.
    ratio = jnp.array([[1.5, 1.5, 0.5, 0.5, 5.0, 2.0]])
    a = jnp.array([[1.0, -1, 1, -1, -1, jnp.nan]])
    mask = jnp.array([[True, True, True, True, True, False]])
    f = self.variant(losses.ppo_clip_loss, static_argnames='dual_clip')
    out = f(jnp.log(ratio), jnp.zeros((1, 6)), a, mask)
    np.testing.assert_allclose(out, [[-1.2, 1.5, -0.5, 0.8, 5, 0]], rtol=1e-6)
    out = f(jnp.log(ratio), jnp.zeros((1, 6)), a, mask, dual_clip=3.0)
    np.testing.assert_allclose(out, [[-1.2, 1.5, -0.5, 0.8, 3, 0]], rtol=1e-6)

  def test_ppo_gradients_by_hand(self):
    # The gradient is -A r inside, 0 where the clip is active, also dual.
    ratio = jnp.array([[1.0, 1.5, 1.5, 0.5, 0.5, 5.0]])
    a = jnp.array([[2.0, 1, -1, 1, -1, -1]])
    mask = jnp.ones((1, 6), bool)
    zeros = jnp.zeros((1, 6))
    f = functools.partial(losses.ppo_clip_loss, dual_clip=3.0)
    out = jax.grad(lambda x: f(x, zeros, a, mask).sum())(jnp.log(ratio))
    np.testing.assert_allclose(out, [[-2, 0, 1.5, -0.5, 0, 0]], rtol=1e-6)

  def test_clip_higher(self):
    args = (jnp.log(jnp.full((1, 1), 1.25)), jnp.zeros((1, 1)))
    a, mask = jnp.ones((1, 1)), jnp.ones((1, 1), bool)
    f = losses.ppo_clip_loss
    np.testing.assert_allclose(f(*args, a, mask), [[-1.2]], rtol=1e-6)
    out = f(*args, a, mask, clip_high=0.28)
    np.testing.assert_allclose(out, [[-1.25]], rtol=1e-6)

  def test_gspo_by_hand(self):
    # Ratios 2 and 1/2 of one sequence: geometric mean 1; 4 alone: 4, clipped.
    log_ratio = jnp.log(jnp.array([[2.0, 0.5, 4.0]]))
    args = (
      log_ratio,
      jnp.zeros((1, 3)),
      jnp.ones((1, 3)),
      jnp.array([[0, 0, 2]]),
      jnp.ones((1, 3), bool),
    )
    out = losses.gspo_loss(*args, clip_high=0.1)
    np.testing.assert_allclose(out, [[-1, -1, -1.1]], rtol=1e-6)
    # GMPO clips log 2 at .4 first: exp((.4 + log .5)/2).
    out = losses.gmpo_loss(*args)
    pair = np.exp((0.4 + np.log(0.5)) / 2)
    np.testing.assert_allclose(out, [[-pair, -pair, -np.exp(0.4)]], rtol=1e-6)

  @parameterized.parameters(sorted(losses.LOSSES))
  def test_oracle_over_random_cases(self, name):
    f = program(name)
    for seed in range(200):
      args = random_tokens(seed)
      want = numpy_loss(name, *args)
      got, _ = f(*args)
      np.testing.assert_allclose(
        got, want, rtol=1e-5, atol=1e-5, err_msg=f'{seed=}'
      )

  @parameterized.parameters(sorted(losses.LOSSES))
  def test_nan_under_the_mask_changes_nothing(self, name):
    f = program(name)
    for seed in range(4):
      new, old, a, ids, mask = random_tokens(seed)
      want = f(new, old, a, ids, mask)
      assert np.all(np.isfinite(want[1]))
      assert not np.any(want[1][~mask])
      for bad in (np.nan, np.inf, -np.inf):
        rotten = (np.where(mask, x, np.float32(bad)) for x in (new, old, a))
        got = f(*rotten, ids, mask)
        np.testing.assert_array_equal(got[0], want[0])
        np.testing.assert_array_equal(got[1], want[1])

  @parameterized.parameters('ppo_clip', 'gmpo', 'sapo')
  def test_gradient_is_that_of_the_value(self, name):
    # Central differences in float64 of the NumPy loss.
    for seed in range(3):
      new, old, a, ids, mask = random_tokens(seed)
      _, got = program(name)(new, old, a, ids, mask)
      for r, t in np.argwhere(mask)[:6]:
        step = np.zeros((R, T))
        step[r, t] = 1e-6
        up, down = (
          numpy_loss(name, np.float64(new) + d, old, a, ids, mask).sum()
          for d in (step, -step)
        )
        np.testing.assert_allclose(
          got[r, t], (up - down) / 2e-6, rtol=1e-3, atol=1e-4
        )

  def test_on_policy_gradient_is_that_of_reinforce(self):
    new, _, a, ids, mask = random_tokens(1)
    want = np.where(mask, -a, 0)
    for name in losses.LOSSES:
      _, got = program(name)(new, new, a, ids, mask)
      here = mask & (ids >= 0) if name in SEQUENCES else mask
      np.testing.assert_allclose(
        got, np.where(here, want, 0), rtol=1e-5, atol=1e-6, err_msg=name
      )

  def test_gspo_gradient_is_that_of_the_sequence_ratio(self):
    # One advantage per sequence, weights 'sequence_token_mean', no clip: then
    # differentiating -A exp(mean log-ratio) itself gives the same.
    new, old, a, ids, mask = random_tokens(2)
    mask = mask & (ids >= 0)
    w = losses.token_weights(
      mask, weighting='sequence_token_mean', sequence_ids=ids
    )
    f = functools.partial(losses.gspo_loss, clip_low=1.0, clip_high=1e6)
    got = jax.grad(lambda x: losses.aggregate(f(x, old, a, ids, mask), w))(new)
    num = len(set(ids[mask].tolist()))
    for r, t in np.argwhere(mask):
      own = mask & (ids == ids[r, t])
      s = np.exp((new - old)[own].mean())
      want = -a[r, t] * s / own.sum() / num
      np.testing.assert_allclose(got[r, t], want, rtol=1e-4)

  def test_one_token_sequences_make_gspo_ppo(self):
    new, old, a, _, mask = random_tokens(5)
    ids = np.arange(R * T, dtype=np.int32).reshape(R, T)
    clips = dict(clip_low=0.2, clip_high=0.2)
    want = losses.ppo_clip_loss(new, old, a, mask, **clips)
    got = losses.gspo_loss(new, old, a, ids, mask, **clips)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)

  @parameterized.parameters(sorted(SEQUENCES))
  def test_bounds_change_nothing(self, name):
    new, old, a, ids, mask = random_tokens(3)
    want = SEQUENCES[name](new, old, a, ids, mask)
    for bound in (R * T, 100):
      got = SEQUENCES[name](new, old, a, ids, mask, num_sequences=bound)
      np.testing.assert_array_equal(got, want)

  @parameterized.parameters(sorted(SEQUENCES))
  def test_an_id_beyond_the_bound_is_nan(self, name):
    new, old, a, _, mask = random_tokens(3)
    ids = np.where(np.arange(R * T).reshape(R, T) == 4, 2, 1).astype(np.int32)
    mask = mask.copy()
    mask.ravel()[4] = True
    got = SEQUENCES[name](new, old, a, ids, mask, num_sequences=2)
    np.testing.assert_array_equal(np.isnan(got), mask & (ids == 2))

  def test_log_ratio_is_clamped(self):
    x = jnp.array([[100.0, -100.0]])
    args = (jnp.zeros((1, 2)), -jnp.ones((1, 2)), jnp.ones((1, 2), bool))
    out = losses.ppo_clip_loss(x, *args)
    np.testing.assert_allclose(out[0, 0], np.exp(20), rtol=1e-5)
    assert np.all(np.isfinite(out))

  def test_advantages_get_no_gradient(self):
    new, old, a, ids, mask = random_tokens(0)
    for name, f in losses.LOSSES.items():
      g = jax.grad(lambda a, f=f: f(new, old, a, ids, mask).sum())(a)
      assert not np.any(g), name
