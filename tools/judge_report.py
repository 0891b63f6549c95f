"""Says how far a judge may be believed, on trajectories whose outcome is known.

tools/run tools/judge_report.py RUN                      # scores of the run
tools/run tools/judge_report.py RUN --judge=my.module:complete
tools/run tools/judge_report.py RUN --model=M --base-url=http://localhost:8000/v1

Rank correlation and AUC of the judge's scores against the outcome, and the
share of pairs within a group that it puts in the right order: what learning
sees. What nothing can be said about is null.
"""

import argparse
import dataclasses
import json
import math
import sys

from agentrl_jax import rewards, types
from agentrl_jax.rewards import calibration, ruler
from agentrl_jax.rollout import store


def main(arguments: list[str] | None = None) -> int:
  """Prints one JSON object; returns the exit status."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('run', help='run directory')
  parser.add_argument('--kind', default='train', help='train, eval or test')
  parser.add_argument('--step', type=int, help='one iteration, default all')
  parser.add_argument('--part', default='ruler', help='that was stored')
  parser.add_argument('--judge', default='', help='package.module:name')
  parser.add_argument('--model', default='')
  parser.add_argument('--base-url', default='')
  parser.add_argument('--passes', type=int, default=1)
  parser.add_argument('--retries', type=int, default=3)
  parser.add_argument('--cache', default='', help='directory')
  options = parser.parse_args(arguments)
  try:
    groups = _groups(options)
    if options.judge or options.model:
      groups = _judged(groups, options)
    said = calibration.report(groups, options.part)
  except (ImportError, ValueError) as error:
    print(error, file=sys.stderr)
    return 1
  if not said.episodes:
    print(_why_none(groups, options), file=sys.stderr)
    return 1
  row = dataclasses.asdict(said).items()
  print(json.dumps({k: None if math.isnan(v) else v for k, v in row}))
  return 0


def _groups(options: argparse.Namespace) -> list[types.Group]:
  steps = store.steps(options.run, kind=options.kind)
  groups: dict[tuple[int, str], list[types.Trajectory]] = {}
  for step in steps if options.step is None else [options.step]:
    for record in store.read(options.run, step, kind=options.kind):
      name = record.trajectory.task.name
      groups.setdefault((step, name), []).append(record.trajectory)
  return [types.Group(g[0].task, tuple(g)) for g in groups.values()]


def _judged(groups, options) -> list[types.Group]:
  judge = ruler.Ruler(
    judge=options.judge,
    model=options.model,
    base_url=options.base_url,
    passes=options.passes,
    retries=options.retries,
    cache=options.cache,
  )
  parts = {'outcome': rewards.REWARDS['outcome'], options.part: judge}
  return rewards.score_groups(groups, parts, dict.fromkeys(parts, 1.0))


def _why_none(groups, options) -> str:
  """What to say when there is nothing to compare."""
  for group in groups:
    for trajectory in group.trajectories:
      if 'reward_error' in trajectory.info:
        return f'every question failed: {trajectory.info["reward_error"]}'
  return (
    f'no trajectory of {options.run} has {options.part!r} and outcome: name '
    'a --judge or a --model'
  )


if __name__ == '__main__':
  sys.exit(main())
