"""Which small fault in the mathematics would no test notice?

  python tests/mutations.py              # all of them, some seconds each
  python tests/mutations.py --only=7     # one, by number
  python tests/mutations.py --files=rollout/credit.py,sampler
  python tests/mutations.py --jobs=4

Each mutant is one replacement in a copy of the package; the tests named for its
file run against the copy. The tree is copied once, at the start: it may change
meanwhile. A mutant that lives, or a text that does not stand
exactly once in its file, fails the run: mend the test, not the table.
"""

import argparse
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent import futures

from mutants import TABLE

ROOT = pathlib.Path(__file__).resolve().parents[1]
# A mutant that never ends is noticed, too: after this, or after three times
# what all the tests take without a fault.
TIMEOUT_S = 300


@dataclasses.dataclass(frozen=True)
class Mutant:
  """One replacement, and the tests that should notice it."""

  file: str
  text: str
  fault: str
  tests: tuple[str, ...]

  def __str__(self) -> str:
    return f'{self.file}: {self.text!r} -> {self.fault!r}'

  def apply(self, root: pathlib.Path) -> None:
    """Plants the fault in a copy of the repository.

    Raises:
      ValueError: the text does not stand exactly once in the file.
    """
    path = root / 'agentrl_jax' / self.file
    source = path.read_text(encoding='utf-8')
    if source.count(self.text) != 1:
      raise ValueError(
        f'{self.file}: {self.text!r} stands {source.count(self.text)} times, '
        'must stand once: change the entry in tests/mutants.py'
      )
    mutated = source.replace(self.text, self.fault)
    compile(mutated, str(path), 'exec')
    path.write_text(mutated, encoding='utf-8')


def mutants() -> list[Mutant]:
  """The table, row by row."""
  return [
    Mutant(file, text, fault, tuple(tests))
    for file, (tests, faults) in TABLE.items()
    for text, fault in faults
  ]


def copy(source: pathlib.Path, root: pathlib.Path) -> None:
  """Copies what the tests need."""
  for name in ('agentrl_jax', 'tests'):
    ignored = shutil.ignore_patterns('__pycache__')
    shutil.copytree(source / name, root / name, ignore=ignored)
  shutil.copy(source / '.pytest.ini', root)


def passes(
  root: pathlib.Path, tests: Sequence[str], limit_s: float | None
) -> bool:
  """Runs the tests against the package in `root`.

  Args:
    root: of a copy.
    tests: files below tests/.
    limit_s: seconds after which they count as failed; None = none.

  Raises:
    RuntimeError: pytest itself failed (no tests, an import error).
  """
  # Without bytecode: a fault of equal length, planted in the same second as
  # the file was copied, would not be compiled again.
  environment = os.environ | {
    'PYTHONPATH': str(root),
    'PYTHONDONTWRITEBYTECODE': '1',
  }
  paths = [f'tests/{test}' for test in tests]
  command = [sys.executable, '-m', 'pytest', '-x', '-p', 'no:cacheprovider']
  try:
    done = subprocess.run(
      [*command, *paths],
      cwd=root,
      env=environment,
      capture_output=True,
      text=True,
      timeout=limit_s,
    )
  except subprocess.TimeoutExpired:
    return False
  if done.returncode not in (0, 1):
    raise RuntimeError(f'pytest {" ".join(paths)}:\n{done.stdout[-2000:]}')
  return done.returncode == 0


def lives(mutant: Mutant, source: pathlib.Path, limit_s: float) -> bool:
  """Whether no test notices the fault, planted in a copy of `source`."""
  with tempfile.TemporaryDirectory() as directory:
    root = pathlib.Path(directory)
    copy(source, root)
    mutant.apply(root)
    return passes(root, mutant.tests, limit_s)


def judge(mutant: Mutant, source: pathlib.Path, limit_s: float) -> str:
  """Returns 'dead', 'LIVES', or why it cannot be said."""
  try:
    return 'LIVES' if lives(mutant, source, limit_s) else 'dead'
  except (RuntimeError, SyntaxError, ValueError) as error:
    return f'UNCLEAR ({error})'


def healthy(chosen: Sequence[Mutant], source: pathlib.Path) -> bool:
  """Whether the tests pass without a fault: else they would notice anything."""
  return passes(source, sorted({t for m in chosen for t in m.tests}), None)


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the mutants; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--only', type=int, help='number of one mutant')
  parser.add_argument('--files', default='', help='only files that begin so')
  parser.add_argument('--jobs', type=int, default=1, help='side by side')
  options = parser.parse_args(arguments)
  starts = tuple(options.files.split(','))
  chosen = {
    i: mutant
    for i, mutant in enumerate(mutants())
    if mutant.file.startswith(starts)
  }
  if not chosen:
    parser.error(f'--files={options.files}: give some of {", ".join(TABLE)}')
  if options.only is not None:
    if options.only not in chosen:
      parser.error(f'--only={options.only}: give 0..{len(chosen) - 1}')
    chosen = {options.only: chosen[options.only]}
  with tempfile.TemporaryDirectory() as directory:
    source = pathlib.Path(directory)
    copy(ROOT, source)
    return run(chosen, source, options.jobs)


def run(
  chosen: Mapping[int, Mutant], source: pathlib.Path, num_jobs: int
) -> int:
  """Runs numbered mutants of a tree, side by side; returns the exit status."""
  begin = time.monotonic()
  if not healthy(list(chosen.values()), source):
    print('the tests fail without any mutant: mend that first')
    return 1
  limit_s = max(TIMEOUT_S, 3 * (time.monotonic() - begin))
  num_dead = 0

  def judged(item):
    start = time.monotonic()
    return *item, judge(item[1], source, limit_s), time.monotonic() - start

  with futures.ThreadPoolExecutor(num_jobs) as pool:
    for number, mutant, word, seconds in pool.map(judged, chosen.items()):
      print(f'{number:3d} {seconds:5.1f} s {word:5s} {mutant}', flush=True)
      num_dead += word == 'dead'
  print(f'{num_dead} of {len(chosen)} mutants are dead')
  return int(num_dead < len(chosen))


if __name__ == '__main__':
  sys.exit(main())
