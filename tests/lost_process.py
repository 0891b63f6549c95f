"""A process of two under its parent: exchanges with the other until it is lost.

  python tests/lost_process.py COORDINATOR INDEX WORKDIR

Run by distributed_test.py. Prints the worker's process id once both are there.
"""

import os
import sys
import time
import traceback

from agentrl_jax import supervisor


def parent() -> int:
  index, workdir = sys.argv[2:4]
  return supervisor.supervise(
    [sys.executable, __file__, *sys.argv[1:], 'worker', str(os.getpid())],
    workdir,
    who=f'process {index} of 2',
  )


def worker() -> int:
  from agentrl_jax import distributed

  supervisor.follow_parent(int(sys.argv[-1]))
  distributed.initialize(
    coordinator=sys.argv[1],
    num_processes=2,
    process_id=int(sys.argv[2]),
    heartbeat_timeout_seconds=10,
  )
  distributed.exchange('hello')
  sys.stdout.write(f'{os.getpid()}\n')
  sys.stdout.flush()
  try:
    while True:
      distributed.exchange('still there')
      time.sleep(0.05)
  except distributed.Lost:
    traceback.print_exc()
    return supervisor.TRY_AGAIN


if __name__ == '__main__':
  is_worker = 'worker' in sys.argv
  code = worker() if is_worker else parent()
  sys.stdout.flush()
  os._exit(code)  # what JAX does at exit would wait for the other
