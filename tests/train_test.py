"""The five verbs on made-up trajectories: what is learnt, skipped, refused."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from trainer_fakes import PPO, StopReason, made, plain_rows, some, trainer

from agentrl_jax import assembly, metrics, rewards, train, types, weights
from agentrl_jax.models import params as params_lib
from agentrl_jax.rollout import breaker, loop, updates


@pytest.fixture(scope='module', autouse=True)
def panels():
  """Tasks without a data set: the panel is a list."""
  patch = pytest.MonkeyPatch()
  patch.setattr(
    assembly,
    'tasks',
    lambda config, split: [
      types.Task('echo', split, i, {'level': i % 2}) for i in range(10)
    ],
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
    for i in range(count):
      trainer._next_task = trainer.collect(i)[2]
    calls = trainer.parts.collector.calls
    return [e.task.index for *_, es in calls for e in es[::4]]

  places = order(one, 5)  # 5 iterations of 4 tasks: two epochs
  assert sorted(places[:10]) == sorted(places[10:]) == list(range(10))
  assert places[:10] != places[10:]
  other, _ = trainer(tmp_path / 'other', seed='1')
  assert order(other, 5) != places


def test_groups_of_equal_outcomes_are_dropped(tmp_path):
  one, collector = trainer(tmp_path)
  groups, _, _ = one.collect(0)
  lines, earned = one.estimate(groups, *one.collate(groups, 0))
  dealt, _ = updates.deal(groups, earned, lines, one.config, 0)
  trained = set()
  for batches in dealt:
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
  assert len(dealt) == 2


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
  groups, _, _ = one.collect(0)
  for group in groups:
    reasons = [t.stop_reason for t in group.trajectories]
    assert reasons == [StopReason.REWARD_ERROR, *[StopReason.DONE] * 3]
  turns, _ = one.collate(groups, 0)
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
  plain, left = trainer._assign._estimate, [times]

  def estimate(turns):
    values = plain(turns)
    left[0] -= 1
    return values * np.inf if left[0] >= 0 else values

  trainer._assign._estimate = estimate


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
  groups, _, _ = one.collect(0)
  turns = [one.collate(groups, i)[0] for i in (0, 0, 1)]
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
    for g in one.collect(0)[0]
  ]
  ids = one.collate(groups, 0)[0].anchor_ids
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

  def asked(entries, draws, on_finish=None, on_state=None):
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


def test_a_value_head_is_learnt_saved_and_kept_from_the_sampler(tmp_path):
  one, collector = trainer(tmp_path, **PPO)
  publish = collector.engine.publish

  def without(params, version):
    assert 'value' not in params
    return publish(params, version)

  collector.engine.publish = without
  one.run()
  rows = metrics.read(tmp_path)
  assert rows[2]['value/loss'] < rows[1]['value/loss']
  # Before the first update every value is 0 and explains nothing.
  assert rows[1]['value/explained_variance'] == 0
  assert rows[1]['value/mean'] == 0 != rows[2]['value/mean']
  # A player of the policy reads the checkpoint without it.
  model = one.parts.model
  played = weights.saved_params(str(tmp_path), model, one.parts.mesh)
  want = params_lib.policy(one.state.params)
  assert jax.tree.structure(played) == jax.tree.structure(want)
  for a, b in zip(jax.tree.leaves(played), jax.tree.leaves(want), strict=True):
    np.testing.assert_array_equal(a, b)


def test_a_run_with_values_resumes_bitwise(tmp_path):
  sets = {**PPO, 'eval.tasks': '0', 'eval.test_tasks': '0'}
  one, _ = trainer(tmp_path / 'a', **sets)
  one.run()
  two, collector = trainer(tmp_path / 'b', **sets)
  collector.interrupt_at = 2
  with pytest.raises(loop.Interrupted):
    two.run()
  three, _ = trainer(tmp_path / 'b', **sets)
  three.run()
  assert plain_rows(tmp_path / 'a') == plain_rows(tmp_path / 'b')
  head, again = (x.state.params['value'] for x in (one, three))
  np.testing.assert_array_equal(head['kernel'], again['kernel'])


QUIET = {'eval.every': '0', 'eval.tasks': '0', 'eval.test_tasks': '0'}
REFILL = QUIET | {'train.constant_groups': 'refill'}


def test_groups_that_teach_nothing_are_collected_anew(tmp_path):
  one, collector = trainer(tmp_path, **REFILL)
  groups, played, place = one.collect(0)
  assert len(groups) == 4 < len(played)
  assert all(group.task.index % 2 == 0 for group in groups)
  # Just as many more tasks as were missing, each time; in the run's order.
  asked = [len(entries) // 4 for *_, entries in collector.calls]
  varying = np.cumsum(
    [
      sum(e.task.index % 2 == 0 for e in entries) // 4
      for *_, entries in collector.calls
    ]
  )
  assert asked[0] == 4 and asked[1:] == [4 - v for v in varying[:-1]]
  assert place == len(played) == sum(asked)
  assert one._next_task == 0  # until the update is done


def test_refills_end_and_what_is_left_is_no_update(tmp_path):
  sets = REFILL | {'rollout.max_refills': '2'}
  one, collector = trainer(tmp_path, reward=lambda e, d: 1.0, **sets)
  groups, played, _ = one.collect(0)
  assert (len(groups), len(played), len(collector.calls)) == (4, 12, 3)
  # Of ten tasks two came again, and are not sampled with the same keys.
  names = [(e.task.index, e.sample) for *_, es in collector.calls for e in es]
  assert len(set(names)) == len(names)
  lines, earned = one.estimate(groups, *one.collate(groups, 0))
  assert updates.deal(groups, earned, lines, one.config, 0) == ([], [])


def test_a_run_with_refills_resumes_bitwise(tmp_path):
  sets = REFILL | {'train.iterations': '3'}
  one, collector = trainer(tmp_path / 'a', **sets)
  one.run()
  asked = [iteration for _, iteration, _ in collector.calls]
  again = next(i for i in range(1, 9) if asked[i - 1] == asked[i] > 0)
  two, collector = trainer(tmp_path / 'b', **sets)
  collector.interrupt_at = again + 1  # in a refill after a checkpoint
  with pytest.raises(loop.Interrupted):
    two.run()
  three, _ = trainer(tmp_path / 'b', **sets)
  three.run()
  rows = plain_rows(tmp_path / 'a')
  assert rows == plain_rows(tmp_path / 'b')
  assert one._next_task == three._next_task > 12
  for a, b in zip(jax.tree.leaves(one.state), jax.tree.leaves(three.state)):
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_interrupted_between_play_and_update_it_resumes_bitwise(
  tmp_path, monkeypatch
):
  sets = {
    'checkpoint.every': '2',
    'env.curriculum': 'pass_rate',
    'eval.every': '0',
    'train.iterations': '3',
  }
  one, _ = trainer(tmp_path / 'a', **sets)
  one.run()
  two, _ = trainer(tmp_path / 'b', **sets)
  plain = two._explore

  def explore(groups, iteration):
    if iteration == 1:
      raise loop.Interrupted
    return plain(groups, iteration)

  monkeypatch.setattr(two, '_explore', explore)
  with pytest.raises(loop.Interrupted):
    two.run()
  three, collector = trainer(tmp_path / 'b', **sets)
  three.run()
  # It begins with the iteration that was cut.
  assert collector.calls[0][:2] == ('train', 1)
  assert plain_rows(tmp_path / 'a') == plain_rows(tmp_path / 'b')
  assert one._next_task == three._next_task
  assert one._order.state() == three._order.state()
  for a, b in zip(jax.tree.leaves(one.state), jax.tree.leaves(three.state)):
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_memory_is_of_the_host_that_has_most(tmp_path, monkeypatch):
  one, _ = trainer(tmp_path)
  told = []
  monkeypatch.setattr(
    train.hosts, 'combine', lambda row, **_: told.append(row) or {'host/x': 7.0}
  )
  one._log(1, {})
  assert told[0]['host/rss_mb'] > 0
  assert metrics.read(tmp_path)[-1]['host/x'] == 7.0


def test_what_ran_out_of_tokens_is_judged_and_not_trained_on(tmp_path):
  def reason(entry, draws):
    return StopReason.LENGTH if entry.sample == 3 else StopReason.DONE

  one, _ = trainer(tmp_path, reason=reason, **{'train.overlong': 'drop'})
  groups, _, _ = one.collect(0)
  lines, earned = one.estimate(groups, *one.collate(groups, 0))
  dealt, _ = updates.deal(groups, earned, lines, one.config, 0)
  trained = {int(b) for u in dealt for x in u for b in x.row_trajectory[x.mask]}
  assert trained and not any(b % 4 == 3 for b in trained)
  assert earned.advantages[3::4].any()


CORRECTED = QUIET | {'loss.correction': "(('tis', {'cap': 1.5}),)"}


@pytest.mark.parametrize('proximal', ['recomputed', 'latest', 'interpolated'])
def test_corrections_are_measured(proximal, tmp_path):
  sets = CORRECTED | {'loss.proximal': proximal, 'train.minibatches': '3'}
  one, _ = trainer(tmp_path, **sets)
  one.run()
  row = metrics.read(tmp_path)[1]
  # Made up, the log-probs at sampling are another policy's. The three updates
  # see tokens of age 0, 1 and 2 (their version is 3): the mean is negative.
  assert row['updates'] == 3
  assert row['correction/masked_share'] == 0
  assert 0 < row['correction/ess'] <= 1
  if proximal == 'interpolated':  # of tokens so young, it is the sampling one
    assert row['correction/ess'] == pytest.approx(1)
    assert row['correction/mismatch_kl'] == pytest.approx(0)
  else:
    assert row['correction/mismatch_kl'] > 0
