"""Nothing that was admitted is lost, played twice, too old or mis-versioned."""

import collections
import dataclasses
import functools
import pathlib
import random
import time
import types as types_lib

import pytest
import rollout_fakes as made

from agentrl_jax import config as config_lib
from agentrl_jax import display, types
from agentrl_jax.rollout import ahead, breaker, loop, pending, selection
from agentrl_jax.text import templates

TINY = pathlib.Path(__file__).parents[1] / 'experiments' / 'tiny_config.py'
TASKS, SIZE, ITERATIONS = 3, 2, 6
StopReason = types.StopReason


def config(**fields):
  return config_lib.load(
    str(TINY),
    {
      'rollout.tasks': str(TASKS),
      'rollout.group_size': str(SIZE),
      'rollout.max_staleness': '2',
      'train.iterations': str(ITERATIONS),
    }
    | fields,
  )


def letter(version):
  return made.language().tokenizer.encode(chr(97 + version % 26))


def engine(seed=0, num_slots=3):
  """Each token that it draws tells the version that drew it."""

  def draw(words, context):
    del context
    end = templates.stop_ids(made.language().tokenizer, 'tiny')[0]
    return [*letter(sampler.version) * (1 + int(words[1]) % 5), end], True

  sampler = made.FakeEngine(draw, num_slots, seed)
  return sampler


class Run:
  """A learner that does nothing but keep books.

  Args:
    workdir: of the run; what is under way is taken up.
    done: iterations of an earlier process.
  """

  def __init__(
    self, workdir, done=0, make_env=made.EchoEnv, workers=0, seed=0, **fields
  ):
    self.config = config(**fields)
    self.collector = loop.Collector(
      engine(seed), make_env, made.language(), made.limits(), workers=workers
    )
    self.stop = False
    tasks = made.tasks(20)
    self.source = ahead.Ahead(
      self.config,
      self.collector,
      workdir,
      tasks,
      functools.partial(selection.task_order, len(tasks), 0),
      list,
      display.Display('quiet'),
      lambda: self.stop,
    )
    self.source.restore(done)
    self.done, self.learnt = done, []

  def step(self):
    """One iteration: two updates, so that versions are 0, 2, 4, ..."""
    sampler, version = self.collector.engine, 2 * self.done
    assert self.source.publish(
      lambda: sampler.publish(None, version), version, self.done
    )
    groups, played, _ = self.source.gather(self.done, 0)
    assert groups is played
    self.learnt.append(groups)
    self.source.trained(self.done)
    self.done += 1
    self.source.keep(self.done)

  def close(self):
    self.source.close()
    self.collector.close()


