"""Serves a policy to any client of OpenAI's chat protocol.

python experiments/serve.py RUN [--which=last|best|ITERATION]
python experiments/serve.py --config=configs/smollm2.py [--config.FIELD=VALUE]
  [--port=8000] [--slots=N] [--context=N] [--max_tokens=N] [--name=NAME]

The first serves a run's checkpoint, the second what a config begins with.
Prints a line when it answers; ends on SIGTERM or Ctrl-C when whoever asked has
an answer.
"""

import argparse
import os
import pathlib
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
  sys.path.insert(0, str(ROOT))

from agentrl_jax import config as config_lib  # noqa: E402
from agentrl_jax import display, runtime  # noqa: E402


def parse(argv: list[str] | None) -> argparse.Namespace:
  """Reads the command line."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('run', nargs='?', default='', help='run directory')
  parser.add_argument('--config', default='', help='file in configs/')
  parser.add_argument('--which', default='last', help='checkpoint of a run')
  parser.add_argument('--name', default='', help='default: RUN@ITERATION')
  parser.add_argument('--host', default='127.0.0.1')
  parser.add_argument('--port', type=int, default=8000, help='0 = any')
  parser.add_argument('--slots', type=int, help='answers side by side')
  parser.add_argument('--context', type=int, help='tokens, multiple of 64')
  parser.add_argument('--max_tokens', type=int, help='of an answer at most')
  flags, rest = parser.parse_known_args(argv)
  flags.overrides = {}
  for item in rest:
    field, equals, value = item.partition('=')
    if not field.startswith('--config.') or not equals or not flags.config:
      parser.error(f'{item}: unknown, or without --config=FILE')
    flags.overrides[field.removeprefix('--config.')] = value
  if bool(flags.run) == bool(flags.config):
    parser.error('give either a RUN or --config=FILE')
  if flags.config and flags.which != 'last':
    parser.error('--which is of a RUN')
  return flags


def main(argv: list[str] | None = None) -> int:
  """Runs the command line; returns the exit code."""
  flags = parse(argv)
  runtime.tune_allocator()
  display.quiet_logs()
  from agentrl_jax import serve

  sizes = {k: getattr(flags, k) for k in ('slots', 'context', 'max_tokens')}
  with runtime.Stop().installed() as stop:
    try:
      if flags.run:
        opened = serve.of_run(flags.run, flags.which, **sizes)
      else:
        config = config_lib.load(flags.config, flags.overrides)
        opened = serve.of_config(config, **sizes)
      name = flags.name or (
        f'{pathlib.Path(flags.run).name}@{opened[0].version}'
        if flags.run
        else pathlib.Path(flags.config).stem
      )
      server = serve.start(opened, name=name, host=flags.host, port=flags.port)
    except (OSError, ValueError) as e:
      print(e, file=sys.stderr)
      return 2
    answering = threading.Thread(target=server.serve, daemon=True)
    answering.start()
    try:
      print(f'{name} answers at {server.address}', flush=True)
      while not (stop() or server.fault):
        time.sleep(0.1)
    finally:
      server.close()
    if server.fault:
      print(server.fault, file=sys.stderr)
      return 1
  return 0


if __name__ == '__main__':
  code = main()
  sys.stdout.flush()
  # Threads of libraries (orbax) must not hold the exit up.
  os._exit(code)
