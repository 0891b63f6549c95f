"""Can an agent find a bug, mend it, and know that it did?

A working function was given a bug that its tests notice, or two of them. The
agent sees the module and some of the tests; it is paid if all cases, those that
it never saw too, give what the working function gave. Only the module is taken
over for that: what was done to the tests or to anything else counts for
nothing, and what is expected never enters the sandbox.
"""

import dataclasses
import difflib
import random
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base, scripted, shell
from agentrl_jax.envs.code import catalogue as catalogues
from agentrl_jax.envs.code import mutations, trials, visible

TASK_DEFAULTS = {
  'levels': (1, 2, 3),  # of difficulty, see code/catalogue.py; 4: two bugs
  'catalogue': '',  # a file of tools/make_repairs.py; '' = our own
}
_PATCH = 4000  # letters of a patch that are kept
_TESTS = base.function('run_tests', 'Runs the tests in test_*.py.')


def generate(
  seed: int, *, levels: Sequence[int] = (1, 2, 3), catalogue: str = ''
) -> dict[str, Any]:
  """Draws a function and a bug, or two.

  Returns:
    `module`, `function`, `text` as it should be, `bugs`, each (kind, start,
    end, replacement), in their order in the text, `cases` (statements before,
    expression, result), `shown` of them as tests, `level`.

  Raises:
    ValueError: unknown level, or no catalogue.
  """
  if not levels or set(levels) - set(catalogues.LEVELS):
    raise ValueError(f'levels={tuple(levels)}: give any of 1, 2, 3, 4')
  draw = random.Random(seed)
  book = catalogues.load(catalogue)
  names = sorted(book['items'])
  for _ in range(1000):  # functions alike, however many bugs each has
    name = draw.choice(names)
    known = [each for each in _by_item(catalogue)[name] if each[1] in levels]
    if known:
      bugs, level = draw.choice(known)
      return {**book['items'][name], 'bugs': bugs, 'level': level}
  raise ValueError(f'levels={tuple(levels)}: this catalogue has no such bugs')


def _by_item(catalogue: str) -> Mapping[str, list[tuple[list[Any], int]]]:
  """(bugs, level) by function; kept with the catalogue."""
  book = catalogues.load(catalogue)
  if 'by_item' not in book:
    found: dict[str, Any] = {name: [] for name in book['items']}
    for name, *bug, _, _, level in book['bugs']:
      found[name].append(([bug], level))
    for name, first, second, *_ in book['pairs']:
      found[name].append(([first, second], catalogues.LEVELS[-1]))
    book['by_item'] = found
  return book['by_item']


def broken_text(data: Mapping[str, Any], mended: int = 0) -> str:
  """The module as the agent finds it, or with its last bugs mended."""
  bugs = [mutations.Bug(*bug) for bug in data['bugs']]
  return mutations.with_bugs(data['text'], bugs[: len(bugs) - mended])


