"""Nobody types a result: text and docs/numbers.json agree."""

import importlib.util
import json
import pathlib

import pytest

from agentrl_jax import metrics

ROOT = pathlib.Path(__file__).parents[2]


def load():
  spec = importlib.util.spec_from_file_location(
    'record', ROOT / 'tools' / 'record.py'
  )
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


record = load()


def test_every_marked_number_in_the_repository_is_the_recorded_one():
  book = ROOT / 'docs' / 'numbers.json'
  numbers = json.loads(book.read_text()) if book.exists() else {}
  for path in record.texts(ROOT):
    text = path.read_text()
    assert record.fill(text, numbers) == text, f'run tools/record.py: {path}'
    assert text.count('<!-- number:') == text.count('<!-- /number -->'), path


NUMBERS = {
  'gigpo': {'values': {'test_success': 0.9712}, 'git': 'abc', 'cores': 2},
  'sweep': {'values': {}, 'table': '| a |\n'},
}


@pytest.mark.parametrize(
  'marker, expected',
  [
    ('gigpo.test_success .1%', '97.1%'),
    ('gigpo.test_success .0%', '97%'),
    ('gigpo.test_success', '0.9712'),
    ('gigpo.git', 'abc'),
    ('gigpo.cores', '2'),
    ('gigpo.unknown .1%', 'not yet run'),
    ('nobody.test_success .1%', 'not yet run'),
  ],
)
def test_a_marker_is_filled(marker, expected):
  old = f'a <!-- number: {marker} -->typed<!-- /number --> b'
  new = f'a <!-- number: {marker} -->{expected}<!-- /number --> b'
  assert record.fill(old, NUMBERS) == new
  assert record.fill(new, NUMBERS) == new


def test_a_table_is_filled():
  filled = record.fill('<!-- table: sweep -->x<!-- /table -->', NUMBERS)
  assert filled == '<!-- table: sweep -->\n| a |\n<!-- /table -->'


def make_run(path, seed, success):
  writer = metrics.Writer(path, tensorboard=False)
  writer.write(0, {'eval/success': 0.125, 'wall_s': 90.0})
  for step, rate in ((1, 10.0), (2, 20.0), (3, 6000.0), (4, 7000.0)):
    writer.write(
      step,
      {
        'rollout/tokens_per_s': rate,
        'sampler/logprob_gap': 1e-5 * (5 - step),
        'wall_s': 90.0 + step,
      },
      updates=2 * step,
    )
  writer.write(
    4, {'test/success': success, 'eval/success': 0.9, 'wall_s': 99.0}
  )
  (path / 'config.json').write_text(json.dumps({'seed': seed}))
  return path


def test_a_run_is_reduced_as_documented(tmp_path):
  found = record.summary(make_run(tmp_path, 0, 0.97))
  assert found == {
    'eval_success_start': 0.125,
    'eval_success': 0.9,
    'test_success': 0.97,
    'rollout_tokens_per_s': 6500.0,  # median of the third and fourth
    'sampler_logprob_gap': 4e-5,  # the largest
    'updates': 8,
    'wall_s': 99.0,
  }


def test_several_seeds_give_mean_worst_and_best(tmp_path):
  (tmp_path / 'docs').mkdir()
  text = '<!-- number: gigpo.test_success_min .0% --><!-- /number -->'
  (tmp_path / 'README.md').write_text(text)
  runs = [make_run(tmp_path / f's{s}', s, 0.96 + 0.02 * s) for s in (0, 1)]
  arguments = [*map(str, runs), '--name=gigpo', f'--root={tmp_path}']
  assert record.main(arguments) == 0
  entry = json.loads((tmp_path / 'docs' / 'numbers.json').read_text())['gigpo']
  assert entry['seeds'] == [0, 1] and entry['runs'] == 2
  assert entry['values']['test_success'] == 0.97
  assert entry['values']['test_success_min'] == 0.96
  assert entry['values']['test_success_max'] == 0.98
  assert '>96%<' in (tmp_path / 'README.md').read_text()


def test_json_lines_are_named_by_their_first_text(tmp_path):
  path = tmp_path / 'lines.jsonl'
  path.write_text(
    '{"agent": "oracle", "success": 1.0}\n{"agent": "random", "success": 0}\n'
  )
  assert record.summary(path) == {'oracle_success': 1.0, 'random_success': 0}


def test_a_directory_without_numbers_is_refused(tmp_path):
  with pytest.raises(SystemExit, match='holds neither'):
    record.summary(tmp_path)
