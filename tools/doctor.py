"""Looks for what goes wrong in silence, in a config or in a file of rollouts.

tools/run tools/doctor.py --config=configs/gigpo.py [--config.seed=1 ...]
tools/run tools/doctor.py --trajectories=runs/gigpo_s0/trajectories/*.jsonl
tools/run tools/doctor.py --trajectories=dump.jsonl --limit=20

The first collects one small iteration with the config's own parts, trains one
update and prints a table of checks. The second reads our trajectories or those
of verl, TRL, prime-rl and others (docs/doctor.md). Exit status 1: a fault.
"""

import argparse
import os
import sys
import tempfile
import time

from agentrl_jax import config as config_lib
from agentrl_jax.doctor import dumps, findings, samples

# What makes an iteration small; the config's shapes stay.
_SMALL = {
  'train.iterations': '1',
  'train.constant_groups': 'keep',  # an untrained policy's groups are equal
  'eval.every': '0',
  'eval.tasks': '0',
  'eval.test_tasks': '0',
  'log.tensorboard': 'false',
  'doctor.strict': 'none',
}
_MAX_TASKS = 4


def main(arguments: list[str] | None = None) -> int:
  """Runs the command line; returns the exit status."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--config', default='', help='file in configs/')
  parser.add_argument('--trajectories', nargs='+', default=[], metavar='FILE')
  parser.add_argument('--limit', type=int, default=10, help='lines a fault')
  options, rest = parser.parse_known_args(arguments)
  if bool(options.config) == bool(options.trajectories):
    parser.error('give either --config=FILE or --trajectories=FILE')
  overrides = {}
  for item in rest:
    field, equals, value = item.partition('=')
    if not field.startswith('--config.') or not equals:
      parser.error(f'{item}: expected --config.FIELD=VALUE')
    overrides[field.removeprefix('--config.')] = value
  if options.trajectories:
    return max([_read(path, options.limit) for path in options.trajectories])
  try:
    found = _iterate(options.config, overrides)
  except config_lib.ConfigError as error:
    found = [findings.failed('config', str(error))]
  print('\n'.join(findings.table(found)))
  bad = findings.failures(found)
  print(f'{len(bad)} of {len(found)} checks failed')
  return 1 if bad else 0


def _iterate(path: str, overrides: dict[str, str]) -> list[findings.Finding]:
  """Collects and trains once, in a directory that is thrown away."""
  from agentrl_jax import assembly, display, runtime, train, weights

  config = config_lib.load(path, {**overrides, **_SMALL})
  config.rollout.tasks = min(config.rollout.tasks, _MAX_TASKS)
  config_lib.validate(
    config, tables=assembly.TABLES, more=assembly.faults(config)
  )
  display.quiet_logs()
  stop = runtime.Stop()
  with (
    display.Display('quiet') as shown,
    tempfile.TemporaryDirectory(prefix='doctor_') as directory,
  ):
    language = assembly.language(config)
    model = assembly.model_config(config, language.tokenizer.vocab_size)
    mesh = assembly.mesh(config)
    params = weights.first_params(config, model, mesh)
    engine = assembly.engine(config, model, language, mesh)
    collector = assembly.collector(config, engine, language, stop)
    parts = train.Parts(config, language, model, mesh, collector, shown, stop)
    try:
      trainer = train.Trainer(parts, directory, params, time.monotonic())
      shown.warn = lambda _: None  # the table tells it
      trainer.run()
    finally:
      collector.close()
  return [findings.ok('config'), *trainer.doctor.findings]


def _read(path: str, limit: int) -> int:
  """Prints what is wrong with a file of rollouts."""
  try:
    rows, own = dumps.read(path)
  except dumps.DumpError as error:
    print(error, file=sys.stderr)
    return 1
  faults, asked = samples.examine(rows, own)
  lines = len({row.line for row in rows})
  print(f'{path}: {lines} lines, {len(rows)} token streams or texts')
  for kind in samples.KINDS:
    mine = [fault for fault in faults if fault.kind == kind]
    status = 'FAILED' if mine else 'ok' if asked[kind] else 'not applicable'
    print(f'{kind:<10} {status:<14} {len(mine)} faults in {asked[kind]} asked')
    for fault in mine[:limit]:
      where = f'line {fault.line}' if fault.line else 'all lines'
      print(f'  {where}: {fault.text}')
    if len(mine) > limit:
      print(f'  ... {len(mine) - limit} more (--limit)')
    if mine:
      print(f'  remedy: {samples.REMEDIES[kind]}')
  return 1 if faults else 0


if __name__ == '__main__':
  try:
    sys.exit(main())
  except BrokenPipeError:  # piped into head
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
