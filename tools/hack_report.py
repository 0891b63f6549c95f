"""Says how often a run's policy took planted holes, and whose reward it was.

tools/run tools/hack_report.py RUN [--kind=train] [--step=12]

One line a step and kind of task: episodes, share that took the hole, share
that was paid, share that the verifier without holes confirms; then the share of
each reward part in what differs within groups.
"""

import argparse
import sys

from agentrl_jax import config as config_lib
from agentrl_jax import types
from agentrl_jax.rewards import hacking
from agentrl_jax.rollout import store


def main(arguments: list[str] | None = None) -> int:
  """Prints the report; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('run', help='run directory')
  parser.add_argument('--kind', default='train', help='train, eval or test')
  parser.add_argument('--step', type=int, help='one iteration, default all')
  options = parser.parse_args(arguments)
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
