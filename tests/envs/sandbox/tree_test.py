"""Files come in and go out as text, and nothing but plain files does."""

import inspect
import os
import sys

import pytest

from agentrl_jax.envs.sandbox import tree


@pytest.mark.parametrize(
  'path',
  ['', '/a', '../a', 'a/../b', 'a//b', './a', 'a/', 'a\nb', '\x1b[2J', '-rf'],
)
def test_paths_that_lead_out_or_deceive_are_refused(path, tmp_path):
  assert tree.problem(path)
  with pytest.raises(ValueError, match='path|names|name'):
    tree.write(str(tmp_path), {path: ''}, None)


@pytest.mark.parametrize('path', ['a', 'a/b.txt', '.hidden', 'x y', 'é', 'a-b'])
def test_plain_paths_pass(path):
  assert tree.problem(path) == ''


def test_round_trip_with_equal_times(tmp_path):
  files = {'a/b': 'é\udcff\n', 'c': ''}
  tree.write(str(tmp_path), files, None)
  assert (tmp_path / 'a/b').read_bytes() == b'\xc3\xa9\xff\n'
  assert (tmp_path / 'a').stat().st_mtime == tree.EPOCH_S
  assert tree.read(str(tmp_path), 9, 99) == (files, [])


def test_links_pipes_and_the_rest_stay_behind(tmp_path):
  (tmp_path / 'plain').write_text('x')
  (tmp_path / 'twin').write_text('y')
  os.link(tmp_path / 'twin', tmp_path / 'twin2')
  os.symlink('/etc/passwd', tmp_path / 'link')
  os.symlink('/etc', tmp_path / 'folder')
  os.mkfifo(tmp_path / 'pipe')
  files, dropped = tree.read(str(tmp_path), 9, 99)
  assert files == {'plain': 'x'}
  assert sorted(dropped) == [
    'folder (a link)',
    'link (a link)',
    'pipe (a pipe)',
    'twin (a hard link)',
    'twin2 (a hard link)',
  ]


def test_bounds_of_what_comes_back(tmp_path):
  for name in 'abc':
    (tmp_path / name).write_text(name * 40)
  assert tree.read(str(tmp_path), 2, 999)[1] == ['c (more than 2 files)']
  # 100 bytes: a and b take 80, c does not fit.
  files, dropped = tree.read(str(tmp_path), 9, 100)
  assert (sorted(files), dropped) == (['a', 'b'], ['c (too large)'])
  deep = tmp_path / '/'.join('d' * tree.MAX_DEPTH)
  deep.mkdir(parents=True)
  (deep / 'x').write_text('')
  assert 'x' not in str(tree.read(str(tmp_path), 9, 999)[0])


def test_size_counts_without_following_links(tmp_path):
  os.symlink('/usr', tmp_path / 'link')
  (tmp_path / 'd').mkdir()
  (tmp_path / 'd/x').write_bytes(b'1' * 5000)
  total, number = tree.size(str(tmp_path))
  assert number == 3
  assert 5000 <= total < 100_000


def test_hostile_folders_can_be_removed(tmp_path):
  top = tmp_path / 'top'
  top.mkdir()
  (top / 'closed').mkdir(mode=0o000)
  here = os.open(top, os.O_RDONLY)
  for _ in range(200):  # deeper than Python's stack
    os.mkdir('d', dir_fd=here)
    deeper = os.open('d', os.O_RDONLY, dir_fd=here)
    os.close(here)
    here = deeper
  os.close(here)
  assert tree.read(str(top), 9, 99) == ({}, [])
  limit = sys.getrecursionlimit()
  sys.setrecursionlimit(len(inspect.stack(0)) + 100)
  try:
    tree.remove(str(top))
  finally:
    sys.setrecursionlimit(limit)
  assert not top.exists()
  tree.remove(str(top))  # nothing to do
