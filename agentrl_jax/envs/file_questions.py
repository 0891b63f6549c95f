"""Can an agent find out how many .md files there are? Questions about a folder.

A folder is generated with the question; the answer is computed from the tree,
never from what a command says. The agent has a shell and a reader of files.
"""

import collections
import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base, scripted, shell

TASK_DEFAULTS = {
  'levels': (1, 2, 3),  # of difficulty: one look, a pipe, two steps
}
ENDINGS = ('md', 'txt', 'py', 'csv', 'log')
_FOLDERS = ('docs', 'src', 'data', 'notes', 'old')
_NAMES = ('plan', 'draft', 'index', 'report', 'list', 'main', 'test', 'log')
_WORDS = (
  *('apple', 'river', 'stone', 'cloud', 'candle', 'paper', 'garden', 'window'),
  *('silver', 'winter', 'bridge', 'market', 'engine', 'letter', 'forest'),
)

Files = Mapping[str, str]
# A question: what is asked, what is right, and the command that finds it out.
Question = tuple[str, str, str]


def _grow(draw: random.Random) -> dict[str, str]:
  """A folder of 8 to 20 files."""
  files = {}
  for _ in range(draw.randint(8, 20)):
    parts = draw.sample(_FOLDERS, draw.choice((0, 1, 1, 2)))
    name = f'{draw.choice(_NAMES)}{draw.randint(1, 9)}.{draw.choice(ENDINGS)}'
    lines = [
      ' '.join(draw.choice(_WORDS) for _ in range(draw.randint(1, 4)))
      for _ in range(draw.randint(1, 6))
    ]
    files['/'.join([*parts, name])] = '\n'.join(lines) + '\n'
  return files


def _ending(path: str) -> str:
  return path.rpartition('.')[2]


def _count_ending(draw: random.Random, files: Files) -> Question:
  ending = draw.choice(ENDINGS)
  number = sum(_ending(path) == ending for path in files)
  return (
    f'How many .{ending} files are there?',
    str(number),
    f"find . -name '*.{ending}' | wc -l",
  )


def _count_lines(draw: random.Random, files: Files) -> Question:
  path = draw.choice(sorted(files))
  number = files[path].count('\n')
  return f'How many lines has {path}?', str(number), f'wc -l < {path}'


def _count_all(draw: random.Random, files: Files) -> Question:
  folder = draw.choice([p.split('/')[0] for p in sorted(files) if '/' in p])
  number = sum(path.startswith(f'{folder}/') for path in files)
  return (
    f'How many files are in {folder} and below?',
    str(number),
    f'find {folder} -type f | wc -l',
  )


def _count_mentions(draw: random.Random, files: Files) -> Question:
  word = draw.choice(_WORDS)
  number = sum(word in text.split() for text in files.values())
  return (
    f'How many files mention {word}?',
    str(number),
    f'grep -rlw {word} . | wc -l',
  )


def _count_word(draw: random.Random, files: Files) -> Question:
  word, ending = draw.choice(_WORDS), draw.choice(ENDINGS)
  number = sum(
    text.split().count(word)
    for path, text in files.items()
    if _ending(path) == ending
  )
  return (
    f'How often does {word} stand in .{ending} files?',
    str(number),
    f"find . -name '*.{ending}' -exec cat {{}} + | grep -ow {word} | wc -l",
  )


def _longest(draw: random.Random, files: Files) -> Question | None:
  ending = draw.choice(ENDINGS)
  sizes = collections.Counter(
    {p: len(text) for p, text in files.items() if _ending(p) == ending}
  )
  best = sizes.most_common(2)
  if not best or (len(best) == 2 and best[0][1] == best[1][1]):
    return None
  return (
    f'Which .{ending} file has the most bytes?',
    best[0][0],
    f"find . -name '*.{ending}' -printf '%s %P\\n' | sort -n | tail -1 "
    '| cut -d" " -f2',
  )


def _only_mention(draw: random.Random, files: Files) -> Question | None:
  word = draw.choice(_WORDS)
  found = [path for path, text in files.items() if word in text.split()]
  if len(found) != 1:
    return None
  return (
    f'Which file mentions {word}?',
    found[0],
    f'grep -rlw {word} * | head -1',
  )


def _commonest(draw: random.Random, files: Files) -> Question | None:
  del draw
  best = collections.Counter(map(_ending, files)).most_common(2)
  if len(best) == 2 and best[0][1] == best[1][1]:
    return None
  return (
    'Which ending have most files?',
    best[0][0],
    "find . -type f | sed 's/.*[.]//' | sort | uniq -c | sort -n | tail -1 "
    "| awk '{print $2}'",
  )


QUESTIONS: dict[int, tuple[Callable, ...]] = {
  1: (_count_ending, _count_lines, _count_all),
  2: (_count_mentions, _only_mention, _commonest),
  3: (_count_word, _longest),
}


def generate(seed: int, *, levels: Sequence[int] = (1, 2, 3)) -> dict[str, Any]:
  """Draws a folder and a question about it.

  Returns:
    `files`, `question`, `answer`, `command` that finds it out, `level`.

  Raises:
    ValueError: unknown level.
  """
  if not levels or set(levels) - set(QUESTIONS):
    raise ValueError(f'levels={tuple(levels)}: give any of 1, 2, 3')
  draw = random.Random(seed)
  while True:
    files, level = _grow(draw), draw.choice(tuple(levels))
    if not any('/' in path for path in files):
      continue
    made = draw.choice(QUESTIONS[level])(draw, files)
    if made is not None:
      names = ('question', 'answer', 'command')
      return {'files': files, **dict(zip(names, made)), 'level': level}


class FileQuestionsEnv(shell.ShellEnv):
  """Look around with a shell, then answer in a message."""

  tools = (shell.BASH, shell.READ)
  system = 'You answer questions about the files of a folder.'
  task_defaults = TASK_DEFAULTS
  generate = staticmethod(generate)
  rates = {
    'wrong_command': 0.3,  # looks at something else
    'top_only': 0.3,  # does not look below the first folder
    'guess': 0.1,  # answers without a look
    'malformed': 0.01,
  }
  card = base.Card(
    observation='output of commands, a file',
    action='execute_bash, read_file, the answer as a message',
    reward='1 if the last word of the answer is right',
    termination='a message without calls',
    oracle='one command',
    state_key='changes made, files read since, last reply',
  )

  @classmethod
  def hidden_sibling(cls, task: types.Task) -> types.Task | None:
    """The same question about a folder with one more file."""
    more = {**task.data['files'], 'more.md': 'one\n', 'more.py': 'two\n'}
    return dataclasses.replace(task, data={**task.data, 'files': more})

  @staticmethod
  def script(
    task: types.Task, agent: scripted.Agent, prompt: str
  ) -> scripted.Script:
    """Asks the shell, answers what it says."""
    del prompt
    command, found = task.data['command'], agent.draw.choice('12345')
    if not agent.errs('guess'):
      if agent.errs('wrong_command'):
        command = 'ls | wc -l'
      elif agent.errs('top_only'):
        command = command.replace('find .', 'find . -maxdepth 1')
        command = command.replace('grep -r', 'grep -s').replace(' . ', ' * ')
      found = yield scripted.call('execute_bash', command=command)
    yield types.Action(' '.join(found.split()[-1:]) or 'none')

  def _open(self, task: types.Task) -> tuple[Mapping[str, str], str]:
    self._truth = task.data['answer']
    return task.data['files'], task.data['question']

  def _judge(self, text: str) -> float:
    words = text.replace('./', '').split()
    return float(bool(words) and words[-1].strip('."\'`') == self._truth)
