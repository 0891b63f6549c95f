"""How do trajectories lie on disk? One JSON object a line, one file a step.

A line has the fields of `types.Trajectory` under their own names, and what
credit assignment added: per turn `advantage` and `anchor`. Numbers are exact:
`read` gives back what `write` was given. Files are replaced atomically, so a
killed run leaves whole files only.
"""

import base64
import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types

_FILE = re.compile(r'(?P<kind>\w+)_(?P<step>\d{6})\.jsonl')


@dataclasses.dataclass(frozen=True)
class Record:
  """A trajectory with its turns' advantages and anchor ids, if known."""

  trajectory: types.Trajectory
  advantages: tuple[float, ...] | None = None
  anchors: tuple[int, ...] | None = None


def path(
  workdir: str | os.PathLike[str], step: int, *, kind: str = 'train'
) -> pathlib.Path:
  """Names the file: `WORKDIR/trajectories/train_000012.jsonl`."""
  return pathlib.Path(workdir, 'trajectories', f'{kind}_{step:06d}.jsonl')


def write(
  workdir: str | os.PathLike[str],
  step: int,
  trajectories: Sequence[types.Trajectory],
  *,
  kind: str = 'train',
  advantages: Any = None,
  anchors: Any = None,
  limit: int | None = None,
) -> pathlib.Path:
  """Writes an iteration's trajectories, the first `limit` of them.

  Args:
    workdir: run directory.
    step: iteration.
    trajectories: in batch order, so that groups stay together.
    kind: file prefix: train, eval or test.
    advantages: [B, S] array or nested sequence, advantage of each turn.
    anchors: [B, S] array or nested sequence, anchor id before each turn.
    limit: how many to keep, None = all.

  Returns:
    The path written.
  """
  lines = []
  for index, trajectory in enumerate(trajectories[:limit]):
    record = Record(
      trajectory=trajectory,
      advantages=_row(advantages, index, float),
      anchors=_row(anchors, index, int),
    )
    lines.append(dumps(record))
  target = path(workdir, step, kind=kind)
  target.parent.mkdir(parents=True, exist_ok=True)
  partial = target.with_suffix('.tmp')
  # Half a surrogate pair, which a world may hand on, is written as \ud83d: that
  # is JSON and reads back as it was.
  partial.write_text(
    ''.join(f'{line}\n' for line in lines),
    encoding='utf-8',
    errors='backslashreplace',
  )
  partial.replace(target)
  return target


def read(
  workdir: str | os.PathLike[str], step: int, *, kind: str = 'train'
) -> list[Record]:
  """Reads one file back.

  Raises:
    ValueError: there is no such file; says which steps there are.
  """
  target = path(workdir, step, kind=kind)
  if not target.exists():
    known = steps(workdir, kind=kind)
    raise ValueError(f'{target} does not exist; {kind} has steps {known}.')
  with target.open(encoding='utf-8') as file:
    return [loads(text) for text in file]


def steps(workdir: str | os.PathLike[str], *, kind: str = 'train') -> list[int]:
  """Lists the steps that have a file of this kind, ascending."""
  found = pathlib.Path(workdir, 'trajectories').glob('*.jsonl')
  matches = (_FILE.fullmatch(file.name) for file in found)
  return sorted(int(m['step']) for m in matches if m and m['kind'] == kind)


def dumps(record: Record) -> str:
  """Renders one record as one line of JSON."""
  return line(to_json(record))


def loads(text: str) -> Record:
  """Reads one line back."""
  return from_json(json.loads(text))


def line(data: Any) -> str:
  """Renders what is JSON but for `info` and `data` as one line of it."""
  return json.dumps(
    data, ensure_ascii=False, separators=(',', ':'), default=_plain
  )


