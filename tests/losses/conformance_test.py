"""Compares with what public reference implementations gave (tests/golden).

Where we differ on purpose the test says so, and docs/conformance.md why.
"""

import functools
import json
import pathlib

import jax
import numpy as np
import pytest

from agentrl_jax import losses

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden'
CLOSE = dict(rtol=1e-5, atol=1e-5)


def cases(name):
  return json.loads((GOLDEN / f'{name}.json').read_text())['cases']


def array(x):
  return np.array(x, np.float32)


def rows(mask):
  """The reference's sequence is a row."""
  index = np.arange(mask.shape[0], dtype=np.int32)[:, None]
  return np.broadcast_to(index, mask.shape)


def each(values):
  return pytest.mark.parametrize('case', values, ids=lambda c: c['id'])


@each(cases('loss_aggregation'))
def test_aggregation(case):
  x, mask = array(case['loss_mat']), array(case['loss_mask']) > 0
  num_rows, width = mask.shape
  kinds = {
    'token-mean': ('token', None),
    'seq-mean-token-sum': ('sequence_token_sum', None),
    'seq-mean-token-mean': ('sequence_token_mean', None),
    'seq-mean-token-sum-norm': ('constant', float(width)),
  }
  for name, (kind, constant) in kinds.items():
    want = case['expected'][name]
    weights = losses.token_weights(
      mask, weighting=kind, sequence_ids=rows(mask), constant=constant
    )
    got = losses.aggregate(x, weights)
    np.testing.assert_allclose(got, want['verl2026'], **CLOSE)
    if case['kind'] == 'regular':
      np.testing.assert_allclose(got, want['verl_agent'], **CLOSE)
    elif name == 'seq-mean-token-mean':
      assert want['verl_agent'] is None  # NaN for a fully masked row
    elif name == 'seq-mean-token-sum':
      # It counts the empty row: n + 1 instead of n.
      ratio = num_rows / (num_rows - 1)
      np.testing.assert_allclose(got, want['verl_agent'] * ratio, **CLOSE)


@each(cases('kl_estimators'))
def test_kl(case):
  new, ref = array(case['logprob']), array(case['ref_logprob'])
  for name in ('k1', 'abs', 'k2', 'k3'):
    want = case['expected'][name]
    # verl cuts k3 at 10; maximum=10 asks for it.
    maximum = 10.0 if name == 'k3' else None
    f = functools.partial(losses.kl_penalty, estimator=name, maximum=maximum)
    got = f(new, ref)
    for reference in ('verl_agent', 'verl2026'):
      np.testing.assert_allclose(got, array(want[reference]), **CLOSE)
    grad = want.get('verl2026_grad_of_sum_wrt_logprob')
    if grad is not None:
      got = jax.grad(lambda x, f=f: f(x, ref).sum())(new)
      np.testing.assert_allclose(got, array(grad), **CLOSE)


OTHERS = {
  'cispo': ('cispo', 'token', dict(clip_low=0.2, clip_high=0.28)),
  'sapo': ('sapo', 'sequence_token_mean', {}),
  'gpg': ('reinforce', 'token', {}),
  'geo_mean': ('gmpo', 'sequence_token_mean', {}),
}


@pytest.mark.parametrize('name', OTHERS)
def test_policy_losses(name):
  loss, weighting, options = OTHERS[name]

  @functools.partial(jax.jit, static_argnums=4)
  def program(new, old, a, mask, loss):
    weights = losses.token_weights(
      mask, weighting=weighting, sequence_ids=rows(mask)
    )
    f = functools.partial(losses.LOSSES[loss], **options)

    def scalar(x):
      return losses.aggregate(f(x, old, a, rows(mask), mask), weights)

    return jax.value_and_grad(scalar)(new)

  for case in cases('other_losses_verl2026'):
    want = case['expected'][name]
    mask = array(case['response_mask']) > 0
    keys = ('log_prob', 'old_log_prob', 'advantages')
    value, grad = program(*(array(case[k]) for k in keys), mask, loss)
    np.testing.assert_allclose(value, want['loss'], **CLOSE)
    np.testing.assert_allclose(
      grad, array(want['grad_wrt_log_prob']), err_msg=case['id'], **CLOSE
    )


def test_value_loss():
  for case in cases('value_loss_and_kl_controller'):
    mask = array(case['mask']) > 0
    values = (array(case[k]) for k in ('vpreds', 'values', 'returns'))
    loss = losses.value_loss(*values, mask, clip=case['clip'])
    got = losses.aggregate(loss, losses.token_weights(mask, weighting='token'))
    np.testing.assert_allclose(got, case['expected']['loss'], **CLOSE)
