"""What a head is measured on is nothing that it was trained on."""

import importlib.util
import pathlib

import pytest

from agentrl_jax import scorer
from agentrl_jax.rewards import steps

ROOT = pathlib.Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location(
  'train_head', ROOT / 'tools' / 'train_head.py'
)
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)


class Knows:
  """A head that gives every first step 1 and every second 0."""

  def __init__(self, **_):
    pass

  def steps(self, records):
    self.asked = [each.prompt for each in records]
    return [[1.0, 0.0][: len(each.steps)] for each in records]


@pytest.fixture
def trained(monkeypatch):
  seen, head = {}, Knows()
  monkeypatch.setattr(
    scorer, 'train', lambda records, **_: seen.update(learnt=records)
  )
  monkeypatch.setattr(scorer, 'save', lambda head, to: None)
  monkeypatch.setattr(scorer, 'load', lambda **_: head)
  return seen, head


def file(tmp_path, prompts, labels=(1.0, 0.0)):
  path = tmp_path / 'labels.jsonl'
  records = [steps.Steps(p, ('a', 'b')[: len(labels)], labels) for p in prompts]
  path.write_text(steps.dumps(records))
  return [str(path), f'--to={tmp_path / "head"}', '--held-out=0.4']


def test_tasks_that_come_again_are_not_held_out(tmp_path, trained, capsys):
  seen, head = trained
  assert tool.main(file(tmp_path, 'abcbd')) == 0
  # Of five records the last two are held out; b was trained on.
  assert [each.prompt for each in seen['learnt']] == ['a', 'b', 'c']
  assert head.asked == ['d']
  said = capsys.readouterr().out
  assert '"held_out": 1' in said and '"auc": 1.0' in said


def test_labels_of_one_kind_measure_nothing_and_train_nothing(
  tmp_path, trained, capsys
):
  seen, _ = trained
  assert tool.main(file(tmp_path, 'abcde', (1.0, 1.0))) != 0
  assert 'not of both kinds' in capsys.readouterr().err and not seen