def to_json(record: Record) -> dict[str, Any]:
  """Returns one record as `line` takes it."""
  trajectory = record.trajectory
  turns = [_turn(turn) for turn in trajectory.turns]
  for key, values in (
    ('advantage', record.advantages),
    ('anchor', record.anchors),
  ):
    for turn, value in zip(turns, values or ()):  # padding is left out
      turn[key] = value
  return {
    'task': _fields(trajectory.task),
    'sample': trajectory.sample,
    'stop_reason': trajectory.stop_reason.value,
    'outcome': trajectory.outcome,
    'rewards': {k: list(v) for k, v in trajectory.rewards.items()},
    'info': trajectory.info,
    'prompt': [_message(message) for message in trajectory.prompt],
    'turns': turns,
    'contexts': [_context(context) for context in trajectory.contexts],
  }


def from_json(data: Mapping[str, Any]) -> Record:
  """Reads one record back, out of parsed JSON."""
  turns = data['turns']
  trajectory = types.Trajectory(
    task=types.Task(**data['task']),
    sample=data['sample'],
    prompt=_messages(data['prompt']),
    turns=tuple(_read_turn(turn) for turn in turns),
    contexts=tuple(_read_context(context) for context in data['contexts']),
    stop_reason=types.StopReason(data['stop_reason']),
    rewards={key: tuple(value) for key, value in data['rewards'].items()},
    info=data['info'],
  )
  columns = {
    f'{key}s': tuple(turn[key] for turn in turns)
    for key in ('advantage', 'anchor')
    if turns and key in turns[0]
  }
  return Record(trajectory=trajectory, **columns)


def _row(table: Any, index: int, kind: type) -> tuple | None:
  if table is None:
    return None
  row = table[index]
  row = row.tolist() if hasattr(row, 'tolist') else row
  return tuple(kind(value) for value in row)


def _fields(record: Any) -> dict[str, Any]:
  return {
    field.name: getattr(record, field.name)
    for field in dataclasses.fields(record)
  }


def _context(context: types.Context) -> dict[str, Any]:
  data = _fields(context)
  routes = data.pop('routes')
  if routes is not None:
    text = base64.b64encode(routes.data).decode('ascii')
    data['routes'] = {**_fields(routes), 'data': text}
  return data


def _read_context(data: Mapping[str, Any]) -> types.Context:
  fields = {k: tuple(v) for k, v in data.items() if k != 'routes'}
  if 'routes' in data:
    given = data['routes']
    fields['routes'] = types.Routes(
      shape=tuple(given['shape']),
      dtype=given['dtype'],
      data=base64.b64decode(given['data']),
    )
  return types.Context(**fields)


def _message(message: types.Message) -> dict[str, Any]:
  data = {'role': message.role, 'content': message.content}
  if message.calls:
    data['calls'] = [_fields(call) for call in message.calls]
  return data


def _turn(turn: types.Turn) -> dict[str, Any]:
  data = _fields(turn)
  data['calls'] = [_fields(call) for call in turn.calls]
  data['observation'] = [_message(message) for message in turn.observation]
  return data


def _calls(items: Sequence[Mapping[str, Any]]) -> tuple[types.ToolCall, ...]:
  return tuple(types.ToolCall(**item) for item in items)


def _messages(items: Sequence[Mapping[str, Any]]) -> tuple[types.Message, ...]:
  return tuple(
    types.Message(i['role'], i['content'], _calls(i.get('calls', ())))
    for i in items
  )


def _read_turn(data: Mapping[str, Any]) -> types.Turn:
  fields = {k: v for k, v in data.items() if k not in ('advantage', 'anchor')}
  fields['calls'] = _calls(fields['calls'])
  fields['observation'] = _messages(fields['observation'])
  return types.Turn(**fields)


def _plain(value: Any) -> Any:
  """Makes JSON of what `info` or `data` hold: NumPy's, mappings, sets."""
  if hasattr(value, 'tolist'):
    return value.tolist()
  if isinstance(value, Mapping):
    return dict(value)
  if isinstance(value, set | frozenset):
    return sorted(value)
  return str(value)
