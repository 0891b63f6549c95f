"""Labels from the command line are records that both readers take."""

import importlib.util
import pathlib

import pytest

from agentrl_jax import envs
from agentrl_jax.envs import panels
from agentrl_jax.rewards import steps

ROOT = pathlib.Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location(
  'label_steps', ROOT / 'tools' / 'label_steps.py'
)
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)


@pytest.mark.parametrize('style', ['trl', 'prm800k'])
def test_a_lake_is_labelled(tmp_path, capsys, style):
  out = tmp_path / 'labels.jsonl'
  arguments = ['frozen_lake', f'--out={out}', f'--format={style}']
  arguments += ['--episodes=3', '--rollouts=4', '--rate=wander=0']
  arguments += ['--rate=malformed=0', '--option=size=3']
  assert tool.main(arguments) == 0
  assert '3 episodes' in capsys.readouterr().out
  found = steps.loads(out.read_text(), style=style)
  assert len(found) == 3
  for each in found:  # who makes no mistake takes good steps only
    assert set(each.labels) == {1.0} and each.prompt.startswith('Reach G')
    assert '"move"' in each.steps[0]


def test_no_task_of_another_split_is_labelled(tmp_path, monkeypatch):
  seen = []

  def label(make_env, agent, task, **_):
    seen.append(task.data)
    raise StopIteration

  monkeypatch.setattr(tool.labels, 'label', label)
  for seed in range(40):
    out = f'--out={tmp_path / str(seed)}'
    with pytest.raises(RuntimeError):  # ends after its first task
      tool.main(['sokoban', out, '--episodes=1', f'--seed={seed}'])
  key = getattr(envs.ENVS['sokoban'], 'split_key', panels._json)
  # Eighths 0 to 3 are of validation and test, 4 to 7 of training.
  buckets = {panels._number(key(data)) % 8 for data in seen}
  assert len(seen) == 40 and buckets <= {4, 5, 6, 7}


def test_hard_labels_are_no_stricter_than_soft_ones(tmp_path):
  counts = []
  for more in ([], ['--hard']):
    out = tmp_path / 'labels.jsonl'
    arguments = ['flight', f'--out={out}', '--episodes=3', '--rollouts=4']
    assert tool.main([*arguments, '--option=legs=1', *more]) == 0
    found = steps.loads(out.read_text())
    counts.append(sum(sum(each.labels) for each in found))
  assert counts[0] <= counts[1] and counts[1] > 0


def test_what_cannot_be_labelled_is_said(tmp_path, capsys):
  out = f'--out={tmp_path / "x"}'
  assert tool.main(['arithmetic', out]) == 1
  assert 'arithmetic has no scripted agent' in capsys.readouterr().err
  assert tool.main(['frozen_lake', out, '--rollouts=0']) == 1
  assert 'rollouts=0' in capsys.readouterr().err
  assert tool.main(['flight', out, '--rate=skip_chek=1']) == 1
  assert 'skip_chek' in capsys.readouterr().err
