"""Locks the table of mutants; the mutants themselves are slow."""

import importlib.util
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def load():
  path = ROOT / 'tests' / 'mutations.py'
  spec = importlib.util.spec_from_file_location(path.stem, path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[path.stem] = module
  spec.loader.exec_module(module)
  return module


sys.path.insert(0, str(ROOT / 'tests'))  # as of the command
mutations = load()
MUTANTS = mutations.mutants()


def plant(tmp_path, mutant):
  """Applies a mutant to a copy of its file; returns (before, after)."""
  source = (ROOT / 'agentrl_jax' / mutant.file).read_text(encoding='utf-8')
  copy = tmp_path / 'agentrl_jax' / mutant.file
  copy.parent.mkdir(parents=True, exist_ok=True)
  copy.write_text(source, encoding='utf-8')
  mutant.apply(tmp_path)
  return source, copy.read_text(encoding='utf-8')


def test_the_table_covers_what_it_should():
  assert len(MUTANTS) == len(set(MUTANTS)) >= 40
  parts = {mutant.file for mutant in MUTANTS}
  for wanted in (
    'advantages/',
    'losses/',
    'rollout/collate',
    'rollout/credit',
    'rollout/counterfactual',
    'rollout/updates',
    'rollout/selection',
    'rollout/anchors',
    'sampler/logits',
    'sampler/decode',
    'sampler/engine',
    'sampler/lane',
    'learner/objective',
  ):
    assert any(part.startswith(wanted) for part in parts), wanted
  for folder in ('advantages', 'losses'):
    for path in (ROOT / 'agentrl_jax' / folder).glob('[!_]*.py'):
      assert f'{folder}/{path.name}' in parts, path


@pytest.mark.parametrize('mutant', MUTANTS, ids=str)
def test_a_fault_can_be_planted_and_its_tests_exist(mutant, tmp_path):
  before, after = plant(tmp_path, mutant)
  assert before != after
  for test in mutant.tests:
    assert (ROOT / 'tests' / test).is_file(), test


@pytest.mark.parametrize('text, count', [('no such text', 0), ('import', 2)])
def test_a_text_that_does_not_stand_once_is_refused(tmp_path, text, count):
  mutant = mutations.Mutant('losses/clamp.py', text, 'x', ())
  with pytest.raises(ValueError, match=f'stands {count} times'):
    plant(tmp_path, mutant)


@pytest.mark.parametrize('alive', [True, False])
def test_a_survivor_fails_the_run_and_is_named(monkeypatch, capsys, alive):
  monkeypatch.setattr(mutations, 'healthy', lambda *_: True)
  monkeypatch.setattr(
    mutations, 'lives', lambda m, *_: alive and m == MUTANTS[3]
  )
  assert mutations.main([]) == alive
  printed = capsys.readouterr().out.splitlines()
  assert len(printed) == len(MUTANTS) + 1
  named = [line for line in printed if 'LIVES' in line]
  assert len(named) == alive
  assert all(str(MUTANTS[3]) in line for line in named)
  num = len(MUTANTS)
  assert printed[-1] == f'{num - alive} of {num} mutants are dead'


def test_a_text_that_is_gone_fails_the_run_and_is_told(monkeypatch, capsys):
  gone = mutations.Mutant('losses/clamp.py', 'no such text', 'x', ())
  monkeypatch.setattr(mutations, 'healthy', lambda *_: True)
  monkeypatch.setattr(mutations, 'mutants', lambda: [gone])
  assert mutations.main([]) == 1
  printed = capsys.readouterr().out
  assert 'UNCLEAR' in printed and 'stands 0 times' in printed
  assert '0 of 1 mutants are dead' in printed


def test_tests_that_fail_anyway_notice_nothing(monkeypatch, capsys):
  monkeypatch.setattr(mutations, 'healthy', lambda *_: False)
  assert mutations.main(['--only=0']) == 1
  assert 'without any mutant' in capsys.readouterr().out


def test_an_unknown_number_is_told():
  with pytest.raises(SystemExit):
    mutations.main([f'--only={len(MUTANTS)}'])


def test_some_files_alone_by_their_numbers_in_the_whole(monkeypatch, capsys):
  monkeypatch.setattr(mutations, 'healthy', lambda *_: True)
  monkeypatch.setattr(mutations, 'lives', lambda *_: False)
  assert mutations.main(['--files=rollout/credit.py,sampler/lane']) == 0
  *lines, last = capsys.readouterr().out.splitlines()
  numbers = [int(line.split()[0]) for line in lines]
  files = {MUTANTS[n].file for n in numbers}
  assert files == {'rollout/credit.py', 'sampler/lane.py'}
  assert len(numbers) == len(set(numbers)) >= 10
  with pytest.raises(SystemExit):
    mutations.main(['--files=nothing'])


def test_a_fault_is_planted_in_a_copy_of_the_tree_that_was_copied(
  monkeypatch, tmp_path
):
  mutant, seen = MUTANTS[0], []
  path = tmp_path / 'agentrl_jax' / mutant.file
  path.parent.mkdir(parents=True)
  (tmp_path / 'tests').mkdir()
  (tmp_path / '.pytest.ini').touch()
  path.write_text(f'x = """{mutant.text}"""')
  monkeypatch.setattr(
    mutations,
    'passes',
    lambda root, *_: seen.append(
      (root / 'agentrl_jax' / mutant.file).read_text()
    ),
  )
  assert not mutations.lives(mutant, tmp_path, 60)
  assert seen == [f'x = """{mutant.fault}"""']
  assert mutant.text in path.read_text()  # for the next one


@pytest.mark.slow
def test_every_mutant_dies():
  assert mutations.main([]) == 0
