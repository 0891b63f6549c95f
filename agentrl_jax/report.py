"""What came out of a run, on one page? A single HTML file without scripts.

Key numbers, what the config changes from the defaults, the plots (embedded)
and a few trajectories, each turn coloured by its advantage: green pulls the
policy towards it, red pushes it away. The same run gives the same bytes.
"""

import base64
import html
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types

# Key, words, format, and which of the run's values: first, last, best, peak.
NUMBERS = (
  ('eval/success', 'validation success before RL', '{:.1%}', 'first'),
  ('eval/success', 'validation success, best', '{:.1%}', 'max'),
  ('eval/success', 'validation success, last', '{:.1%}', 'last'),
  ('eval/success_greedy', 'validation success, greedy', '{:.1%}', 'last'),
  ('test/success', 'test success, sampled', '{:.1%}', 'last'),
  ('test/success_greedy', 'test success, greedy', '{:.1%}', 'last'),
  ('rollout/success', 'training success, last iteration', '{:.1%}', 'last'),
  ('rollout/turns', 'turns a trajectory, last iteration', '{:.1f}', 'last'),
  ('rollout/tokens_per_s', 'sampled tokens/s, best', '{:,.0f}', 'max'),
  ('advantage/anchor_group_size', 'anchor group size', '{:.1f}', 'last'),
  ('sampler/logprob_gap', 'sampler-learner gap, worst', '{:.1e}', 'max'),
  ('updates', 'optimizer updates', '{:.0f}', 'max'),
  ('host/peak_rss_mb', 'peak memory [MB]', '{:,.0f}', 'max'),
  ('wall_s', 'wall time [s]', '{:.0f}', 'max'),
)

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; color: #222; }
h1, h2 { line-height: 1.2; } img { max-width: 100%; }
table { border-collapse: collapse; }
td { padding: .15rem .8rem .15rem 0; border-bottom: 1px solid #eee;
  vertical-align: top; } td:last-child { font-family: monospace; }
.turn { padding: .3rem .6rem; margin: .2rem 0; border-radius: .3rem;
  font: 13px/1.4 monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
.reply { color: #555; } .role { color: #888; } .error { color: #b00; }
summary { cursor: pointer; font-family: monospace; }
.good { color: #070; } .bad { color: #a00; }
"""


def write(
  workdir: str | os.PathLike[str],
  rows: Sequence[Mapping[str, Any]],
  *,
  title: str = '',
  changes: Mapping[str, Any] | None = None,
  records: Sequence[Any] = (),
) -> pathlib.Path:
  """Writes `WORKDIR/report.html` and returns its path.

  Args:
    workdir: run directory; its `plots/*.png` are embedded.
    rows: of `metrics.jsonl`.
    title: heading, default the directory's name.
    changes: config fields that differ from the default.
    records: of `rollout.store` (trajectory, advantages, anchors).
  """
  workdir = pathlib.Path(workdir)
  title = html.escape(title or workdir.resolve().name)
  parts = [
    f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}'
    f'</title><style>{_STYLE}</style><h1>{title}</h1>',
    '<h2>Numbers</h2>',
    _table(key_numbers(rows)),
    '<h2>What the config changes</h2>',
    _table({key: repr(value) for key, value in (changes or {}).items()}),
    '<h2>Plots</h2>',
    *[_image(path) for path in sorted((workdir / 'plots').glob('*.png'))],
    '<h2>Trajectories</h2>',
    '<p>A turn is green where its advantage is positive, red where it is '
    'negative, the stronger the larger it is within its trajectory.</p>',
    *[_trajectory(record, index < 2) for index, record in enumerate(records)],
    '</html>',
  ]
  target = workdir / 'report.html'
  partial = target.with_suffix('.tmp')
  text = '\n'.join(parts) + '\n'
  partial.write_text(text, encoding='utf-8', errors='backslashreplace')
  partial.replace(target)
  return target


def key_numbers(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
  """Picks the numbers a reader asks for first: words -> formatted value."""
  choose = {
    'first': lambda values: values[0],
    'last': lambda values: values[-1],
    'max': max,
  }
  out = {}
  for key, words, form, which in NUMBERS:
    values = [row[key] for row in rows if key in row]
    if values:
      out[words] = form.format(choose[which](values))
  return out


def _table(cells: Mapping[str, str]) -> str:
  rows = ''.join(
    f'<tr><td>{html.escape(key)}</td><td>{html.escape(str(value))}</td></tr>\n'
    for key, value in cells.items()
  )
  return f'<table>\n{rows}</table>' if rows else '<p>none</p>'


def _image(path: pathlib.Path) -> str:
  data = base64.b64encode(path.read_bytes()).decode()
  return f'<p><img alt="{path.stem}" src="data:image/png;base64,{data}"></p>'


def _trajectory(record: Any, is_open: bool) -> str:
  trajectory = record.trajectory
  name = html.escape(f'{trajectory.task.name}, sample {trajectory.sample}')
  kind = 'good' if trajectory.outcome > 0 else 'bad'
  head = (
    f'<details{" open" * is_open}><summary>{name}: <span class="{kind}">'
    f'{trajectory.stop_reason.value}, return {trajectory.outcome:g}, '
    f'{len(trajectory.turns)} turns</span></summary>'
  )
  advantages = record.advantages or (None,) * len(trajectory.turns)
  anchors = record.anchors or (None,) * len(trajectory.turns)
  scale = max([abs(value) for value in advantages if value is not None] or [0])
  body = [_said(message) for message in trajectory.prompt]
  for turn, advantage, anchor in zip(trajectory.turns, advantages, anchors):
    body.append(_turn(turn, advantage, anchor, scale))
    body += [_said(message) for message in turn.observation]
  return '\n'.join([head, *body, '</details>'])


def _turn(
  turn: types.Turn, advantage: float | None, anchor: int | None, scale: float
) -> str:
  notes, colour = '', ''
  if advantage is not None:
    red, green = (40, 150) if advantage > 0 else (200, 40)
    alpha = 0.45 * abs(advantage) / scale if scale else 0.0
    colour = f' style="background: rgba({red}, {green}, 60, {alpha:.2f})"'
    notes = f'  <b>{advantage:+.3f}</b>'
  if anchor is not None and anchor >= 0:
    notes += f' <span class="role">anchor {anchor}</span>'
  if turn.error:
    notes += f' <span class="error">{html.escape(turn.error)}</span>'
  text = html.escape(turn.text.strip())
  return f'<div class="turn"{colour}>{text}{notes}</div>'


def _said(message: types.Message) -> str:
  role, content = (
    html.escape(message.role),
    html.escape(message.content.strip()),
  )
  return (
    f'<div class="turn reply"><span class="role">{role}</span> {content}</div>'
  )
