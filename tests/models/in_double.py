"""A Llama-like decoder in float64 by NumPy: what rounding is measured against.

Written down from the equations and not from our code: full attention, one kind
of layer, no adapters.
"""

import numpy as np

# Axis of D in the arrays of stacked layers.
_WIDTH = dict(attention_norm=1, mlp_norm=1, q=1, k=1, v=1, gate=1, up=1)
_WIDTH |= dict(o=3, down=2)


def normed_states(config, params, tokens):
  """States [T, D] after 0, 1, ... L blocks, each behind the final norm."""
  layers, length = params['layers'], len(tokens)
  rates = config.rope_theta ** (
    -np.arange(0, config.head_dim, 2) / config.head_dim
  )
  angles = (np.arange(length)[:, None] * rates)[:, None]
  past = np.tril(np.ones((length, length), bool))

  def norm(x, scale):
    mean = np.mean(x * x, axis=-1, keepdims=True)
    return x / np.sqrt(mean + config.norm_epsilon) * np.float64(scale)

  def turned(x):
    a, b = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

  x = np.float64(params['embed']['table'][np.asarray(tokens)])
  states = [norm(x, params['final_norm'])]
  for i in range(config.num_layers):
    layer = {name: np.float64(value[i]) for name, value in layers.items()}
    y = norm(x, layer['attention_norm'])
    q, k, v = (np.einsum('td,dhc->htc', y, layer[n]) for n in 'qkv')
    q, k = (turned(z.swapaxes(0, 1)).swapaxes(0, 1) for z in (q, k))
    k, v = (np.repeat(z, len(q) // len(k), axis=0) for z in (k, v))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(config.head_dim)
    scores = np.exp(np.where(past, scores, -np.inf) - scores.max())
    weights = scores / scores.sum(-1, keepdims=True)
    x = x + np.einsum('htc,hcd->td', weights @ v, layer['o'])
    y = norm(x, layer['mlp_norm'])
    gate = y @ layer['gate']
    gate /= 1 + np.exp(-gate)
    x = x + (gate * (y @ layer['up'])) @ layer['down']
    states.append(norm(x, params['final_norm']))
  return states


def reordered(params, order):
  """The same model with D in another order: only sums are ordered otherwise."""
  layers = {
    name: np.take(x, order, axis=_WIDTH[name])
    for name, x in params['layers'].items()
  }
  table = params['embed']['table'][:, order]
  norm = params['final_norm'][order]
  return dict(layers=layers, embed=dict(table=table), final_norm=norm)
