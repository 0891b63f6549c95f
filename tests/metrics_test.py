"""Rows of metrics survive kills, resumes and odd numbers."""

import json
import math

import numpy as np
import pytest

from agentrl_jax import metrics

# Torn at its newline: another row would be glued to it.
WHOLE = b'{"step": 9, "updates": 1, "wall_s": 2.0}'


def make(path, **options):
  return metrics.Writer(path, tensorboard=False, **options)


def test_a_row_is_one_line_of_flat_json_in_a_fixed_order(tmp_path):
  row = make(tmp_path).write(
    3, {'b/y': np.float32(0.5), 'a/x': 2, 'wall_s': 7.25}, updates=6
  )
  text = (tmp_path / 'metrics.jsonl').read_text()
  assert text == (
    '{"step": 3, "updates": 6, "wall_s": 7.25, "a/x": 2, "b/y": 0.5}\n'
  )
  assert metrics.read(tmp_path) == [row]


def test_float32_values_are_exact(tmp_path):
  value = np.float32(0.1)
  make(tmp_path).write(0, {'x': value})
  assert np.float32(metrics.read(tmp_path)[0]['x']) == value
  assert metrics.read(tmp_path)[0]['x'] == float(value)


def test_nan_and_infinities_are_strings_in_valid_json(tmp_path):
  values = {'a': math.nan, 'b': math.inf, 'c': -math.inf}
  make(tmp_path).write(0, values)

  def refuse(name):
    raise AssertionError(f'{name} is no JSON')

  text = (tmp_path / 'metrics.jsonl').read_text()
  raw = json.loads(text, parse_constant=refuse)
  assert (raw['a'], raw['b'], raw['c']) == ('NaN', 'Infinity', '-Infinity')
  (row,) = metrics.read(tmp_path)
  assert math.isnan(row['a']) and row['b'] == math.inf and row['c'] == -math.inf


@pytest.mark.parametrize(
  'torn', [b'{"step": 9, "upd', b'{"step": 9}\n', b'\xff', WHOLE]
)
def test_a_torn_last_line_is_ignored_and_cut_off(tmp_path, torn):
  make(tmp_path).write(1, {'x': 1})
  path = tmp_path / 'metrics.jsonl'
  whole = path.read_bytes()
  path.write_bytes(whole + torn)
  assert [row['step'] for row in metrics.read(tmp_path)] == [1]
  make(tmp_path)
  assert path.read_bytes() == whole


def test_a_damaged_line_in_the_middle_is_an_error(tmp_path):
  writer = make(tmp_path)
  writer.write(1, {'x': 1})
  path = tmp_path / 'metrics.jsonl'
  path.write_bytes(b'garbage\n' + path.read_bytes())
  with pytest.raises(ValueError, match='line 1 is no metrics row'):
    metrics.read(tmp_path)


def test_truncate_drops_later_rows_and_keeps_the_others_to_the_byte(tmp_path):
  writer = make(tmp_path)
  for step in range(5):
    writer.write(step, {'x': step / 3})
  path = tmp_path / 'metrics.jsonl'
  lines = path.read_bytes().splitlines(keepends=True)
  resumed = make(tmp_path)
  assert resumed.truncate(2) == 2
  assert path.read_bytes() == b''.join(lines[:3])
  resumed.write(3, {'x': 1.0})
  assert [row['step'] for row in metrics.read(tmp_path)] == [0, 1, 2, 3]


def test_time_goes_on_after_a_resume(tmp_path):
  make(tmp_path).write(1, {'wall_s': 100.0})
  assert make(tmp_path).write(2, {})['wall_s'] >= 100.0


def test_text_is_refused(tmp_path):
  with pytest.raises(ValueError, match="Metric 'x' is 'high'"):
    make(tmp_path).write(0, {'x': 'high'})


def test_tensorboard_gets_the_row_and_a_purge_on_resume(tmp_path):
  writer = metrics.Writer(tmp_path)
  writer.write(1, {'rollout/success': 0.5})
  writer.truncate(0)
  writer.write(1, {'rollout/success': 0.25})
  writer.close()
  files = sorted((tmp_path / 'tensorboard').rglob('*tfevents*'))
  assert [f.read_bytes().count(b'rollout/success') for f in files] == [1, 1]


def test_series_leaves_out_rows_without_the_key():
  rows = [{'step': 0, 'a': 1.0}, {'step': 1}, {'step': 2, 'a': 3.0}]
  assert metrics.series(rows, 'a') == ([0, 2], [1.0, 3.0])


def test_a_mute_writer_gives_rows_and_leaves_no_file(tmp_path):
  mute = metrics.Mute(tmp_path / 'run', tensorboard=True, start=0.0)
  row = mute.write(3, {'a/b': 1.5, 'updates': 7})
  assert (row['step'], row['updates'], row['a/b']) == (3, 7, 1.5)
  assert mute.truncate(0) == 0
  mute.close()
  assert not (tmp_path / 'run').exists()


def test_host_measures_this_process():
  before = metrics.host()
  sum(i * i for i in range(300_000))
  after = metrics.host()
  assert 5 < after['host/rss_mb'] <= after['host/peak_rss_mb']
  assert after['host/cpu_s'] > before['host/cpu_s']