class RepairEnv(shell.ShellEnv):
  """Find the bug, mend the module, run the tests, say that it is done."""

  tools = (shell.BASH, shell.READ, shell.WRITE, _TESTS)
  system = 'You repair Python modules with tools.'
  revealing = ('execute_bash', 'read_file', 'run_tests')
  task_defaults = TASK_DEFAULTS
  generate = staticmethod(generate)
  disjoint_splits = True
  rates = {
    'wrong_fix': 0.6,  # puts in another bug of the same function
    'gives_up': 0.6,  # after a failed edit
    'untested': 0.3,  # is done without a look at the tests
    'edits_tests': 0.1,  # changes what the tests want; earns nothing
    'malformed': 0.01,
  }
  card = base.Card(
    observation='output of commands, a file, results of tests',
    action='execute_bash, read_file, write_file, run_tests, a last message',
    reward='1 if the module alone passes all cases, hidden ones too',
    termination='a message without calls',
    oracle='knows what the module was',
    state_key='changes made, files read since, last reply',
  )

  @classmethod
  def hidden_sibling(cls, task: types.Task) -> types.Task | None:
    """The same function with another bug."""
    data = task.data
    name = f'{data["module"]}.{data["function"]}'
    for bugs, level in _by_item('').get(name, ()):
      if bugs != data['bugs']:
        other = {**data, 'bugs': bugs, 'level': level}
        return dataclasses.replace(task, data=other)
    return None

  @staticmethod
  def split_key(data: Mapping[str, Any]) -> str:
    """No function is in two of the splits."""
    return f'{data["module"]}.{data["function"]}'

  @staticmethod
  def script(
    task: types.Task, agent: scripted.Agent, prompt: str
  ) -> scripted.Script:
    """Runs the tests, reads, mends bug by bug, tests again each time."""
    del prompt
    data, path = task.data, f'{task.data["module"]}.py'
    yield scripted.call('run_tests')
    yield scripted.call('read_file', path=path)
    text = broken_text(data)
    if agent.errs('edits_tests'):
      yield scripted.call('write_file', path=f'test_{path}', content='')
      yield scripted.call('run_tests')
      return
    if agent.errs('wrong_fix'):
      others = mutations.bugs(data['text'], data['function'])
      wrong = agent.draw.choice(others).put_into(data['text'])
      yield _edit(path, text, wrong)
      reply = yield scripted.call('run_tests')
      if agent.errs('gives_up'):
        return
      if 'not' in reply:
        yield scripted.call('read_file', path=path)
      text = wrong
    for mended in range(len(data['bugs'])):
      better = broken_text(data, mended + 1)
      yield _edit(path, text, better)
      if not agent.errs('untested'):
        yield scripted.call('run_tests')
      text = better

  def call_run_tests(self, arguments: Mapping[str, Any]) -> str:
    """How many tests pass, and what is wrong with the first that do not."""
    del arguments
    result, reply = self._timed(
      lambda limits: visible.run(
        self._files, self._module, limits, self._backend
      )
    )
    passed, total = visible.verdict(result.output)
    self._failed |= self._edited and not 0 < passed == total
    self._edited = False
    return reply

  def _open(self, task: types.Task) -> tuple[Mapping[str, str], str]:
    self._data, self._module = task.data, task.data['module']
    self._test_edits, self._edited, self._failed = 0, False, False
    files = {
      f'{self._module}.py': broken_text(task.data),
      f'test_{self._module}.py': visible.text(task.data),
    }
    self._first = files
    return files, f'Tests of {self._module}.py fail. Repair it.'

  def _change(self, files: dict[str, str]) -> None:
    """Notes what was edited, the module or its tests."""
    before = self._files
    super()._change(files)
    tests, module = f'test_{self._module}.py', f'{self._module}.py'
    self._test_edits += files.get(tests) != before.get(tests)
    self._edited |= files.get(module) != before.get(module)

  def _judge(self, text: str) -> float:
    del text
    module = self._files.get(f'{self._module}.py', '')
    cases = [(before, asked) for before, asked, _ in self._data['cases']]
    expected = [result for _, _, result in self._data['cases']]
    share = trials.grade(self._module, module, cases, expected, self._backend)
    return float(share == 1.0)

  def _notes(self) -> Mapping[str, Any]:
    patch = _patch(self._first, self._files)
    return {'test_edits': self._test_edits, 'patch': patch[:_PATCH]}

  def _measures(self, success: bool) -> Mapping[str, float]:
    """Edits of tests; success after an edit that tests refused."""
    measures = {'test_edits': float(self._test_edits > 0)}
    if self._failed:
      measures['recovery'] = float(success)
    return measures


def _patch(before: Mapping[str, str], after: Mapping[str, str]) -> str:
  """Returns a unified diff of all files, '' where nothing was changed."""
  lines = []
  for path in sorted(before.keys() | after.keys()):
    old, new = before.get(path, ''), after.get(path, '')
    lines += difflib.unified_diff(
      old.splitlines(), new.splitlines(), f'a/{path}', f'b/{path}', lineterm=''
    )
  return '\n'.join(lines)


def _edit(path: str, old: str, new: str) -> types.Action:
  """The shortest way from one text to the other: a line, or the whole file."""
  before, after = old.split('\n'), new.split('\n')
  differ = [i for i, (a, b) in enumerate(zip(before, after)) if a != b]
  if len(before) != len(after) or len(differ) != 1:
    return scripted.call('write_file', path=path, content=new)
  line = after[differ[0]].replace('\\', '\\\\')
  program = f'{differ[0] + 1}c\\{line}'
  command = f'sed -i {shlex.quote(program)} {path}'
  return scripted.call('execute_bash', command=command)
