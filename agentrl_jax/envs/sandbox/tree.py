"""How do the files of a task get in and out? As text by path, bounded.

Whatever a command leaves, only regular files with plain names and one link come
back: no symbolic links, pipes, devices or hard links, so nothing that is read
here lies outside the folder. All times are the same, so that listings repeat.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping

EPOCH_S = 1_577_836_800  # of every file: 1 January 2020
MAX_DEPTH = 12


def problem(path: str) -> str:
  """Says what is wrong with a path of a file inside the folder, '' if nothing.

  Names are printable, without leading '-', and lead nowhere else.
  """
  parts = path.split('/')
  if not path or any(part in ('', '.', '..') for part in parts):
    return 'give a path inside the folder, such as notes/a.txt'
  if not path.isprintable() or '\\' in path or len(path.encode()) > 200:
    return 'a path has printable characters, at most 200 bytes'
  if len(parts) > MAX_DEPTH or any(part.startswith('-') for part in parts):
    return f"at most {MAX_DEPTH} folders deep, no name begins with '-'"
  return ''


def encode(text: str) -> bytes:
  """Text as bytes; what `decode` made of broken UTF-8 goes back."""
  return text.encode('utf-8', 'surrogateescape')


def decode(data: bytes) -> str:
  """Bytes as text, broken UTF-8 as lone surrogates."""
  return data.decode('utf-8', 'surrogateescape')


def write(root: str, files: Mapping[str, str], uid: int | None) -> None:
  """Writes files below an empty folder.

  Args:
    root: the folder.
    files: text by path.
    uid: whom they belong to, None for who writes them.

  Raises:
    ValueError: a path that leads outside.
  """
  for path, text in files.items():
    wrong = problem(path)
    if wrong:
      raise ValueError(f'{path!r}: {wrong}')
    at = os.path.join(root, path)
    os.makedirs(os.path.dirname(at), exist_ok=True)
    with open(at, 'wb') as file:
      file.write(encode(text))
  for folder, _, names in os.walk(root, topdown=False):
    for at in (*(os.path.join(folder, name) for name in names), folder):
      if uid is not None:
        os.chown(at, uid, uid)
      os.utime(at, (EPOCH_S, EPOCH_S))


def size(root: str) -> tuple[int, int]:
  """Bytes and number of everything below a folder, without following links."""
  total = number = 0
  for _, entries in _folders(root, os.pathconf(root, 'PC_PATH_MAX')):
    for entry in entries:
      number += 1
      try:
        total += entry.stat(follow_symlinks=False).st_blocks * 512
      except OSError:
        continue
  return total, number


def read(
  root: str, max_files: int, max_bytes: int
) -> tuple[dict[str, str], list[str]]:
  """Reads what may come back, once nothing runs that could change it.

  Args:
    root: the folder.
    max_files: files that come back, in order of their paths.
    max_bytes: of all that come back.

  Returns:
    Text by path, and what was left behind, with why.
  """
  files, dropped, left = {}, [], max_bytes
  for _, entries in _folders(root, MAX_DEPTH):
    for entry in entries:
      path = os.path.relpath(entry.path, root)
      if entry.is_dir(follow_symlinks=False):
        continue
      try:
        data = _content(entry.path, left)
      except (OSError, ValueError) as error:
        dropped.append((path, getattr(error, 'strerror', '') or str(error)))
        continue
      if problem(path):
        dropped.append((path, 'its name'))
      elif len(files) >= max_files:
        dropped.append((path, f'more than {max_files} files'))
      else:
        files[path] = decode(data)
        left -= len(data)
  shown = [f'{ascii(path)[1:-1][:100]} ({why})' for path, why in dropped]
  return dict(sorted(files.items())), shown[:20]


def remove(folder: str) -> None:
  """Removes a folder, deeper than Python's stack and unreadable ones too."""
  try:
    shutil.rmtree(folder)
  except FileNotFoundError:
    return
  except (OSError, RecursionError):
    for tool in (['chmod', '-R', 'u+rwx'], ['rm', '-rf']):
      subprocess.run([*tool, folder], check=False, capture_output=True)


def _folders(root: str, depth: int) -> Iterator[tuple[str, list[os.DirEntry]]]:
  """Folders with their entries, `depth` levels, without recursion."""
  waiting = [(root, 1)]
  while waiting:
    folder, level = waiting.pop()
    try:
      with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
      continue
    yield folder, entries
    if level < depth:
      waiting += [
        (entry.path, level + 1)
        for entry in reversed(entries)
        if entry.is_dir(follow_symlinks=False)
      ]


def _content(at: str, most: int) -> bytes:
  """Reads a regular file with one name.

  Raises:
    ValueError: it is something else, or too large.
    OSError: it cannot be read.
  """
  about = os.lstat(at)
  if not stat.S_ISREG(about.st_mode):
    kinds = {stat.S_IFLNK: 'a link', stat.S_IFIFO: 'a pipe'}
    raise ValueError(kinds.get(stat.S_IFMT(about.st_mode), 'no plain file'))
  if about.st_nlink > 1:
    raise ValueError('a hard link')
  if about.st_size > most:
    raise ValueError('too large')
  place = os.open(at, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
  try:
    return os.read(place, about.st_size + 1)[: about.st_size]
  finally:
    os.close(place)
