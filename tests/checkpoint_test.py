"""Locks checkpoints: whole or not there, which are kept, what is refused."""

import concurrent.futures
import json
import pathlib
import threading
import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax import checkpoint, config

METRIC = 'eval/success'


def state(value):
  return {
    'params': {'w': jnp.full((2, 3), value), 'b': jnp.arange(3.0) * value},
    'updates': jnp.array(int(value), jnp.int32),
  }


def open_at(path, **options):
  return checkpoint.Checkpoints(
    str(path), **{'keep': 2, 'best_metric': METRIC, **options}
  )


@pytest.fixture
def saved(tmp_path):
  """Steps 1..5; the best is 2, step 4 has no metric."""
  checkpoints = open_at(tmp_path)
  for step, success in ((1, 0.1), (2, 0.9), (3, 0.3), (4, None), (5, 0.8)):
    meta = {'step': step, 'text': 'x'}
    if success is not None:
      meta[METRIC] = success
    checkpoints.save(step, state(step), meta)
  yield checkpoints
  checkpoints.close()


def test_last_and_best_are_kept(saved, tmp_path):
  assert (saved.steps, saved.latest, saved.best) == ([2, 4, 5], 5, 2)
  found = {p.name for p in tmp_path.iterdir() if p.name.isdigit()}
  assert found == {'2', '4', '5'}


def test_best_survives_resume(saved, tmp_path):
  saved.close()
  again = open_at(tmp_path)
  assert (again.steps, again.latest, again.best) == ([2, 4, 5], 5, 2)
  again.save(6, state(6), {METRIC: 0.85})
  again.save(7, state(7), {})
  assert (again.steps, again.best) == ([2, 6, 7], 2)
  again.save(8, state(8), {METRIC: 0.95})
  assert (again.steps, again.best) == ([7, 8], 8)
  again.close()


def test_without_a_metric_there_is_no_best(tmp_path):
  plain = open_at(tmp_path, best_metric='')
  for step in range(4):
    plain.save(step, state(step), {'step': step, METRIC: 1.0})
  assert (plain.steps, plain.best) == ([2, 3], None)
  plain.close()
  never = open_at(tmp_path / 'never')
  never.save(0, state(0), {})
  assert never.best is None
  never.close()


def test_state_and_meta_come_back_bitwise(saved):
  like = jax.tree.map(jnp.zeros_like, state(0))
  restored, meta = saved.restore(2, like)
  chex.assert_trees_all_equal(restored, state(2))
  chex.assert_trees_all_equal_dtypes(restored, state(2))
  assert meta == {'step': 2, 'text': 'x', METRIC: 0.9}


@pytest.mark.parametrize('fault', ['shape', 'missing', 'more'])
def test_another_model_is_refused(saved, fault):
  like = state(0)
  if fault == 'shape':
    like['params']['w'] = jnp.zeros((2, 4))
  elif fault == 'missing':
    del like['params']['b']
  else:
    like['params']['more'] = jnp.zeros(2)
  with pytest.raises(ValueError, match='checkpoint 5 in .* does not fit this'):
    saved.restore(5, like)


def test_a_part_is_read_alone(saved):
  like = {'params': jax.tree.map(jnp.zeros_like, state(0)['params'])}
  part = saved.restore_part(2, like)
  assert set(part) == {'params'}
  chex.assert_trees_all_equal(part['params'], state(2)['params'])


def test_a_half_written_step_is_not_there(saved, tmp_path):
  """What a kill leaves: Orbax writes beside and renames at the end."""
  saved.close()
  half = tmp_path / '6.orbax-checkpoint-tmp-17'
  (half / 'state').mkdir(parents=True)
  (half / 'state' / 'manifest.ocdbt').write_text('torn')
  again = open_at(tmp_path)
  assert (again.steps, again.latest) == ([2, 4, 5], 5)
  again.save(6, state(6), {})
  restored, _ = again.restore(6, state(0))
  chex.assert_trees_all_equal(restored, state(6))
  again.close()


