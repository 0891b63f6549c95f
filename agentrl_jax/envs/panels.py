"""Which tasks does a run see? Fixed panels, the same on every machine and seed.

A task depends on (environment, split, index, task options) and on nothing else:
not on the run's seed, file order or number of workers. Panels and scripted
demonstrations are TFDS datasets, generated once into a cache directory.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base, sources

SPLITS = ('train', 'validation', 'test')
_BUCKETS = {'validation': (0, 1), 'test': (2, 3)}  # of 8; the rest: train


def cache_root() -> pathlib.Path:
  """`$AGENTRL_JAX_DATA`, or ~/.cache/agentrl_jax/tfds."""
  given = os.environ.get('AGENTRL_JAX_DATA')
  if given:
    return pathlib.Path(given)
  return pathlib.Path.home() / '.cache' / 'agentrl_jax' / 'tfds'


class Dataset:
  """Random access to one split; opened at first use, so that it pickles."""

  def __init__(self, directory: pathlib.Path, split: str, decode: Callable):
    self.directory = directory
    self.split = split
    self._decode = decode
    self._source = None

  def __len__(self) -> int:
    return len(self._open())

  def __getitem__(self, index: int):
    if not 0 <= index < len(self):
      raise IndexError(f'{index} is not in [0, {len(self)})')
    record = self._open()[index]
    if record['index'] != index:
      raise ValueError(f'{self.directory} is not in order: delete it')
    return self._decode(self.split, record)

  def __getstate__(self):
    return {**vars(self), '_source': None}

  def _open(self):
    if self._source is None:
      from agentrl_jax.envs.builders import records  # loads TFDS

      self._source = records.open_source(self.directory, self.split)
    return self._source


class _Decoder:
  """Turns a record into a task, or a demonstration with its messages."""

  def __init__(self, name: str):
    self._name = name

  def __call__(self, split: str, record: Mapping[str, Any]):
    data = json.loads(record['data'])
    task = types.Task(self._name, split, int(record['index']), data)
    if 'messages' not in record:
      return task
    return {
      'task': task,
      'messages': json.loads(record['messages']),
      'success': bool(record['success']),
    }


def tasks(
  name: str,
  env_class: type,
  split: str,
  *,
  num_train: int = 4096,
  num_validation: int = 512,
  num_test: int = 1024,
  **options: Any,
) -> Dataset:
  """Opens a panel of tasks, generating all panels at first use.

  Args:
    name: of the environment; names the tasks, and seeds them.
    env_class: draws them.
    split: 'train', 'validation' or 'test'.
    num_train: tasks of the train panel. Shrinking a panel keeps its first ones.
    num_validation: tasks of the validation panel.
    num_test: tasks of the test panel.
    **options: of the tasks; those of the environment are passed over.

  Returns:
    An indexable of `Task` with a length.

  Raises:
    ValueError: unknown split or option.
  """
  if split not in SPLITS:
    raise ValueError(f'unknown split {split!r}; known: {", ".join(SPLITS)}')
  _, options = _parted(env_class, options)
  sizes = dict(zip(SPLITS, (num_train, num_validation, num_test)))

  def records_of(panel: str) -> Callable[[], Iterator[dict[str, Any]]]:
    def generate():
      for index in range(sizes[panel]):
        data = draw(env_class, f'{name}/{panel}/{index}', panel, options)
        yield {'index': index, 'data': _json(data)}

    return generate

  directory = _prepare(
    name,
    env_class,
    'tasks',
    {'sizes': sizes, 'options': options},
    'TaskPanels',
    {panel: records_of(panel) for panel in SPLITS},
  )
  return Dataset(directory, split, _Decoder(name))


def demonstrations(
  name: str,
  env_class: type,
  *,
  num: int = 4000,
  seed: int = 0,
  rates: Mapping[str, float] | None = None,
  **options: Any,
) -> Dataset:
  """Opens scripted episodes, generating them at first use.

  Their tasks may be drawn otherwise than those of the panels: an environment's
  `demonstration_defaults` show rare branches more often. What is given goes
  first.

  Args:
    name: of the environment; seeds the tasks.
    env_class: draws and plays them.
    num: episodes.
    seed: of tasks and mistakes; none of the tasks is in a panel.
    rates: mistake rates to change, as the environment's agent names them.
    **options: of the environment and of its tasks.

  Returns:
    An indexable of {'task': Task, 'messages': [{'role', 'content'}], 'success'}
    with a length.

  Raises:
    ValueError: unknown option, or no scripted agent.
  """
  usual = getattr(env_class, 'demonstration_defaults', {})
  env_options, options = _parted(env_class, {**usual, **options})
  if not hasattr(env_class, 'demonstrate'):
    raise ValueError(f'environment {name!r} has no scripted agent')

  def generate():
    split = 'demonstrations'
    for index in range(num):
      text = f'{name}/{split}/{seed}/{index}'
      data = draw(env_class, text, split, options)
      messages, reward = env_class.demonstrate(
        types.Task(name, split, index, data),
        seed=_number('mistakes/' + text),
        rates=rates,
        **env_options,
      )
      shown = [{'role': m.role, 'content': m.content} for m in messages]
      yield {
        'index': index,
        'data': _json(data),
        'messages': _json(shown),
        'success': int(reward > 0),
      }

  what = {'num': num, 'seed': seed, 'rates': rates and dict(rates)}
  what |= {'options': options, 'env_options': env_options}
  directory = _prepare(
    name,
    env_class,
    'demonstrations',
    what,
    'Demonstrations',
    {'demonstrations': generate},
  )
  return Dataset(directory, 'demonstrations', _Decoder(name))


def _parted(
  env_class: type, options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
  """Options of the environment; options of its tasks, none left out."""
  env_options, given = base.split_options(env_class, options)
  return env_options, {**env_class.task_defaults, **given}


def draw(
  env_class: type, text: str, split: str, options: Mapping[str, Any]
) -> dict[str, Any]:
  """Draws a task; where the space is small, only from the split's own part.

  Args:
    env_class: says how, and whether splits part the space (`disjoint_splits`).
    text: what the draw depends on.
    split: 'train', 'validation', 'test'; any other name is of demonstrations
      and labels, and never meets a validation or test task.
    options: of the tasks.

  Returns:
    The task's `data`.

  Raises:
    ValueError: these options leave the split no task.
  """
  data = env_class.generate(_number(text), **options)
  if not getattr(env_class, 'disjoint_splits', False):
    return data
  buckets = _BUCKETS.get(split, (4, 5, 6, 7))
  key = getattr(env_class, 'split_key', _json)  # what no two splits share
  for attempt in range(1, 1000):
    if _number(key(data)) % 8 in buckets:
      return data
    data = env_class.generate(_number(f'{text}/{attempt}'), **options)
  raise ValueError(f'no task of split {split!r} with options {dict(options)}')


def _number(text: str) -> int:
  """A 63-bit number that depends on the text only."""
  digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
  return int.from_bytes(digest, 'big') >> 1


def _json(value: Any) -> str:
  return json.dumps(value, separators=(',', ':'))


def _prepare(
  name: str,
  env_class: type,
  kind: str,
  what: Mapping[str, Any],
  builder: str,
  splits: Mapping[str, Callable],
) -> pathlib.Path:
  """Returns the directory of a dataset, generating it if there is none.

  One process generates, those that come meanwhile wait for it. The dataset is
  written elsewhere and renamed when whole; what a killed process left is swept
  away by the next.
  """
  versions = [sources.version(env_class), *_contents(what)]
  text = json.dumps([what, *versions], sort_keys=True)
  digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
  label = re.sub(r'\W+', '_', name)
  root = cache_root()
  final = root / f'{label}-{kind}-{digest}'
  if final.is_dir():
    return final
  root.mkdir(parents=True, exist_ok=True)
  with _locked(root / f'.{final.name}.lock'):
    if final.is_dir():
      return final
    from agentrl_jax.envs.builders import records  # loads TFDS

    scratch = root / f'.{final.name}.partial'
    shutil.rmtree(scratch, ignore_errors=True)
    written = records.write(getattr(records, builder), splits, scratch)
    os.rename(written, final)
    shutil.rmtree(scratch, ignore_errors=True)
  return final


def _contents(what: Any) -> Iterator[str]:
  """Digests of the files that options name, wherever they stand."""
  if isinstance(what, Mapping):
    what = list(what.values())
  if isinstance(what, list | tuple):
    for each in what:
      yield from _contents(each)
  elif isinstance(what, str) and os.path.isfile(what):
    yield hashlib.blake2b(
      pathlib.Path(what).read_bytes(), digest_size=8
    ).hexdigest()


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
  """Holds a file lock, which the kernel frees even if the process is killed."""
  with open(path, 'w') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    yield
