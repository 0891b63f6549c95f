"""Locks what flows on the device: frozen pytrees, axes of each field said."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import pytest

from agentrl_jax import batch

BATCHES = (batch.TurnBatch, batch.TokenBatch)


def fields(kind):
  return [field.name for field in dataclasses.fields(kind)]


def numbered(kind):
  return kind(**{name: jnp.full(2, i) for i, name in enumerate(fields(kind))})


@pytest.mark.parametrize('kind', BATCHES)
def test_every_field_is_a_leaf_and_survives_jit(kind):
  before = numbered(kind)
  assert len(jax.tree.leaves(before)) == len(fields(kind))
  after = jax.jit(lambda b: jax.tree.map(lambda x: x + 1, b))(before)
  assert isinstance(after, kind)
  for i, name in enumerate(fields(kind)):
    assert after[name].tolist() == [i + 1, i + 1], name


@pytest.mark.parametrize('kind', BATCHES)
def test_nothing_is_assigned_only_replaced(kind):
  one = numbered(kind)
  name = fields(kind)[0]
  with pytest.raises(dataclasses.FrozenInstanceError):
    setattr(one, name, jnp.zeros(2))
  other = one.replace(**{name: jnp.full(2, 99)})
  assert one[name].tolist() == [0, 0] and other[name].tolist() == [99, 99]


@pytest.mark.parametrize('kind', BATCHES)
def test_the_docstring_gives_axes_and_type_of_every_field(kind):
  said = dict(re.findall(r'^ +(\w+): (\[[\w, ]+\] \w+)', kind.__doc__, re.M))
  assert list(said) == fields(kind)
  for name, text in said.items():
    dtype = 'bool' if name.endswith('mask') else 'float32|int32|int8'
    assert re.fullmatch(rf'\[[BSLRTk, ]+\] ({dtype})', text), text
