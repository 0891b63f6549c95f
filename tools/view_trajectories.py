"""Prints a run's stored trajectories to read.

tools/run tools/view_trajectories.py RUN [--step=12] [--n=4] [--failures]
"""

import argparse
import os
import sys

from agentrl_jax import display
from agentrl_jax.rollout import store


def main(arguments: list[str] | None = None) -> int:
  """Prints the chosen trajectories; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('run', help='run directory')
  parser.add_argument('--step', type=int, help='iteration, default the last')
  parser.add_argument('--kind', default='train', help='train, eval or test')
  parser.add_argument('--n', type=int, default=4, help='how many at most')
  parser.add_argument(
    '--failures', action='store_true', help='return <= 0 only'
  )
  parser.add_argument('--limit', type=int, default=800, help='letters a text')
  options = parser.parse_args(arguments)
  steps = store.steps(options.run, kind=options.kind)
  if not steps:
    print(
      f'{options.run} holds no {options.kind} trajectories', file=sys.stderr
    )
    return 1
  try:
    step = steps[-1] if options.step is None else options.step
    records = store.read(options.run, step, kind=options.kind)
  except ValueError as error:
    print(error, file=sys.stderr)
    return 1
  if options.failures:
    records = [r for r in records if r.trajectory.outcome <= 0]
  kind = 'plain' if not sys.stdout.isatty() else 'auto'
  with display.Display(kind) as shows:
    shows.close()  # no bar, colours stay
    for record in records[: options.n]:
      name = f'{record.trajectory.task.name}, sample {record.trajectory.sample}'
      shows.trajectory(
        record.trajectory,
        title=f'{options.kind} step {step}: {name}',
        advantages=record.advantages,
        limit=options.limit,
      )
  print(f'{min(options.n, len(records))} of {len(records)}; steps {steps}')
  return 0


if __name__ == '__main__':
  try:
    sys.exit(main())
  except BrokenPipeError:  # piped into head
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
