"""What a policy imitates of its own, and that imitation is fine-tuning."""

import pathlib

import jax
import numpy as np
import pytest
from loading import load

from agentrl_jax import assembly, metrics, rejection, types
from agentrl_jax import config as config_lib
from agentrl_jax.rollout import loop, store

ROOT = pathlib.Path(__file__).parents[1]


fakes = load(ROOT / 'tests' / 'trainer_fakes.py')


@pytest.fixture(scope='module', autouse=True)
def panels():
  """Tasks without a data set: the panel is a list."""
  patch = pytest.MonkeyPatch()
  panel = [types.Task('echo', 'train', i, {}) for i in range(10)]
  patch.setattr(assembly, 'tasks', lambda config, split: panel)
  yield
  patch.undo()


def episode(task, *said, paid=1.0, total=None, stop=types.StopReason.DONE):
  rewards = [0.0] * (len(said) - 1) + [paid]
  turns = tuple(
    types.Turn(0, 0, 1, text, (), '', None, (), reward)
    for text, reward in zip(said, rewards)
  )
  parts = {} if total is None else {'total': (total,)}
  where = types.Task('x', 'train', task, {})
  return types.Trajectory(where, 0, (), turns, (), stop, parts)


def said(trajectories):
  return [(t.task.index, [turn.text for turn in t.turns]) for t in trajectories]


def test_the_best_are_paid_and_differ_and_are_few_of_a_task():
  played = [
    episode(1, 'a', 'b', 'c'),
    episode(2, 'x', paid=0.0),  # was not paid
    episode(1, 'a', 'b'),  # sooner than the first
    episode(1, 'a', 'b'),  # says the same
    episode(3, 'y', stop=types.StopReason.ENV_ERROR),
    episode(1, 'd', 'e', 'f', total=2.0),  # longer, but worth more
    episode(4, 'z'),
  ]
  found = rejection.best(played, above=0.0, per_task=2)
  assert said(found) == [(1, ['d', 'e', 'f']), (1, ['a', 'b']), (4, ['z'])]
  assert said(rejection.best(played, above=0.0, per_task=9))[2][1] == [
    'a', 'b', 'c',
  ]  # fmt: skip
  assert rejection.best(played, above=1.0, per_task=2) == []
  # Of two that say the same the better one.
  same = [episode(1, 'a', total=total) for total in (1.0, 2.0)]
  assert rejection.best(same, above=0.0, per_task=2) == same[1:]


FIELDS = {
  'eval.every': '0',
  'eval.tasks': '0',
  'eval.test_tasks': '0',
  'train.iterations': '4',
  'train.minibatches': '1',
  'rejection.every': '2',
  'rejection.updates': '3',
  'rejection.above': '-1',
}


def trainer(path):
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(fakes.train, 'Trainer', rejection.Trainer)
    return fakes.trainer(path, **FIELDS)[0]


def rows(path):
  return {row['step']: row for row in metrics.read(path)}


@pytest.fixture(scope='module')
def whole(panels, tmp_path_factory):
  """An undisturbed run: (directory, trainer, what it imitated)."""
  path, seen = tmp_path_factory.mktemp('whole'), []
  one = trainer(path)
  imitate = one.imitate

  def spy(done, trajectories):
    before = jax.device_get(one.state)
    row = imitate(done, trajectories)
    seen.append((done, trajectories, before, jax.device_get(one.state)))
    return row

  one.imitate = spy
  one.run()
  one.imitate = imitate
  return path, one, seen


def test_every_second_iteration_imitates_the_best_of_two(whole):
  path, _, seen = whole
  assert [done for done, *_ in seen] == [2, 4]
  for done, trajectories, before, after in seen:
    kept = [
      record.trajectory
      for step in (done - 1, done)
      for record in store.read(path, step, kind=rejection.KIND)
    ]
    assert trajectories == kept and kept
    table = [x.params['embed']['table'] for x in (before, after)]
    assert not np.array_equal(*table)
    # The optimizer of RL is as it was.
    jax.tree.map(
      np.testing.assert_array_equal, before.opt_state, after.opt_state
    )
  table = rows(path)
  assert [('rejection/nll' in table[i]) for i in range(1, 5)] == [
    False, True, False, True,
  ]  # fmt: skip


def test_a_resumed_run_does_the_same(whole, tmp_path):
  half = trainer(tmp_path)
  iterate = half._iterate

  def stopping(iteration):
    if iteration == 3:
      raise loop.Interrupted
    return iterate(iteration)

  half._iterate = stopping
  with pytest.raises(loop.Interrupted):
    half.run()
  trainer(tmp_path).run()
  one, two = rows(whole[0]), rows(tmp_path)
  for key in ('rejection/nll', 'rejection/episodes', 'loss/total'):
    assert one[4][key] == two[4][key]


def test_the_best_become_more_likely(whole):
  path, one, _ = whole
  kept = store.read(path, 1, kind=rejection.KIND)
  told = [one.imitate(0, [kept[0].trajectory]) for _ in range(3)]
  first, second, third = (row['rejection/nll'] for row in told)
  assert first > second > third > 0
  assert told[0]['rejection/episodes'] == told[0]['rejection/tasks'] == 1


def test_nothing_to_imitate_changes_nothing(whole):
  before = jax.device_get(whole[1].state.params)
  row = whole[1].imitate(2, [episode(1, 'a', paid=-5.0)])
  assert row['rejection/episodes'] == 0 and np.isnan(row['rejection/nll'])
  after = jax.device_get(whole[1].state.params)
  jax.tree.map(np.testing.assert_array_equal, before, after)


def test_several_hosts_are_refused():
  config = config_lib.default()
  config.rejection.every = 3
  config.distributed.coordinator = 'host:1'
  assert any('config.rejection.every' in x for x in assembly.faults(config))
