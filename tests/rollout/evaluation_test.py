"""Held-out tasks: every one once, sampled and greedily, with their own keys."""

import collections
import types as types_lib

import ml_collections
import pytest
import rollout_fakes as made

from agentrl_jax import display, types
from agentrl_jax.rollout import evaluation, loop


class Recorder:
  """A collector that answers with made-up trajectories."""

  def __init__(self, succeed):
    self.calls = []
    self._succeed = succeed

  def collect(self, entries, draws):
    self.calls.append((list(entries), draws))
    return [
      made.append_only([2], reward=float(self._succeed(e, draws)), task=e.task)
      for e in entries
    ]


def test_sampled_and_greedy_rates_by_hand():
  recorder = Recorder(lambda e, d: e.task.index == 0 or not d.temperature)
  tasks = made.tasks(4)
  row, shown = evaluation.evaluate(recorder, tasks, seed=5, name='test')
  assert row['test/success'] == 0.25 and row['test/success_greedy'] == 1.0
  # 1.96 sqrt(0.25 * 0.75 / 4)
  assert row['test/interval'] == pytest.approx(0.42435, abs=1e-4)
  assert [t.outcome for t in shown] == [1, 0, 0, 0]  # the sampled ones
  (entries, sampled), (again, greedy) = recorder.calls
  assert entries == again == [loop.Entry(task, 0) for task in tasks]
  assert (sampled.temperature, greedy.temperature) == (1.0, 0.0)
  assert sampled.seed == greedy.seed == 5
  assert sampled.purpose != greedy.purpose
  assert {sampled.purpose, greedy.purpose}.isdisjoint({'train', 'eval'})


def test_one_mode_alone():
  recorder = Recorder(lambda e, d: True)
  row, shown = evaluation.evaluate(
    recorder, made.tasks(2), seed=0, modes=('_greedy',)
  )
  assert len(recorder.calls) == 1 and len(shown) == 2
  assert row['eval/success_greedy'] == 1.0 and 'eval/success' not in row


def test_evaluation_repeats_and_shares_no_sample_with_training():
  def play(name):
    player = loop.Collector(
      made.FakeEngine(made.draw_text),
      made.EchoEnv,
      made.language(),
      made.limits(),
    )
    return evaluation.evaluate(player, made.tasks(6), seed=0, name=name)

  first, again, other = play('eval'), play('eval'), play('test')
  assert first[1] == again[1] and repr(first[0]) == repr(again[0])  # NaN

  def texts(result):
    return collections.Counter(t.turns[0].text for t in result[1])

  assert texts(first) != texts(other)


@pytest.mark.parametrize(
  ('every', 'panel', 'tests', 'dues'),
  [
    (2, 3, 1, [0, 2, 4, 5]),
    (0, 3, 1, [0, 5]),
    (2, 0, 1, [5]),  # no validation: the test at the end
    (0, 3, 0, [0, 5]),
    (2, 0, 0, []),
  ],
)
def test_what_is_due_is_what_is_played(tmp_path, every, panel, tests, dues):
  config = ml_collections.ConfigDict(
    {
      'seed': 0,
      'eval': {'every': every, 'tasks': panel, 'test_tasks': tests},
      'train': {'iterations': 5},
      'log': {'trajectories': 0},
    }
  )
  recorder, published = Recorder(lambda e, d: True), []
  recorder.engine = types_lib.SimpleNamespace(reset_counters=lambda: None)
  panels = evaluation.Panels(
    config, recorder, str(tmp_path), display.Display('quiet'),
    lambda split: made.tasks(4),
  )  # fmt: skip
  assert [n for n in range(6) if panels.due(n)] == dues
  played = [
    n for n in range(6) if panels.judge(n, lambda n=n: published.append(n))
  ]
  assert played == dues == sorted(set(published))


def test_failures_are_in_no_rate():
  class Broken(Recorder):
    def collect(self, entries, draws):
      played = super().collect(entries, draws)
      failed = types.StopReason.ENV_ERROR
      return [*played[:-1], made.append_only([2], stop_reason=failed)]

  row, _ = evaluation.evaluate(Broken(lambda e, d: True), made.tasks(3), seed=0)
  assert row['eval/success'] == 1.0
