"""How do episodes that are under way outlive a process?

A file a checkpoint, `WORKDIR/pending/000012.jsonl`, written before it: a head,
then one object a member of a group. An ended one has its trajectory, one under
way the turns drawn so far, by which it is played again (`entries.Entry.past`).
"""

import bisect
import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.rollout import store
from agentrl_jax.rollout.stream import Drawn

# The checkpoint of the last file may be missing: the one before is needed then.
_KEPT = 2


@dataclasses.dataclass(frozen=True)
class Member:
  """A trajectory of a group that was not trained on yet.

  Attributes:
    iteration: for which it is played.
    task, sample: of the entry.
    past: as of an entry; () = it was not begun, or has ended.
    done: the trajectory, None = it has not ended.
  """

  iteration: int
  task: types.Task
  sample: int
  past: tuple[Drawn, ...] = ()
  done: types.Trajectory | None = None


def write(
  workdir: str | os.PathLike[str],
  step: int,
  head: Mapping[str, Any],
  members: Sequence[Member],
) -> pathlib.Path:
  """Writes what is under way at a checkpoint.

  Older files go, and those of later steps, which a run that went on from
  before them will not come to as they were.

  Args:
    workdir: run directory.
    step: of the checkpoint.
    head: JSON about all.
    members: of all groups that were admitted and not trained on.
  """
  target = _path(workdir, step)
  target.parent.mkdir(parents=True, exist_ok=True)
  lines = [json.dumps(dict(head)), *map(_dumps, members)]
  partial = target.with_suffix('.tmp')
  partial.write_text(
    ''.join(f'{line}\n' for line in lines),
    encoding='utf-8',
    errors='backslashreplace',
  )
  there = sorted(target.parent.glob('*.jsonl'))
  for later in there[bisect.bisect(there, target) :]:
    later.unlink()
  partial.replace(target)
  for old in sorted(target.parent.glob('*.jsonl'))[:-_KEPT]:
    old.unlink()
  return target


def read(
  workdir: str | os.PathLike[str], step: int
) -> tuple[dict[str, Any], list[Member]]:
  """Reads what was under way at a checkpoint; ({}, []) where nothing was."""
  path = _path(workdir, step)
  if not path.exists():
    return {}, []
  with path.open(encoding='utf-8') as file:
    return json.loads(next(file)), [_loads(line) for line in file]


def _path(workdir, step):
  return pathlib.Path(workdir, 'pending', f'{step:06d}.jsonl')


def _dumps(member: Member) -> str:
  done = member.done and store.to_json(store.Record(member.done))
  data = {
    'iteration': member.iteration,
    'task': vars(member.task),
    'sample': member.sample,
    'past': [dataclasses.asdict(turn) for turn in member.past],
    'done': done,
  }
  return store.line(data)


def _loads(line: str) -> Member:
  data = json.loads(line)
  done = data['done']
  return Member(
    iteration=data['iteration'],
    task=types.Task(**data['task']),
    sample=data['sample'],
    past=tuple(
      Drawn(**{k: tuple(v) if isinstance(v, list) else v for k, v in x.items()})
      for x in data['past']
    ),
    done=done and store.from_json(done).trajectory,
  )
