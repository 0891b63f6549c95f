"""The real sampler and learner: collecting ahead, and the rows without it."""

import contextlib
import functools
import json
import pathlib
import sys
import time

import jax
import numpy as np
import pytest
from loading import load
from trainer_fakes import made, trainer

from agentrl_jax import assembly, metrics, runtime
from agentrl_jax.rollout import loop, pending, store

ROOT = pathlib.Path(__file__).parents[1]
GOLDEN = ROOT / 'tests' / 'golden' / 'synchronous.json'
sys.path.insert(0, str(ROOT / 'tests' / 'rollout'))
tiny_run = load(ROOT / 'tests' / 'doctor' / 'tiny_run.py')


@pytest.fixture(scope='module', autouse=True)
def panels():
  patch = pytest.MonkeyPatch()
  patch.setattr(assembly, 'tasks', tiny_run.tasks)
  yield
  patch.undo()


def test_without_staleness_rows_are_those_of_before_there_was_any(tmp_path):
  """Reference rows: commit 161a0ad, before episodes could be played ahead."""
  sets = {
    'train.iterations': '3',
    'train.minibatches': '2',
    'eval.tasks': '4',
    'eval.every': '2',
  }
  tiny_run.trainer(tmp_path, **sets).run()
  rows = metrics.read(tmp_path)
  golden = json.loads(GOLDEN.read_text())
  # Bits belong to a processor, its cores and a version of XLA.
  for row, reference in zip(rows, golden['rows'], strict=True):
    row = {key: row[key] for key in reference}
    assert row == pytest.approx(reference, rel=1e-3, abs=1e-5, nan_ok=True)


def test_what_is_played_is_paused_only_for_a_panel(tmp_path):
  one, collector = trainer(
    tmp_path, **{'train.iterations': '5', 'eval.every': '2'}
  )
  pauses = []
  one._source.paused = lambda: pauses.append(done) or contextlib.nullcontext()
  for done in range(6):
    assert bool(one._judge(done)) == (done in (0, 2, 4, 5))
  assert pauses == [0, 2, 4, 5]


def test_an_end_in_the_first_validation_leaves_no_record(tmp_path):
  """There is no checkpoint that it could belong to."""
  one, collector = trainer(tmp_path)
  kept, collector.interrupt_at = [], 1
  one._source.keep = lambda done, **_: kept.append(done)
  with pytest.raises(loop.Interrupted):
    one.run()
  assert kept == []


def test_what_is_published_shares_no_memory_with_what_is_donated(tmp_path):
  """Float32 on both sides: a hand-over that copied nothing would be equal."""
  one = tiny_run.trainer(tmp_path)
  assert one.parts.model.dtype == 'float32'
  engine = one.parts.collector.engine
  assert one._publish()
  mine = jax.tree.leaves(one._params)
  places = [
    {leaf.unsafe_buffer_pointer() for leaf in leaves}
    for leaves in (mine, jax.tree.leaves(engine._params))
  ]
  assert places[0].isdisjoint(places[1])
  before = jax.tree.map(np.copy, jax.device_get(engine._params))
  overwrite = jax.jit(lambda leaves: [-x for x in leaves], donate_argnums=0)
  new = overwrite(mine)
  assert {leaf.unsafe_buffer_pointer() for leaf in new} == places[0]
  jax.tree.map(np.testing.assert_array_equal, engine._params, before)


AHEAD = {
  'rollout.max_staleness': '2',
  'loss.proximal': 'recomputed',
  'loss.correction': "(('tis', {'cap': 2.0}),)",
  'train.iterations': '5',
  'train.minibatches': '2',
}


def ahead(workdir, **sets):
  return tiny_run.trainer(workdir, **AHEAD | sets)


@pytest.fixture
def slow(monkeypatch):
  """Tools take some milliseconds."""
  delay = functools.partial(made.EchoEnv, lambda *_: time.sleep(0.01))
  plain = loop.Collector.__init__

  def init(self, engine, make_env, *rest, **options):
    plain(self, engine, delay, *rest, **options | {'workers': 3})

  monkeypatch.setattr(loop.Collector, '__init__', init)


def versions(workdir, done):
  """Versions of the tokens that iteration `done` learnt from."""
  return {
    version
    for record in store.read(workdir, done)
    for context in record.trajectory.contexts
    for version in context.versions
    if version >= 0
  }


def test_episodes_are_played_ahead_and_tokens_are_their_versions(
  tmp_path, slow
):
  one = ahead(tmp_path, **{'log.trajectories': '-1'})
  one.run()  # the doctor examines each iteration, and would stop it
  rows = metrics.read(tmp_path)[1:]
  assert [row['step'] for row in rows] == [1, 2, 3, 4, 5]
  starts = [0, *(row['updates'] for row in rows)]
  for i, row in enumerate(rows):
    assert row['doctor/failed'] == 0 and row['doctor/checks'] > 10
    assert versions(tmp_path, i + 1) <= set(starts[max(i - 2, 0) : i + 1])
    assert 0 <= row['rollout/staleness_mean'] <= row['rollout/staleness_max']
    assert row['rollout/staleness_max'] <= 2
    assert row['sampler/published_equal'] == 1
    assert 0 < row['host/device_busy_share'] < 1.01
    # Read again by the weights that drew: log-probs are the learner's.
    assert row.get('policy/first_ratio_deviation', 0) < 1e-4
  assert 'policy/first_ratio_deviation' in rows[0]  # all of its version
  assert rows[0]['rollout/staleness_max'] == 0
  assert max(row['rollout/staleness_max'] for row in rows) >= 1
  assert max(row['correction/staleness_mean'] for row in rows) > 0
  assert one._source.counts == dict(admitted=15, trained=15, dropped=0, open=0)
  assert not one._source._thread.is_alive()


def test_a_run_that_was_stopped_goes_on_with_what_was_under_way(tmp_path, slow):
  one = ahead(tmp_path)
  update = one.update

  def stopped(*arguments):
    if one._next_task == 3:  # in the second iteration
      one.parts.stop.signal = runtime.signal.SIGTERM
    return update(*arguments)

  one.update = stopped
  with pytest.raises(loop.Interrupted):
    one.run()
  done = len(metrics.read(tmp_path)) - 1
  assert done == 2
  head, members = pending.read(tmp_path, done)
  assert {m.iteration for m in members} == {2, 3, 4}
  # Three tasks of four members each; iteration 2 let those of 4 begin.
  assert head['counts'] == {'admitted': 15, 'trained': 6, 'dropped': 0}
  assert len(members) == 36
  begun = {(m.iteration, m.task.name, m.sample): m for m in members}
  begun = {k: m for k, m in begun.items() if m.past or m.done}
  assert begun
  two = ahead(tmp_path)
  played, gather = {}, two._source.gather

  def noted(iteration, place):
    groups, *rest = gather(iteration, place)
    for group in groups:
      for t in group.trajectories:
        played[iteration, t.task.name, t.sample] = t
    return groups, *rest

  two._source.gather = noted
  two.run()
  assert [row['step'] for row in metrics.read(tmp_path)] == [0, 1, 2, 3, 4, 5]
  for name, member in begun.items():
    mine = played[name]
    if member.done:
      assert mine.contexts == member.done.contexts
      continue
    tokens, old = mine.contexts[0].tokens, mine.contexts[0].versions
    sampled = [(t, v) for t, v in zip(tokens, old) if v >= 0]
    had = [
      pair for turn in member.past for pair in zip(turn.tokens, turn.versions)
    ]
    assert sampled[: len(had)] == had
  assert two._source.counts == dict(admitted=15, trained=15, dropped=0, open=0)
