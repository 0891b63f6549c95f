"""Runs with adapters: what is frozen, kept, checked, resumed and handed on."""

import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loading import load

from agentrl_jax import adapters, assembly, checkpoint, metrics, types, weights
from agentrl_jax import config as config_lib
from agentrl_jax.models import lora, params, peft
from agentrl_jax.rollout import loop

ROOT = pathlib.Path(__file__).parents[1]
LORA = {
  'lora.rank': '2',
  'lora.targets': "('q', 'o', 'down')",
  'sft.steps': '0',
}


runs = load(ROOT / 'tests' / 'trainer_fakes.py')


@pytest.fixture(scope='module', autouse=True)
def panels():
  """Tasks without a data set: the panel is a list."""
  patch = pytest.MonkeyPatch()
  patch.setattr(
    assembly,
    'tasks',
    lambda config, split: [types.Task('echo', split, i, {}) for i in range(10)],
  )
  yield
  patch.undo()


def trainer(path, **sets):
  return runs.trainer(path, **{**LORA, **sets})


def tiny(**sets):
  path = ROOT / 'tests' / 'experiments' / 'tiny_config.py'
  return config_lib.load(str(path), {**LORA, **sets})


@pytest.fixture(scope='module')
def run(tmp_path_factory, panels):
  """A whole run: (directory, trainer, what was published)."""
  path = tmp_path_factory.mktemp('run')
  one, collector = trainer(path, **{'loss.kl_coef': '0.1'})
  published = []

  def publish(tree, version):
    published.append(jax.device_get(tree))
    return True

  collector.engine.publish = publish
  one.run()
  (path / 'config.json').write_text(config_lib.to_json(one.config) + '\n')
  return path, one, published


def same(one, two):
  return all(
    np.array_equal(a, b)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
  )


def test_only_adapters_move_and_the_sampler_gets_them(run):
  path, one, published = run
  assert metrics.read(path)[-1]['updates'] == 4
  first, last = published[0], published[-1]
  assert same(lora.base(first), lora.base(last))
  assert not same(lora.adapters(first), lora.adapters(last))
  assert same(one.state.params['layers']['lora'], lora.adapters(last))


def test_the_kl_is_to_the_base_and_the_base_is_held_once(run):
  path, one, _ = run
  rows = metrics.read(path)
  assert rows[1]['loss/kl'] != 0 and rows[2]['loss/kl'] > rows[1]['loss/kl']
  mine, reference = one._params, one._reference
  for a, b in zip(
    jax.tree.leaves(lora.base(mine)), jax.tree.leaves(lora.base(reference))
  ):
    assert a is b
  assert not any(pair['b'].any() for pair in lora.adapters(reference).values())


def test_a_checkpoint_holds_adapters_only(run):
  path, one, _ = run
  small = sum(x.size for x in jax.tree.leaves(one.state.params))
  saved = checkpoint.Checkpoints(
    str(path / 'checkpoints'), keep=1, read_only=True
  )
  whole = weights.abstract_params(one.parts.model, one.parts.mesh)
  wanted = {'params': lora.split(whole)[0]}
  jax.tree.map(
    np.testing.assert_array_equal,
    saved.restore_part(2, wanted)['params'],
    one.state.params,
  )
  with pytest.raises(ValueError, match=r'params.embed.table: nothing stored'):
    saved.restore_part(2, {'params': whole})
  saved.close()
  # [L=2] x [r=2] x (in + out): q 32+32, o 32+32, down 32+32.
  assert small == 2 * 2 * 3 * 64


@pytest.mark.parametrize('call', [pytest.param(3, marks=pytest.mark.slow), 5])
def test_resumed_it_is_the_undisturbed_run(call, run, tmp_path):
  sets = {'loss.kl_coef': '0.1'}
  two, collector = trainer(tmp_path, **sets)
  collector.interrupt_at = call
  with pytest.raises(loop.Interrupted):
    two.run()
  three, _ = trainer(tmp_path, **sets)
  three.run()
  assert runs.plain_rows(tmp_path) == runs.plain_rows(run[0])
  assert same(three.state, run[1].state)


def test_another_base_is_refused(run, tmp_path):
  one, collector = trainer(tmp_path)
  collector.interrupt_at = 3
  with pytest.raises(loop.Interrupted):
    one.run()
  two, _ = trainer(tmp_path)
  two._base = adapters.digest(jax.tree.map(lambda x: x + 1, two._params))
  with pytest.raises(config_lib.ConfigError, match='beside another base'):
    two.run()


def test_a_digest_sees_a_bit_and_its_place():
  tree = {'a': jnp.arange(6.0).reshape(2, 3), 'b': jnp.ones(4, jnp.bfloat16)}
  swapped = {**tree, 'a': tree['a'][:, ::-1]}
  nudged = {**tree, 'b': tree['b'].at[2].set(1.0078125)}
  turned = {**tree, 'a': tree['a'].T}
  trees = [tree, swapped, nudged, turned, {'a': tree['a']}]
  assert len({adapters.digest(t) for t in trees}) == len(trees)
  copied = jax.tree.map(jnp.copy, tree)
  assert adapters.digest(copied) == adapters.digest(tree)


def test_a_value_head_learns_beside_adapters(tmp_path):
  one, collector = trainer(tmp_path, **runs.PPO)
  publish = collector.engine.publish

  def without(tree, version):
    assert 'value' not in tree and lora.adapters(tree)
    return publish(tree, version)

  collector.engine.publish = without
  one.run()
  assert set(one.state.params) == {'layers', 'value'}
  assert one.state.params['value']['kernel'].any()
  rows = metrics.read(tmp_path)
  assert rows[2]['value/loss'] < rows[1]['value/loss']


