"""Locks the output matrix: its own or the embedding's, logits in float32."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from agentrl_jax.models import heads
from agentrl_jax.models.config import PRESETS, ModelConfig

OWN = ModelConfig(vocab_size=3, **{**PRESETS['tiny'], 'd_model': 2})
TIED = dataclasses.replace(OWN, tie_embeddings=True)
TABLE = np.array([[1.0, 2], [3, 4], [5, 6]], np.float32)  # [V, D]
HEAD = np.array([[1.0, 0, 1], [0, 1, 1]], np.float32)  # [D, V]
WEIGHTS = {'embed': {'table': TABLE}, 'head': HEAD}


def test_own_head_by_hand():
  logits = heads.logits(OWN, WEIGHTS, jnp.array([[[2.0, 3.0]]]))
  np.testing.assert_array_equal(logits, [[[2, 3, 5]]])


def test_tied_head_by_hand():
  # [2, 3] on the rows of the table: 2+6, 6+12, 10+18
  logits = heads.logits(TIED, WEIGHTS, jnp.array([[[2.0, 3.0]]]))
  np.testing.assert_array_equal(logits, [[[8, 18, 28]]])


def test_bfloat16_sums_in_float32():
  # 256 + 1 is not a bfloat16, so a sum rounded to it would say 256 or 258.
  table = np.array([[1.0, 1.0]] * 3, np.float32)
  logits = heads.logits(
    TIED, {'embed': {'table': table}}, jnp.array([[256.0, 1.0]], jnp.bfloat16)
  )
  assert logits.dtype == jnp.float32
  np.testing.assert_array_equal(logits, 257.0)


def test_values_by_hand_in_float32():
  head = {'kernel': np.array([2.0, -1.0]), 'bias': np.float32(0.5)}
  hidden = jnp.array([[[256.0, 1.0], [0.0, 3.0]]], jnp.bfloat16)
  values = heads.values({'value': head}, hidden)
  np.testing.assert_array_equal(values, [[511.5, -2.5]])
