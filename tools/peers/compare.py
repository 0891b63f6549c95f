"""How fast are we beside other systems, on one core and on the same minutes?

  python tools/peers/compare.py --tunix=DIR/bin/python --torch=DIR/bin/python
    [--core=0] [--rounds=3] [sample multiturn train logprobs grpo]

Runs each workload of `tools/bench.py` by turns with each peer, every time in a
fresh process pinned to one core, and prints a JSON line a workload: tokens per
own CPU second, medians over the rounds, and `ratio` of ours to the best peer
that computes in float32 (`ratio_any`: to the best of all). `tools/record.py
FILE --name=peers` keeps them. How to make the environments stands in
`tunix_peer.py` and `torch_peer.py`.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# workload -> peers: environment, name in its script.
PEERS = {
  'sample': {
    'tunix': ('tunix', 'sample'),
    'hf': ('torch', 'hf_sample'),
    'ct2': ('torch', 'ct2_sample'),
    'ct2_int8': ('torch', 'ct2_sample_int8'),
  },
  'multiturn': {'tunix': ('tunix', 'multiturn')},
  'train': {'tunix': ('tunix', 'train'), 'hf': ('torch', 'hf_train')},
  'logprobs': {'tunix': ('tunix', 'logprobs'), 'hf': ('torch', 'hf_logprobs')},
  'grpo': {'tunix': ('tunix', 'grpo'), 'trl': ('torch', 'trl_grpo')},
}


def main(arguments: list[str] | None = None) -> int:
  """Compares; returns the exit status."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('workloads', nargs='*', help='default all')
  parser.add_argument('--tunix', required=True, help='python with tunix')
  parser.add_argument('--torch', required=True, help='python with TRL')
  parser.add_argument('--core', type=int, default=0)
  parser.add_argument('--rounds', type=int, default=3)
  parser.add_argument('--repeats', type=int, default=2, help='of a process')
  options = parser.parse_args(arguments)
  for workload in options.workloads or PEERS:
    print(json.dumps(compare(workload, options)), flush=True)
  return 0


def compare(workload: str, options: argparse.Namespace) -> dict[str, float]:
  """Returns the line of a workload."""
  speeds = {}
  for _ in range(options.rounds):
    for name, command in commands(workload, options).items():
      speed = run(command, options)
      print(f'{workload} {name} {speed}', file=sys.stderr, flush=True)
      speeds.setdefault(name, []).append(speed)
  return line(workload, speeds)


def line(
  workload: str, speeds: dict[str, list[float]]
) -> dict[str, str | float]:
  """Medians, and ours over the best peer's; 'ct2_int8' is no float32."""
  medians = {name: statistics.median(each) for name, each in speeds.items()}
  ours = medians['ours']
  peers = {name: x for name, x in medians.items() if name != 'ours'}
  exact = max(x for name, x in peers.items() if not name.endswith('int8'))
  return {
    'workload': workload,
    **medians,
    'ratio': round(ours / exact, 3),
    'ratio_any': round(ours / max(peers.values()), 3),
    'rounds': min(map(len, speeds.values())),
  }


def commands(
  workload: str, options: argparse.Namespace
) -> dict[str, list[str]]:
  """Who runs the workload, and how."""
  made = {
    peer: [getattr(options, place), str(HERE / f'{place}_peer.py'), name]
    for peer, (place, name) in PEERS[workload].items()
  }
  bench = str(HERE.parent / 'bench.py')
  repeats = f'--repeats={options.repeats}'
  return made | {'ours': [sys.executable, bench, workload, repeats]}


def run(command: list[str], options: argparse.Namespace) -> float:
  """Runs a process on the core; returns its tokens per CPU second.

  Raises:
    RuntimeError: it failed.
  """
  quiet = dict(
    BENCH_REPEATS=str(options.repeats),
    OMP_NUM_THREADS='1',
    OMP_WAIT_POLICY='PASSIVE',
    TF_CPP_MIN_LOG_LEVEL='3',
    PYTHONPATH=str(HERE.parents[1]),
  )
  done = subprocess.run(
    ['taskset', '-c', str(options.core), *command],
    env=os.environ | quiet,
    capture_output=True,
    text=True,
  )
  lines = [x for x in done.stdout.splitlines() if x.startswith('{"name"')]
  if done.returncode or not lines:
    raise RuntimeError(f'{command}: {done.stderr[-2000:]}')
  return json.loads(lines[-1])['tok_per_cpu_s']


if __name__ == '__main__':
  sys.exit(main())
