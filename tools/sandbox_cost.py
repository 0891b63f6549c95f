"""Measures what a command costs beside itself, by backend; JSON lines.

  tools/run tools/sandbox_cost.py > cost.jsonl
  tools/run tools/record.py cost.jsonl --name=sandbox

`alone_ms` starts `true` without a sandbox, `true_ms` and `python_ms` in it;
`overhead_ms` is the difference of the first two. Medians; `best_ms` is the
smallest overhead seen, for a machine that does other work.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from agentrl_jax.envs import sandbox


def main() -> int:
  """Prints one line a backend that works here."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--calls', type=int, default=100)
  calls = parser.parse_args().calls
  for backend in sandbox.BACKENDS:
    why = sandbox.trial(backend)
    if why:
      print(f'{backend}: {why}', file=sys.stderr)
      continue
    row = {'name': backend, **measure(backend, calls)}
    print(json.dumps(row), flush=True)
  return 0


def measure(backend: str, calls: int) -> dict[str, float]:
  """Times commands of a backend and of none in turns, in milliseconds."""
  commands: dict[str, Callable[[], object]] = {
    'alone': lambda: subprocess.run(['/bin/true'], check=True),
    'true': lambda: sandbox.run(['/bin/true'], backend=backend),
    'python': lambda: sandbox.run_python('', backend=backend),
  }
  times: dict[str, list[float]] = {name: [] for name in commands}
  for _ in range(calls):
    for name, command in commands.items():
      start = time.perf_counter()
      command()
      times[name].append(1e3 * (time.perf_counter() - start))
  row = {f'{n}_ms': statistics.median(column) for n, column in times.items()}
  row['overhead_ms'] = row['true_ms'] - row['alone_ms']
  row['best_ms'] = min(times['true']) - min(times['alone'])
  return {name: round(value, 2) for name, value in row.items()}


if __name__ == '__main__':
  sys.exit(main())