def attached(**sets):
  config = tiny(**sets)
  model = assembly.model_config(config, 40)
  mesh = assembly.mesh(config)
  plain = weights.first_params(config, model, mesh)
  assert not lora.adapters(plain)
  return plain, adapters.attach(config, model, plain, mesh), model


def test_attached_adapters_are_the_seeds_and_the_base_gets_its_type():
  _, one, _ = attached(**{'lora.base_dtype': 'bfloat16'})
  assert {x.dtype for x in jax.tree.leaves(lora.base(one))} == {
    jnp.dtype('bfloat16')
  }
  assert {x.dtype for x in jax.tree.leaves(lora.adapters(one))} == {
    np.dtype('float32')
  }
  given, two, _ = attached()
  assert same(lora.adapters(one), lora.adapters(two))
  for a, b in zip(
    jax.tree.leaves(lora.base(two)), jax.tree.leaves(given), strict=True
  ):
    assert a is b  # auto on a CPU: float32 already
  _, other, _ = attached(seed='1')
  assert not same(lora.adapters(one), lora.adapters(other))


def test_an_adapter_of_peft_is_gone_on_from(tmp_path):
  _, one, model = attached()
  moved = jax.tree.map(lambda x: x + 0.5, lora.split(one)[0])
  peft.save(tmp_path, model, moved)
  _, two, _ = attached(**{'lora.adapter': str(tmp_path)})
  assert same(lora.split(two)[0], moved)
  assert adapters.faults(tiny(**{'lora.adapter': str(tmp_path)})) == []
  sets = {'lora.adapter': str(tmp_path), 'lora.rank': '4'}
  (fault,) = adapters.faults(tiny(**sets))
  assert 'config.lora.adapter' in fault and 'it has rank=2' in fault
  sets['lora.rank'] = '0'
  assert 'needs config.lora.rank' in adapters.faults(tiny(**sets))[0]


def test_faults_of_targets_name_the_nearest():
  (fault,) = adapters.faults(tiny(**{'lora.targets': "('ups',)"}))
  assert fault.startswith("config.lora.targets: 'ups': not one of")
  assert "did you mean 'up'?" in fault


def test_experts_have_no_adapters():
  sets = {
    'model.num_experts': '4',
    'model.experts_per_token': '2',
    'model.d_expert': '8',
    'lora.targets': "('q', 'gate')",
  }
  found = assembly.faults(tiny(**sets))
  told = "config.lora.targets: 'gate': not one of q, k, v, o"
  assert [fault for fault in found if fault.startswith(told)]
  sets['lora.targets'] = "('q', 'o')"
  found = assembly.faults(tiny(**sets))
  assert not [fault for fault in found if 'lora' in fault]


@pytest.fixture
def saved(run):
  """A finished run as others find it: (directory, base, merged policy)."""
  path, one, _ = run
  base = lora.base(one._params)
  merged = lora.merge(one.parts.model.lora, one._params)
  return path, base, merged


def test_a_run_starts_from_the_policy_of_a_run_with_adapters(
  saved, monkeypatch
):
  path, base, merged = saved
  model = dataclasses.replace(assembly.model_config(tiny(), 300), lora=None)
  mesh = assembly.mesh(tiny())
  monkeypatch.setattr(weights, 'first_params', lambda *parts: base)
  ours = weights.saved_params(str(path), model, mesh)
  assert jax.tree.structure(ours) == jax.tree.structure(merged)
  for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(merged)):
    np.testing.assert_allclose(a, b, atol=1e-6)
  other = jax.tree.map(lambda x: x + 1e-3, base)
  monkeypatch.setattr(weights, 'first_params', lambda *parts: other)
  with pytest.raises(config_lib.ConfigError, match='beside another base'):
    weights.saved_params(str(path), model, mesh)


def test_a_base_is_read_in_the_type_that_it_had(saved, monkeypatch):
  """Whoever reads may have a device on which 'auto' is another type."""
  path, base, merged = saved
  model = dataclasses.replace(
    assembly.model_config(tiny(), 300), lora=None, dtype='bfloat16'
  )
  monkeypatch.setattr(weights, 'first_params', lambda *parts: base)
  ours = weights.saved_params(str(path), model, assembly.mesh(tiny()))
  for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(merged)):
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_a_base_that_lies_nowhere_else_is_kept(saved, tmp_path, monkeypatch):
  path, base, merged = saved
  one = tiny(**{'sft.steps': '20'})
  digest = adapters.keep(one, str(tmp_path), runs_params(saved))
  assert digest == adapters.digest(base)
  mesh = assembly.mesh(one)
  model = dataclasses.replace(assembly.model_config(one, 300), lora=None)
  like = weights.abstract_params(model, mesh)
  assert same(adapters.kept(str(tmp_path), like), base)
  assert same(weights.kept_base(one, model, mesh, str(tmp_path)), base)
  # Nothing is written where the base can be read again.
  for sets in ({'sft.steps': '0'}, {'sft.steps': '9', 'lora.sft': 'true'}):
    place = tmp_path / str(len(sets))
    assert adapters.keep(tiny(**sets), str(place), runs_params(saved)) == digest
    assert adapters.kept(str(place), like) is None


def runs_params(saved):
  _, base, _ = saved
  model = assembly.model_config(tiny(), 300)
  return lora.join(base, params.adapters(model, jax.random.key(0)))


def test_meta_of_a_checkpoint_names_the_base(run):
  path, one, _ = run
  found = sorted((path / 'checkpoints').glob('*/meta/metadata'))
  names = {json.loads(p.read_text())['base'] for p in found}
  assert names == {one._base} and one._base