def test_a_tree_round_trips(tmp_path):
  checkpoint.write_tree(str(tmp_path / 'tree'), state(3))
  read = checkpoint.read_tree(str(tmp_path / 'tree'), state(0))
  chex.assert_trees_all_equal(read, state(3))


def test_claim_lists_what_differs(tmp_path):
  first = config.default()
  checkpoint.claim(tmp_path, first)
  checkpoint.claim(tmp_path, config.default())  # the same is welcome
  assert json.loads((tmp_path / 'config.json').read_text())['seed'] == 0
  other = config.default()
  other.seed = 4
  other.train.optimizer.learning_rate = 0.5
  with other.advantage.options.unlocked():
    other.advantage.options.gamma = 0.9
  with pytest.raises(config.ConfigError) as error:
    checkpoint.claim(tmp_path, other)
  faults = error.value.faults
  assert len(faults) >= 3
  for field in ('seed=4', 'train.optimizer.learning_rate=0.5', 'gamma=0.9'):
    assert any(field in fault for fault in faults), field
  assert all('--workdir' in fault for fault in faults)
  assert json.loads((tmp_path / 'config.json').read_text())['seed'] == 0


def test_another_mesh_is_refused_unless_the_config_says_so(tmp_path):
  checkpoint.claim(tmp_path, config.default())
  other = config.default()
  other.mesh.fsdp = 8
  with pytest.raises(config.ConfigError, match='checkpoint.reshard=true'):
    checkpoint.claim(tmp_path, other)
  other.checkpoint.reshard = True
  checkpoint.claim(tmp_path, other)
  other.seed = 1
  with pytest.raises(config.ConfigError) as error:
    checkpoint.claim(tmp_path, other)
  assert len(error.value.faults) == 1 and 'seed=1' in error.value.faults[0]


def test_who_a_process_is_may_change(tmp_path):
  checkpoint.claim(tmp_path, config.default())
  other = config.default()
  other.distributed.coordinator = '10.0.0.7:1234'
  other.distributed.process_id = 1
  checkpoint.claim(tmp_path, other)


def test_directory_is_made_once_by_two_writers(tmp_path):
  target = tmp_path / 'cache' / 'data'
  together = threading.Barrier(2)

  def write(name):
    def fill(directory):
      pathlib.Path(directory, 'a').write_text(name)
      together.wait(10)  # both are in the middle of it
      pathlib.Path(directory, 'b').write_text(name)

    checkpoint.publish_directory(str(target), fill)

  with concurrent.futures.ThreadPoolExecutor() as pool:
    list(pool.map(write, ['one', 'two']))
  assert (target / 'a').read_text() == (target / 'b').read_text()
  assert [p.name for p in target.parent.iterdir()] == ['data']
  checkpoint.publish_directory(str(target), pytest.fail)  # it is there


def test_directory_that_failed_is_not_there(tmp_path):
  def fill(directory):
    pathlib.Path(directory, 'a').write_text('x')
    raise OSError('disk full')

  with pytest.raises(OSError, match='disk full'):
    checkpoint.publish_directory(str(tmp_path / 'data'), fill)
  assert not list(tmp_path.iterdir())


def test_abstract_keeps_what_it_is_given():
  shape = jax.ShapeDtypeStruct((2,), np.float32)
  out = checkpoint.abstract({'a': shape, 'b': jnp.ones(3)})
  assert out['a'] is shape
  assert out['b'].shape == (3,) and out['b'].sharding is not None


def test_reading_leaves_what_a_living_run_is_writing(saved, tmp_path):
  half = tmp_path / '6.orbax-checkpoint-tmp'
  half.mkdir()
  reader = open_at(tmp_path, read_only=True)
  assert (reader.latest, reader.best) == (5, 2)
  part = reader.restore_part(5, {'params': state(0)['params']})
  assert part['params']['w'][0, 0] == 5
  reader.close()
  assert half.exists()
  open_at(tmp_path).close()  # the run's own, after a kill
  patience = time.monotonic() + 20  # Orbax sweeps in a thread
  while half.exists() and time.monotonic() < patience:
    time.sleep(0.01)
  assert not half.exists()
