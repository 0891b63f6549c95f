"""How near are Monte-Carlo step values to exact ones? On frozen lakes.

tools/run tools/step_values.py [--lakes=20] [--rollouts=8,32] > values.jsonl

A scripted agent that goes astray with probability `--wander` plays lakes
without slip; the value of each state that it meets is the share of
continuations that arrive (as tools/label_steps.py labels), and is computed by
backward induction as well. One line of JSON for each number of roll-outs:
states, Spearman's rank correlation, mean and largest error; tools/record.py
reads them.
"""

import argparse
import functools
import json
import math
import sys

from agentrl_jax import envs, types
from agentrl_jax.envs import frozen_lake, grid
from agentrl_jax.rewards import calibration, labels


def main(arguments: list[str] | None = None) -> int:
  """Prints a line for each number of roll-outs; returns the exit status."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--lakes', type=int, default=20)
  parser.add_argument('--size', type=int, default=4, help='cells a side')
  parser.add_argument('--wander', type=float, default=0.8)
  parser.add_argument('--max-turns', type=int, default=16)
  parser.add_argument('--rollouts', default='8,32', help='numbers, by comma')
  options = parser.parse_args(arguments)
  try:
    for rollouts in map(int, options.rollouts.split(',')):
      print(json.dumps(compare(options, rollouts)), flush=True)
  except ValueError as error:
    print(error, file=sys.stderr)
    return 1
  return 0


def compare(options: argparse.Namespace, rollouts: int) -> dict[str, float]:
  """Labels one episode a lake; returns how near its values are."""
  found, wanted = [], []
  for seed in range(options.lakes):
    data = frozen_lake.generate(seed, size=options.size)
    task = types.Task('frozen_lake', 'values', seed, data)
    rates = {'wander': options.wander}
    made = labels.label(
      functools.partial(envs.make, 'frozen_lake'),
      functools.partial(
        frozen_lake.FrozenLakeEnv.agent, task, seed=seed, rates=rates
      ),
      task,
      rollouts=rollouts,
      max_turns=options.max_turns,
    )
    exact = values(data['rows'], options.wander, options.max_turns)
    for turn, key in enumerate(t.state_key for t in made.trajectory.turns):
      lines = [line.split() for line in key.splitlines()]
      found.append([made.start, *made.values][turn])
      left = options.max_turns - turn
      wanted.append(exact[left][grid.find(lines, '@')])
  errors = [abs(a - b) for a, b in zip(found, wanted)]
  return {
    'values': f'mc{rollouts}',
    'states': len(found),
    'rank_correlation': calibration.rank_correlation(found, wanted),
    'mean_error': sum(errors) / len(errors),
    'max_error': max(errors),
  }


def values(
  rows: list[str], wander: float, max_turns: int
) -> list[dict[grid.Cell, float]]:
  """Computes by backward induction how often the agent arrives in time.

      V_k(s) = (1 - w) Q_k(s, best) + w mean_a Q_k(s, a),  V_0 = 0
      Q_k(s, a) = 1 at the goal, 0 in a hole, V_{k-1}(s') elsewhere

  Args:
    rows: of a lake without slip.
    wander: w, probability of a direction at random.
    max_turns: K.

  Returns:
    V_0, ..., V_K by cell; the best direction is the scripted agent's.
  """
  near, out = frozen_lake.distances(rows), [{}]
  for _ in range(max_turns):
    before, now = out[-1], {}
    for cell in near:
      if rows[cell[0]][cell[1]] == 'G':
        continue
      worth, far = {}, {}
      for direction, way in frozen_lake.outcomes(rows, cell).items():
        ((_, to, reward),) = way
        worth[direction] = reward or before.get(to, 0.0)
        far[direction] = near.get(to, math.inf)
      best = min(far, key=far.get)
      at_random = sum(worth.values()) / len(worth)
      now[cell] = (1 - wander) * worth[best] + wander * at_random
    out.append(now)
  return out


if __name__ == '__main__':
  sys.exit(main())
