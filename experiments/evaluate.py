"""Plays a panel of tasks with the policy of a run; prints one JSON object.

python experiments/evaluate.py RUN [--split=test] [--tasks=N] [--greedy]
  [--which=last|best|ITERATION] [--seed=N]
"""

import argparse
import json
import math
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
  sys.path.insert(0, str(ROOT))

from agentrl_jax import display, runtime  # noqa: E402


def parse(argv: list[str] | None) -> argparse.Namespace:
  """Reads the command line."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('run', help='run directory')
  parser.add_argument('--split', default='test', help='panel of tasks')
  parser.add_argument('--tasks', type=int, default=0, help='0 = all')
  parser.add_argument('--greedy', action='store_true', help='greedily only')
  parser.add_argument('--which', default='last', help='checkpoint')
  parser.add_argument('--seed', type=int, help="of sampling, default the run's")
  return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
  """Runs the command line; returns the exit code."""
  flags = parse(argv)
  runtime.tune_allocator()
  display.quiet_logs()
  from agentrl_jax import evaluate
  from agentrl_jax.rollout import breaker, loop

  request = evaluate.Request(
    split=flags.split,
    tasks=flags.tasks,
    modes=('_greedy',) if flags.greedy else ('', '_greedy'),
    which=flags.which,
    seed=flags.seed,
  )
  with runtime.Stop().installed() as stop:
    try:
      result = evaluate.run(flags.run, request, stop)
    except ValueError as e:
      print(e, file=sys.stderr)
      return 2
    except breaker.TooManyFailures as e:
      print(e, file=sys.stderr)
      return 1
    except loop.Interrupted:
      return stop.exit_code
  plain = {
    k: None if isinstance(v, float) and math.isnan(v) else v
    for k, v in result.items()
  }
  print(json.dumps(plain))
  return 0


if __name__ == '__main__':
  code = main()
  sys.stdout.flush()
  # Threads of libraries (grain, orbax) must not hold the exit up.
  os._exit(code)