def check(learnt, lag, failures=0):
  """The ledger: each member of each iteration once, none too old."""
  order = selection.task_order(20, 0, 0, ITERATIONS * TASKS)
  names = [
    [[(t.task.index, t.sample) for t in g.trajectories] for g in groups]
    for groups in learnt
  ]
  assert names == [
    [
      [(index, sample) for sample in range(SIZE)]
      for index in order[i * TASKS : (i + 1) * TASKS]
    ]
    for i in range(ITERATIONS)
  ]
  failed, ages = 0, collections.Counter()
  for i, groups in enumerate(learnt):
    for t in selection.flat(groups):
      failed += not t.stop_reason.trainable
      for context in t.contexts:
        for token, version in drawn(context):
          assert [token] == letter(version)
          ages[i - version // 2] += 1
  assert failed == failures
  assert min(ages) >= 0 and max(ages) <= lag
  return ages


def drawn(context):
  """Sampled tokens with their versions, end tokens left out."""
  ends = templates.stop_ids(made.language().tokenizer, 'tiny')
  rows = zip(context.tokens, context.sampled_mask, context.versions)
  for token, sampled, version in rows:
    assert sampled == (version >= 0)
    if sampled and token not in ends:
      yield token, version


def delays(seed, longest=0.01):
  draw = random.Random(seed)
  return functools.partial(
    made.EchoEnv, lambda *_: time.sleep(longest * draw.random())
  )


@pytest.mark.parametrize('lag', [1, 2])
@pytest.mark.parametrize('workers', [0, 4])
def test_every_group_is_learnt_from_once_and_in_time(tmp_path, lag, workers):
  made.EchoEnv.open = 0
  run = Run(
    tmp_path,
    make_env=delays(lag),
    workers=workers,
    **{'rollout.max_staleness': str(lag)},
  )
  for _ in range(ITERATIONS):
    run.step()
    measured = run.source.measures()
    assert measured['rollout/staleness_max'] <= lag
    assert measured['rollout/dropped_groups'] == 0
    time.sleep(0.02)
  counts = run.source.counts
  run.close()
  everything = ITERATIONS * TASKS
  assert counts == dict(
    admitted=everything, trained=everything, dropped=0, open=0
  )
  ages = check(run.learnt, lag)
  assert len(ages) > 1  # some were played ahead
  sampler = run.collector.engine
  assert made.EchoEnv.open == 0 and sampler.num_free == sampler.num_slots


def broken():
  raise RuntimeError('the database is gone')


def test_failed_episodes_stay_in_their_groups(tmp_path):
  order = selection.task_order(20, 0, 0, ITERATIONS * TASKS)
  fault = {(order[1], 1): broken, (order[7], 0): broken}
  run = Run(
    tmp_path,
    make_env=functools.partial(made.EchoEnv, fault=fault),
    workers=2,
    **{'rollout.failure_limit': '1.0'},
  )
  for _ in range(ITERATIONS):
    run.step()
  run.close()
  check(run.learnt, 2, failures=2 * SIZE)
  flat = selection.flat(run.learnt[0])
  assert flat[SIZE].stop_reason is StopReason.ENV_ERROR


def test_too_many_failures_of_an_iteration_reach_who_waits(tmp_path):
  def make_env():
    raise OSError('no disk')

  run = Run(tmp_path, make_env=make_env, **{'rollout.failure_limit': '0.5'})
  with pytest.raises(breaker.TooManyFailures, match='4 of 6 .* no disk'):
    run.step()
  run.close()


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('final', [True, False])
def test_a_run_that_is_cut_anywhere_loses_nothing(tmp_path, seed, final):
  """Cut by a signal (`final`) or without one, again and again."""
  draw, learnt, done, begun = random.Random(seed), [], 0, 0
  while done < ITERATIONS:
    run = Run(tmp_path, done, delays(seed), workers=2, seed=seed)
    for _ in range(draw.randrange(1, 3)):
      if run.done < ITERATIONS:
        run.step()
        time.sleep(0.01 * draw.random())
    if final:
      run.source.keep(run.done, final=True)
    _, members = pending.read(tmp_path, run.done)
    begun += sum(bool(m.past) or m.done is not None for m in members)
    counts = run.source.counts
    assert counts['admitted'] == counts['trained'] + counts['open']
    assert len(members) == counts['open'] * SIZE
    learnt, done = learnt + run.learnt, run.done
    run.close()
  assert begun
  check(learnt, 2)
  assert counts == dict(
    admitted=ITERATIONS * TASKS,
    trained=ITERATIONS * TASKS,
    dropped=0,
    open=0,
  )


def test_an_interrupt_while_waiting_keeps_what_was_drawn(tmp_path):
  slow = functools.partial(made.EchoEnv, lambda t, s, n: time.sleep(0.03 * n))
  run = Run(tmp_path, make_env=slow, workers=2)
  sampler = run.collector.engine
  run.source.publish(lambda: sampler.publish(None, 0), 0, 0)
  time.sleep(0.1)
  run.stop = True
  with pytest.raises(loop.Interrupted):
    run.source.gather(0, 0)
  run.source.keep(0, final=True)
  run.close()
  _, members = pending.read(tmp_path, 0)
  # Three iterations are in time: 0, 1 and 2.
  assert len(members) == 3 * TASKS * SIZE
  had = [t for m in members for turn in m.past for t in turn.tokens]
  assert had
  again = Run(tmp_path)
  for _ in range(ITERATIONS):
    again.step()
  again.close()
  check(again.learnt, 2)


@pytest.mark.parametrize('workers', [0, 2])
def test_somebody_else_plays_while_it_is_paused(tmp_path, workers):
  """Validation between iterations; what was under way goes on."""
  entries = [loop.Entry(t, s) for t in made.tasks(4) for s in range(2)]
  draws = loop.Draws(0, 'eval', 0)
  run = Run(tmp_path, make_env=delays(0, 0.002), workers=workers)
  texts = set()
  for _ in range(ITERATIONS):
    run.step()
    with run.source.paused():
      sampler = run.collector.engine
      assert sampler.num_free == sampler.num_slots
      sampler.publish(None, 0)
      played = run.collector.collect(entries, draws)
      texts.add(repr([[turn.text for turn in t.turns] for t in played]))
      sampler.publish(None, 2 * run.done)
  run.close()
  assert len(texts) == 1
  check(run.learnt, 2)


def test_groups_that_come_late_are_dropped_and_counted(tmp_path):
  def slow(task, sample, turn):
    time.sleep(0.3 if task.index % 4 == 0 and turn else 0.0)

  made.EchoEnv.open = 0
  run = Run(
    tmp_path,
    make_env=functools.partial(made.EchoEnv, slow),
    workers=6,
    **{'rollout.oversample': '1', 'rollout.max_staleness': '1'},
  )
  dropped = turns = 0
  for i in range(ITERATIONS):
    run.step()
    row = run.source.measures()
    dropped += row['rollout/dropped_groups']
    turns += row['rollout/dropped_turns']
    order = selection.task_order(20, 0, 4 * i, 4)
    places = [order.index(g.task.index) for g in run.learnt[i]]
    assert len(places) == TASKS and places == sorted(set(places))
  counts = run.source.counts
  assert dropped == counts['dropped'] == ITERATIONS
  assert counts['admitted'] == 4 * ITERATIONS
  assert counts['trained'] == TASKS * ITERATIONS and not counts['open']
  assert all(
    len(g.trajectories) == SIZE for groups in run.learnt for g in groups
  )
  time.sleep(0.7)  # the last calls of dropped episodes come back
  run.close()
  late = {g.task.index % 4 for groups in run.learnt for g in groups}
  assert late - {0} == {1, 2, 3}


def test_who_ends_while_it_is_dropped_is_counted_once(tmp_path):
  run = Run(tmp_path, **{'rollout.oversample': '1'})
  two, one = ([2] * turns for turns in (2, 1))
  done = {place: made.append_only(one) for place in range(TASKS * SIZE)}
  late = [
    types_lib.SimpleNamespace(
      done=None, episode=types_lib.SimpleNamespace(num_turns=turns)
    )
    for turns in (2, 1)
  ]
  batch = ahead.Batch([None] * 8, [None] * 6 + late, done)

  def drop(players):
    players[0].done = done[6] = made.append_only(two)

  run.source._play.drop = drop
  assert run.source._cut(batch) == 1.5  # (2 + 1) / 2
  run.close()


def test_tasks_are_the_panels_and_a_lost_record_is_told(tmp_path, monkeypatch):
  told = []
  monkeypatch.setattr(
    display.Display, 'warn', lambda _, text: told.append(text)
  )
  mine, *_ = made.tasks(20)
  other = types.Task('other', 'train', 5, {'turns': 1})
  members = [
    pending.Member(1, dataclasses.replace(task, data={'turns': 1, 'as': []}), i)
    for i, task in enumerate((mine, other))
  ]
  ended = made.append_only([2], task=members[0].task)
  members.append(pending.Member(1, ended.task, 2, done=ended))
  pending.write(tmp_path, 1, {'published': [[0, 0]]}, members)
  run = Run(tmp_path, 1)
  batch = run.source._batches[1]
  assert [e.task.data for e in batch.entries] == [
    mine.data, members[1].task.data, mine.data,
  ]  # fmt: skip
  assert batch.done[2].task.data == mine.data and not told
  run.close()
  Run(tmp_path, 0).close()
  assert not told  # of a run that begins there is none
  Run(tmp_path, 2).close()
  assert len(told) == 1 and 'after iteration 2' in told[0]


def test_contexts_whose_experts_are_unknown_are_counted(tmp_path):
  run = Run(tmp_path)
  run.source._published = {0: 0}
  plain = made.trajectory((), [made.context((2, False), (1, True))] * 3)
  some = [
    dataclasses.replace(c, versions=(-1, -1, 0), routes=routes)
    for c, routes in zip(
      plain.contexts, (None, types.Routes((), '', b''), None)
    )
  ]

  def counted(contexts):
    group = types.Group(
      plain.task, (dataclasses.replace(plain, contexts=contexts),)
    )
    return run.source._ages([group], 0)['rollout/unrouted_contexts']

  unasked = dataclasses.replace(some[0], sampled_mask=(False,) * 3)
  assert counted((*some, unasked)) == 2
  assert counted(some[::2]) == 0  # a dense policy
  run.close()


def test_what_it_cannot_do_is_refused():
  cases = {
    "'refill'": {'train.constant_groups': 'refill'},
    "'vineppo'": {'advantage.estimator': 'vineppo'},
    'collectives': {'mesh.fsdp': '2'},
    'imitation': {'rejection.every': '3'},
  }
  assert ahead.faults(config()) == []
  for word, fields in cases.items():
    (fault,) = ahead.faults(config(**fields))
    assert word in fault and 'max_staleness=2' in fault
    assert not ahead.faults(config(**{'rollout.max_staleness': '0'} | fields))
  alone = {'rollout.oversample': '2', 'rollout.max_staleness': '0'}
  (fault,) = ahead.faults(config(**alone))
  assert 'needs config.rollout.max_staleness' in fault
