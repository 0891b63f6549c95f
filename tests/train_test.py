"""The five verbs on made-up trajectories: what is learnt, skipped, refused."""

import dataclasses
import importlib.util
import math
import pathlib
import sys

import jax
import numpy as np
import pytest

from agentrl_jax import (
  assembly,
  display,
  metrics,
  rewards,
  runtime,
  train,
  types,
)
from agentrl_jax import config as config_lib
from agentrl_jax.models import params as params_lib
from agentrl_jax.rollout import breaker, loop
from agentrl_jax.sampler.engine import Counters

ROOT = pathlib.Path(__file__).parents[1]
StopReason = types.StopReason


def load(path):
  spec = importlib.util.spec_from_file_location(path.stem, path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[path.stem] = module
  spec.loader.exec_module(module)
  return module


made = load(ROOT / 'tests' / 'rollout' / 'rollout_fakes.py')


class Engine:
  """Takes weights; samples nothing."""

  num_slots = 4

  def __init__(self):
    self.published = []

  def publish(self, params, version):
    leaf = jax.tree.leaves(params)[0]
    self.published.append((version, np.asarray(leaf).copy()))
    return True

  def reset_counters(self):
    return Counters()


class Collector:
  """Gives each member the reward and stop reason that functions say."""

  def __init__(self, reward, reason=lambda e, d: StopReason.DONE):
    self.engine = Engine()
    self.calls = []
    self.interrupt_at = -1
    self._reward, self._reason = reward, reason

  def collect(self, entries, draws, on_finish=None):
    self.calls.append((draws.purpose, draws.iteration, list(entries)))
    if len(self.calls) == self.interrupt_at:
      raise loop.Interrupted
    played = [
      made.append_only(
        [2 + e.sample % 3],
        reward=self._reward(e, draws),
        stop_reason=self._reason(e, draws),
        task=e.task,
        sample=e.sample,
      )
      for e in entries
    ]
    for trajectory in played:
      if on_finish is not None:
        on_finish(trajectory)
    return played


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


@pytest.fixture(scope='module')
def whole(tmp_path_factory, panels):
  """An undisturbed run: (rows, state)."""
  workdir = tmp_path_factory.mktemp('whole')
  one, _ = trainer(workdir)
  one.run()
  return plain_rows(workdir), jax.device_get(one.state)


def some(entry, _):
  """Even tasks: half of the group succeeds. Odd ones: all of it."""
  return float(entry.task.index % 2 or entry.sample % 2)


def trainer(tmp_path, reward=some, reason=lambda e, d: StopReason.DONE, **sets):
  path = ROOT / 'tests' / 'experiments' / 'tiny_config.py'
  fields = {
    'rollout.tasks': '4',
    'rewards': "(('outcome', 1.0),)",
    'train.row_length': '256',
    'log.tensorboard': 'false',
    'doctor.strict': 'none',  # it would see that they are made up
  }
  config = config_lib.load(str(path), {**fields, **sets})
  mesh = assembly.mesh(config)
  model = assembly.model_config(config, 300)
  collector = Collector(reward, reason)
  parts = train.Parts(
    config,
    made.language(),
    model,
    mesh,
    collector,
    display.Display('quiet'),
    runtime.Stop(),
  )
  params = params_lib.init(model, jax.random.key(0))
  return train.Trainer(parts, str(tmp_path), params, 0.0), collector


def test_a_run_logs_updates_and_hands_over_each_version(tmp_path):
  one, collector = trainer(tmp_path)
  one.run()
  rows = metrics.read(tmp_path)
  assert [row['step'] for row in rows] == [0, 1, 2]
  assert rows[-1]['updates'] == 4
  assert rows[1]['reward/outcome'] == rows[1]['rollout/success']
  versions = [version for version, _ in collector.engine.published]
  # Validation, iteration 1, validation, iteration 2, validation, test.
  assert versions == [0, 0, 2, 2, 4, 4]
  first, last = (collector.engine.published[i][1] for i in (0, -1))
  assert (first != last).any()
  purposes = [purpose for purpose, *_ in collector.calls]
  evals = ['eval', 'eval_greedy']
  assert purposes == [
    *evals, 'train', *evals, 'train', *evals, 'test', 'test_greedy'
  ]  # fmt: skip


def test_every_task_once_an_epoch_in_a_seeded_order(tmp_path):
  one, _ = trainer(tmp_path)
  assert len(one.tasks) == 10

  def order(trainer, count):
    return [task.index for i in range(count) for task in trainer._tasks_of(i)]

  places = order(one, 5)  # 5 iterations of 4 tasks: two epochs
  assert sorted(places[:10]) == sorted(places[10:]) == list(range(10))
  assert places[:10] != places[10:]
  other, _ = trainer(tmp_path / 'other', seed='1')
  assert order(other, 5) != places
  # The third iteration alone is that of a run from the start.
  assert [t.index for t in one._tasks_of(2)] == places[8:12]


def test_groups_of_equal_outcomes_are_dropped(tmp_path):
  one, collector = trainer(tmp_path)
  groups = one.score(one.collect(0))
  turns = one.turns(groups, 0)
  credit, _ = jax.device_get(one._credit(turns))
  updates = one.collate(groups, credit, 0)
  trained = set()
  for batches in updates:
    for batch in batches:
      trained |= set(batch.row_trajectory[batch.mask].tolist())
    total = sum(batch.weights.sum() for batch in batches)
    assert total == pytest.approx(1.0)
  varying = {
    4 * g + s
    for g, group in enumerate(groups)
    for s in range(4)
    if group.task.index % 2 == 0
  }
  assert varying and trained == varying
  assert len(updates) == 2


def test_an_iteration_without_a_signal_updates_nothing(tmp_path):
  one, _ = trainer(tmp_path, reward=lambda e, d: 1.0)
  one.run()
  rows = metrics.read(tmp_path)
  assert rows[-1]['updates'] == 0 and 'loss/policy' not in rows[-1]
  assert rows[-1]['advantage/dead_groups'] == 1.0
  assert rows[-1]['rollout/success'] == 1.0


def test_a_reward_that_is_no_number_is_a_failure_and_not_a_zero(tmp_path):
  def broken(entry, _):
    return math.nan if entry.sample == 0 else some(entry, _)

  one, _ = trainer(tmp_path, reward=broken)
  groups = one.score(one.collect(0))
  for group in groups:
    reasons = [t.stop_reason for t in group.trajectories]
    assert reasons == [StopReason.REWARD_ERROR, *[StopReason.DONE] * 3]
  turns = one.turns(groups, 0)
  assert not turns.turn_mask.reshape(4, 4, -1)[:, 0].any()


def test_too_many_failures_stop_the_run_and_say_why(tmp_path):
  def reason(entry, draws):
    fails = draws.purpose == 'train' and entry.sample
    return StopReason.ENV_ERROR if fails else StopReason.DONE

  one, _ = trainer(tmp_path, reason=reason)
  with pytest.raises(breaker.TooManyFailures, match='12 of 16 episodes failed'):
    one.run()


def test_a_few_failures_do_not(tmp_path):
  def reason(entry, draws):
    return StopReason.ENV_ERROR if entry.sample == 3 else StopReason.DONE

  one, _ = trainer(tmp_path, reason=reason)
  one.run()
  row = metrics.read(tmp_path)[-1]
  assert row['stop/env_error'] == 4 and row['updates'] == 4


def poison(trainer, times):
  """Makes the next `times` updates learn from infinite advantages."""
  plain, left = trainer._credit, [times]

  def credit(turns):
    values, measured = plain(turns)
    left[0] -= 1
    return (values * np.inf if left[0] >= 0 else values), measured

  trainer._credit = credit


def test_an_update_that_is_not_finite_is_skipped_and_counted(tmp_path):
  one, collector = trainer(tmp_path, **{'train.max_nonfinite': '3'})
  poison(one, 1)  # both updates of the first iteration
  one.run()
  rows = metrics.read(tmp_path)
  assert rows[1]['train/skipped_updates'] == 2 and rows[1]['updates'] == 0
  assert rows[2]['train/skipped_updates'] == 2 and rows[2]['updates'] == 2
  first, after = (collector.engine.published[i][1] for i in (0, 2))
  np.testing.assert_array_equal(first, after)


def test_some_in_a_row_stop_the_run_by_the_metrics_name(tmp_path):
  one, _ = trainer(tmp_path, **{'train.max_nonfinite': '2'})
  poison(one, 9)
  with pytest.raises(train.Diverged, match='the first bad metric is loss'):
    one.run()
  assert [row['step'] for row in metrics.read(tmp_path)] == [0]


@pytest.mark.parametrize('call', [1, 3, 5, 6])
def test_interrupted_and_resumed_it_is_the_undisturbed_run(
  call, whole, tmp_path
):
  two, collector = trainer(tmp_path)
  collector.interrupt_at = call
  with pytest.raises(loop.Interrupted):
    two.run()
  three, _ = trainer(tmp_path)
  three.run()
  assert plain_rows(tmp_path) == whole[0]
  for a, b in zip(jax.tree.leaves(whole[1]), jax.tree.leaves(three.state)):
    np.testing.assert_array_equal(a, np.asarray(b))


def plain_rows(path):
  return [
    repr(
      {
        k: v
        for k, v in row.items()
        # The first iteration of each process is examined.
        if not k.startswith(('wall_s', 'time/', 'host/', 'doctor/'))
        and not k.endswith('_per_s')
      }
    )
    for row in metrics.read(path)
  ]


def test_a_row_beyond_its_checkpoint_is_written_again(whole, tmp_path):
  two, _ = trainer(tmp_path)
  save = two._save

  def crash(done, row):
    if done == 1:
      raise SystemExit  # after the row, before the checkpoint
    save(done, row)

  two._save = crash
  with pytest.raises(SystemExit):
    two.run()
  assert len(metrics.read(tmp_path)) == 2
  three, _ = trainer(tmp_path)
  three.run()
  assert plain_rows(tmp_path) == whole[0]


def test_sparse_checkpoints_resume_all_the_same(tmp_path):
  sets = {
    'checkpoint.every': '2',
    'eval.every': '0',
    'train.iterations': '4',
  }
  one, _ = trainer(tmp_path / 'a', **sets)
  one.run()
  two, collector = trainer(tmp_path / 'b', **sets)
  collector.interrupt_at = 5  # the third iteration (after two validations)
  with pytest.raises(loop.Interrupted):
    two.run()
  assert collector.calls[-1][:2] == ('train', 2)
  three, _ = trainer(tmp_path / 'b', **sets)
  three.run()
  assert plain_rows(tmp_path / 'a') == plain_rows(tmp_path / 'b')


@pytest.mark.parametrize('anchors', ['exact', 'turn_index', 'shuffled'])
def test_anchors_are_those_that_the_config_names(anchors, tmp_path):
  one, _ = trainer(tmp_path, **{'advantage.anchors': anchors})
  groups = one.score(one.collect(0))
  turns = [one.turns(groups, iteration) for iteration in (0, 0, 1)]
  np.testing.assert_array_equal(turns[0].anchor_ids, turns[1].anchor_ids)
  has = (turns[0].anchor_ids >= 0).any()
  assert has == (anchors == 'turn_index')  # the made-up ones have no key


@pytest.mark.parametrize('threshold, states', [('0.9', 1), ('0.95', 2)])
def test_similar_states_are_one_where_the_config_says_so(
  threshold, states, tmp_path
):
  # 'page 1 of 9' and 'page 2 of 9' share 10 of 11 characters: 0.909.
  sets = {'advantage.anchors': 'similarity', 'advantage.similarity': threshold}
  one, _ = trainer(tmp_path, **sets)

  def keyed(t):
    key = f'page {1 + t.sample % 2} of 9'
    turns = (dataclasses.replace(turn, state_key=key) for turn in t.turns)
    return dataclasses.replace(t, turns=tuple(turns))

  groups = [
    types.Group(g.task, tuple(map(keyed, g.trajectories)))
    for g in one.score(one.collect(0))
  ]
  ids = one.turns(groups, 0).anchor_ids
  assert len(np.unique(ids[ids >= 0])) == states * len(groups)


def strict(trajectory):
  """An auditor that confirms the successes of sample 3 alone."""
  believed = float(trajectory.outcome > 0 and trajectory.sample == 3)
  return [believed] * len(trajectory.turns)


def heard(trainer):
  """Collects what the trainer's watch says."""
  texts = []
  trainer._watch._warn = texts.append
  return texts


def test_a_reward_that_the_audit_does_not_confirm_rings(tmp_path, monkeypatch):
  monkeypatch.setitem(rewards.REWARDS, 'strict', strict)

  def gamed(entry, draws):
    return float(entry.sample == 3 or draws.iteration > 0)

  sets = {'audit_reward': 'strict', 'watch.patience': '1'}
  one, _ = trainer(tmp_path, reward=gamed, **sets)
  texts = heard(one)
  one.run()
  first, second = metrics.read(tmp_path)[1:]
  assert (first['audit/gap'], second['audit/gap']) == (0.0, 0.75)
  assert second['audit/strict'] == 0.25 and second['audit/failed'] == 0
  # The second differs from the mean of 0 and 0.75 by 0.375 > 0.1.
  (text,) = (text for text in texts if 'audit' in text)
  assert text.startswith('iteration 2: audit/gap 0.75 of success is not')
  # Trained is what the trained reward says.
  assert second['reward/outcome'] == 1.0


def test_a_resumed_run_watches_from_the_start_of_the_run(tmp_path):
  one, _ = trainer(tmp_path)
  one.run()
  two, _ = trainer(tmp_path)
  two.run()  # nothing is left to do
  assert two._watch._values == one._watch._values
  assert len(two._watch._values['rollout/turn_tokens']) == 2


def test_input_dependence_is_measured_on_the_interval(tmp_path):
  sets = {'watch.every': '2', 'train.iterations': '3', 'eval.every': '0'}
  one, collector = trainer(tmp_path, **sets)
  collect = collector.collect

  def asked(entries, draws, on_finish=None):
    """Every task has a prompt of its own."""
    played = collect(entries, draws, on_finish)
    return [made.with_first(t, 3 + t.task.index) for t in played]

  collector.collect = asked
  one.run()
  rows = metrics.read(tmp_path)
  measured = ['watch/input_dependence' in row for row in rows]
  assert measured == [False, True, False, True]
  assert -1 < rows[1]['watch/input_dependence'] <= 1


def test_a_kl_compares_with_the_weights_at_the_start(tmp_path):
  one, _ = trainer(
    tmp_path, **{'loss.kl_coef': '0.1', 'train.minibatches': '1'}
  )
  one.run()
  rows = metrics.read(tmp_path)
  assert rows[1]['loss/kl'] == pytest.approx(0.0, abs=1e-6)
  assert rows[2]['loss/kl'] > 1e-7
