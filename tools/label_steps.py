"""Labels steps by Monte-Carlo continuations; writes what a PRM learns from.

tools/run tools/label_steps.py flight --episodes=100 --rollouts=16 --out=F.jsonl
tools/run tools/label_steps.py sokoban --rate=wander=0.3 --format=prm800k ...

A scripted agent with these mistake rates plays; from the state after each turn
it plays on `--rollouts` times. Soft labels are the share that succeeds, True in
TRL's format from `--threshold` on; `--hard` asks whether any did. PRM800K gets
1 and -1.
"""

import argparse
import dataclasses
import functools
import pathlib
import sys

from agentrl_jax import envs, tables, types
from agentrl_jax.envs import base, panels
from agentrl_jax.rewards import labels, steps


def main(arguments: list[str] | None = None) -> int:
  """Writes the labels; returns the exit status."""
  options = _parse(arguments)
  try:
    found = list(_labelled(options))
  except (TypeError, ValueError) as error:
    print(error, file=sys.stderr)
    return 1
  lines = steps.dumps(
    (_steps(each, options) for each in found), style=options.format
  )
  pathlib.Path(options.out).write_text(lines, encoding='utf-8')
  goods = [good for each in found for good in _goods(each, options)]
  print(
    f'{options.out}: {len(found)} episodes, {len(goods)} steps, '
    f'{sum(goods)} of them good'
  )
  return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('env', help='name in ENVS, or package.module:Name')
  parser.add_argument('--out', required=True, help='JSON lines')
  parser.add_argument('--format', default='trl', choices=list(steps.FORMATS))
  parser.add_argument('--episodes', type=int, default=10)
  parser.add_argument('--rollouts', type=int, default=8)
  parser.add_argument('--max-turns', type=int, default=30)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--threshold', type=float, default=0.5)
  parser.add_argument('--hard', action='store_true')
  parser.add_argument('--rate', action='append', default=[], metavar='K=V')
  parser.add_argument('--option', action='append', default=[], metavar='K=V')
  return parser.parse_args(arguments)


def _labelled(options: argparse.Namespace):
  env_class = tables.resolve(envs.ENVS, options.env)
  if not hasattr(env_class, 'agent'):
    raise ValueError(f'{options.env} has no scripted agent to label with')
  given = dict(map(_pair, options.option))
  env_options, task_options = base.split_options(env_class, given)
  rates = {**getattr(env_class, 'rates', {}), **dict(map(_pair, options.rate))}
  for index in range(options.episodes):
    name = f'{options.env}/label/{options.seed}/{index}'
    data = panels.draw(env_class, name, 'label', task_options)
    task = types.Task(options.env, 'label', index, data)
    yield labels.label(
      functools.partial(envs.make, options.env, **env_options),
      functools.partial(env_class.agent, task, seed=index, rates=rates),
      task,
      rollouts=options.rollouts,
      max_turns=options.max_turns,
      seed=options.seed,
    )


def _goods(each: labels.Labelled, options: argparse.Namespace) -> list[bool]:
  if options.hard:
    return list(each.any_success)
  return [value >= options.threshold for value in each.values]


def _steps(each: labels.Labelled, options: argparse.Namespace) -> steps.Steps:
  good = _goods(each, options)
  made = steps.of_trajectory(each.trajectory, good)
  if options.format == 'prm800k':
    return dataclasses.replace(made, labels=tuple(1 if g else -1 for g in good))
  return made


def _pair(text: str) -> tuple[str, float | int | str]:
  key, _, value = text.partition('=')
  for kind in (int, float):
    try:
      return key, kind(value)
    except ValueError:
      continue
  return key, value


if __name__ == '__main__':
  sys.exit(main())
