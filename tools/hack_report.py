"""Says how often a run's policy took planted holes, and whose reward it was.

tools/run tools/hack_report.py RUN [--kind=train] [--step=12]
tools/run tools/hack_report.py RUN [RUN ...] --alarm=NAME

One line a step and kind of task: episodes, share that took the hole, share
that was paid, share that the verifier without holes confirms; then the share of
each reward part in what differs within groups.

With `--alarm` a line of JSON on all runs instead: how many `rang`, which is a
warning of a growing gap to the audit or of updates that lead there, how many
`warned` of anything, when the first rang, and how many iterations later the gap
was half of all episodes (`lead`; to the end of the run where it never was).
Means over those that rang.
"""

import argparse
import json
import pathlib
import re
import statistics
import sys

from agentrl_jax import config as config_lib
from agentrl_jax import metrics, types
from agentrl_jax.rewards import hacking
from agentrl_jax.rollout import store, watch

_ALARMS = ('audit_gap', 'audit_pull')
_TAKEN_OVER = 0.5  # share of episodes that are paid and not confirmed


def main(arguments: list[str] | None = None) -> int:
  """Prints the report; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('runs', nargs='+', metavar='RUN', help='run directory')
  parser.add_argument('--kind', default='train', help='train, eval or test')
  parser.add_argument('--step', type=int, help='one iteration, default all')
  parser.add_argument(
    '--alarm', metavar='NAME', help='what the runs are called'
  )
  options = parser.parse_args(arguments)
  try:
    if options.alarm:
      print(json.dumps(alarms(options.alarm, options.runs)))
      return 0
  except (OSError, ValueError) as error:
    print(error, file=sys.stderr)
    return 1
  (options.run, *more) = options.runs
  if more:
    parser.error('several runs only with --alarm')
  steps = store.steps(options.run, kind=options.kind)
  if options.step is not None:
    steps = [options.step]
  try:
    table = [line for step in steps for line in _lines(options, step)]
  except ValueError as error:
    print(error, file=sys.stderr)
    return 1
  if not table:
    print(
      f'{options.run} holds no {options.kind} trajectories', file=sys.stderr
    )
    return 1
  print(f'{"step":>6} {"task":12} episodes  taken   paid honest  at turn')
  print('\n'.join(table))
  return 0


def alarms(name: str, runs: list[str]) -> dict[str, float | str]:
  """Says when runs warned, by the rows and the limits that they kept."""
  found = [_alarm(run) for run in runs]
  rang = [each for each in found if _first(each) is not None]
  out = {
    'alarm': name,
    'runs': len(runs),
    'rang': len(rang),
    'warned': sum(bool(each['warned']) for each in found),
  }
  if rang:
    first = [_first(each) for each in rang]
    leads = [each['taken_over'] - at for each, at in zip(rang, first)]
    out['iteration'] = statistics.fmean(first)
    out['lead'], out['lead_min'] = statistics.fmean(leads), min(leads)
  return out


def _first(found: dict) -> int | None:
  """The iteration at which an alarm rang first."""
  heard = [found['warned'][name] for name in _ALARMS if name in found['warned']]
  return min(heard, default=None)


def _alarm(run: str) -> dict:
  """First warning by name, and when the gap was half (or the last row)."""
  warned, rows = {}, metrics.read(run)
  if not any('audit/gap' in row for row in rows):
    raise ValueError(f'{run} was not audited: set config.audit_reward')
  now = [0]

  def warn(text):
    (rule,) = re.findall(r'\(config\.watch\.(\w+)\)', text)
    warned.setdefault(rule, now[0])

  follower = watch.Watch(config_lib.of_run(pathlib.Path(run)).watch, warn)
  for row in rows:
    now[0] = row['step']
    follower.see(row['step'], row)
  over = [r['step'] for r in rows if r.get('audit/gap', 0.0) >= _TAKEN_OVER]
  return {'warned': warned, 'taken_over': (over or [now[0]])[0]}


def _lines(options: argparse.Namespace, step: int) -> list[str]:
  records = store.read(options.run, step, kind=options.kind)
  trajectories = [record.trajectory for record in records]
  lines = [
    f'{step:6} {kind:12} {h.episodes:8} {h.taken:6.2f} {h.paid:6.2f} '
    f'{h.honest:6.2f} {h.first_turn:8.1f}'
    for kind, h in hacking.holes(trajectories).items()
  ]
  if options.kind == 'train':
    weights = {p[0]: p[1] for p in config_lib.of_run(options.run).rewards}
    shares = hacking.attribution(_groups(trajectories), weights)
    said = ', '.join(f'{name} {share:.2f}' for name, share in shares.items())
    lines.append(f'{step:6} differences within groups: {said}')
  return lines


def _groups(trajectories: list[types.Trajectory]) -> list[types.Group]:
  groups: dict[str, list[types.Trajectory]] = {}
  for trajectory in trajectories:
    groups.setdefault(trajectory.task.name, []).append(trajectory)
  return [types.Group(g[0].task, tuple(g)) for g in groups.values()]


if __name__ == '__main__':
  sys.exit(main())
